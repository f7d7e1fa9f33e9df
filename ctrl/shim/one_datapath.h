/* All bridges with datapath_type=netdev share one datapath, ovs-netdev, and there is no other of its type.
 *
 * OVS tells the flow API of ports and megaflows by the datapath's type and the port's number only. Those of another
 * datapath of the type, which `dpctl/add-dp netdev@other` would make, would be taken for ports and megaflows of the
 * bridges', go into the NIC as theirs, and take theirs with them when they go.
 */
#ifndef CTRL_SHIM_ONE_DATAPATH_H
#define CTRL_SHIM_ONE_DATAPATH_H

struct dpif;

/* dpif_create(); EOPNOTSUPP, and why in the log, for another one. */
int one_datapath_create(const char *name, const char *type, struct dpif **);

#endif
