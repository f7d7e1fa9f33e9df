/* Megaflows and other_config:vlan-limit.
 *
 * The limit says how many tags OVS parses, and so what a megaflow's match means. dpif-netdev parses packets with the
 * new limit as soon as it is set; rules in the NIC would go on with the old meaning. So all megaflows are deleted when
 * the limit changes, and come anew with the next packets. OpenFlow does not hear of what they took since the
 * revalidators last looked.
 *
 * Threads: the main thread.
 */
#ifndef CTRL_SHIM_VLAN_LIMIT_H
#define CTRL_SHIM_VLAN_LIMIT_H

struct dpif;

/* Offload is on. */
void vlan_limit_flush_if_changed(struct dpif *);

#endif
