/* OVS's own offload by the kernel's traffic control, kept away from dr ports.
 *
 * It takes each interface that has an ifindex, and which provider is asked first is a matter of hashes. A dr port's
 * ifindex is none of the kernel's (netdev_dr_ifindex.c): tc would configure some other interface, or take the port for
 * its own. Interfaces of the kernel's, in a bridge of the kernel's datapath, have tc as before.
 */
#ifndef CTRL_SHIM_TC_FLOW_API_H
#define CTRL_SHIM_TC_FLOW_API_H

/* Once, before offload can be turned on. An error: nothing has changed. */
int tc_flow_api_keep_from_dr_ports(void);

#endif
