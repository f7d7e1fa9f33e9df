/* The megaflow's ufid of a datapath flow.
 *
 * dpif-netdev names a flow twice: by `ufid`, which users read in dpctl/dump-flows, and by `mega_ufid`, which it gives to
 * flow-API providers.
 */
#ifndef CTRL_SHIM_MEGA_UFID_H
#define CTRL_SHIM_MEGA_UFID_H

#include <stdbool.h>

#include "openvswitch/types.h"

struct dpif;

/* False if no dr port has a flow with this ufid. Any thread that does not watch (flow_watch.h). */
bool mega_ufid_find(struct dpif *, const ovs_u128 *ufid, ovs_u128 *mega_ufid);

#endif
