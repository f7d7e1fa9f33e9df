/* The flow-API provider "dr": dpif-netdev's megaflows of dr ports go into the NIC, and those of tunnel ports into all
 * NICs (tunnel_port.h).
 *
 * dpif-netdev calls flow_put and flow_del in its hw_offload threads, one thread per megaflow, and flow_get in
 * revalidators and the main thread. A megaflow that cannot be offloaded is accepted all the same: dpif-netdev then
 * tells when it goes, which it does not for one that was refused, and the device keeps the reason for dr/explain.
 * Whether it is in the NIC is what flow_get says.
 *
 * A deletion must end with exact statistics, see deletion.h, and nothing may go into the NIC for a flow that is dead:
 * flow_api_del_watched() and flow_put exclude one another. Nor may a deletion take the rule of the flow that came
 * after, which has the same ufid: each rule belongs to the flow that was put (flow_watch.h).
 *
 * Whoever deletes a flow makes dpif-netdev ask its offload thread to take the rule out, which would do so one by one,
 * in the way of the thread that deletes and is about to do it for many at once. The offload thread therefore leaves
 * what is watched to the watching thread.
 */
#ifndef CTRL_SHIM_FLOW_API_H
#define CTRL_SHIM_FLOW_API_H

#include <stdbool.h>
#include <stddef.h>

struct flow_watch;
struct netdev;
struct netdev_flow_api;

extern const struct netdev_flow_api flow_api_dr;

/* At most so many at once. Revalidators pass 50 operations to dpif_operate(). */
enum { FLOW_API_MANY = 50 };

/* Takes the rules of flows that are dead out of the NIC. A rule that was still the watched flow's is WATCHED_RULE_GONE
 * then, with its last statistics; no packet is counted after them. Each watch has a flow. */
void flow_api_del_watched(struct flow_watch *[], size_t n);

/* Whether dpif-netdev offers the provider what comes from this netdev. */
bool flow_api_takes(const struct netdev *);

/* flow_watch_end(), after taking out a rule that was left to the watch. */
void flow_api_end_watch(struct flow_watch *);

#endif
