/* The flow-API provider "dr": dpif-netdev's megaflows of dr ports go into the NIC.
 *
 * dpif-netdev calls flow_put and flow_del in its hw_offload threads, one thread per megaflow, and flow_get in
 * revalidators and the main thread. A megaflow that cannot be offloaded is accepted all the same: dpif-netdev then tells
 * when it goes, which it does not for one that was refused, and the device keeps the reason for dr/explain. Whether it
 * is in the NIC is what flow_get says.
 *
 * A deletion must end with exact statistics, see deletion.h, and nothing may go into the NIC for a flow that is
 * dead: flow_api_del_dead() and flow_put exclude one another.
 */
#ifndef CTRL_SHIM_FLOW_API_H
#define CTRL_SHIM_FLOW_API_H

#include <stdbool.h>

#include "openvswitch/types.h"

struct netdev;
struct netdev_flow_api;
struct ovsdr_flow_stats;

extern const struct netdev_flow_api flow_api_dr;

/* Forgets a megaflow whose datapath flow is dead. True if it had statistics; they are final. */
bool flow_api_del_dead(struct netdev *, const ovs_u128 *mega_ufid, struct ovsdr_flow_stats *);

#endif
