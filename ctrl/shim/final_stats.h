/* Exact statistics of flows that are deleted while packets hit them.
 *
 * dpif-netdev answers a deletion with what it counts itself and what flow_get said a moment before; hits after that, in
 * the NIC or by packets that another thread has classified already, are lost. This file's dpif_operate() stands in front
 * of libopenvswitch's. For each deletion of a flow whose in_port is a dr port it
 *
 *   1. keeps the main thread, which alone classifies what dr ports receive, out of dpif_run();
 *   2. learns the megaflow's ufid, by a flow_get in its own thread;
 *   3. lets dpif-netdev delete the flow, and notes what flow_get said then;
 *   4. takes the megaflow out of the NIC, and adds what was counted since to the reply.
 *
 * Packets that come after that find neither rule nor flow: they are a new flow's first ones.
 *
 * Modifications by other threads wait for dpif_run() as well: the first one that finds offload turned on adopts the flows
 * that are there (adopt.h).
 *
 * Waiting is bounded: a thread that cannot get at the datapath's ports, since they are being reconfigured, goes on with
 * the statistics that there are.
 */
#ifndef CTRL_SHIM_FINAL_STATS_H
#define CTRL_SHIM_FINAL_STATS_H

#include <stdbool.h>
#include <stddef.h>

#include "dpif.h"
#include "openvswitch/types.h"

struct dpif_flow_stats;
struct netdev;

/* What flow_get() said last in a thread that watches: dpif-netdev asks it in the thread that asks dpif-netdev. */
struct final_stats_watch {
    struct netdev *netdev;      /* A reference; NULL until flow_get() is called. */
    ovs_u128 mega_ufid;
    struct dpif_flow_stats stats;
};

/* One at a time in each thread. The end gives the reference back, and the watch is as new. */
void final_stats_watch_begin(struct final_stats_watch *);
void final_stats_watch_end(struct final_stats_watch *);
void final_stats_note_get(struct netdev *, const ovs_u128 *mega_ufid, const struct dpif_flow_stats *);

/* The function that ours stands in front of. */
void *final_stats_next_definition(const char *name);

/* libopenvswitch's dpif_operate(). */
void final_stats_real_operate(struct dpif *, struct dpif_op **, size_t n_ops, enum dpif_offload_type);

/* The megaflow's ufid of a datapath flow, for people: dpctl shows the other one. False if no dr port has such a flow. */
bool final_stats_mega_ufid(struct dpif *, const ovs_u128 *ufid, ovs_u128 *mega_ufid);

#endif
