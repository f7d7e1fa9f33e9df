/* What flow_get() says in one thread.
 *
 * dpif-netdev does not tell its callers in which netdev a flow is and by which ufid. But it asks flow_get() in the thread
 * that asks dpif-netdev: a thread that watches learns both, and what the NIC had counted at that moment.
 */
#ifndef CTRL_SHIM_FLOW_WATCH_H
#define CTRL_SHIM_FLOW_WATCH_H

#include <stdbool.h>

#include "dpif.h"
#include "openvswitch/types.h"

struct netdev;

struct flow_watch {
    struct netdev *netdev;          /* A reference; NULL until flow_get() is called. */
    ovs_u128 mega_ufid;             /* This and the statistics: of the last call. */
    struct dpif_flow_stats stats;
};

/* One at a time in each thread. The end gives the reference back, and the watch is as new. */
void flow_watch_begin(struct flow_watch *);
void flow_watch_end(struct flow_watch *);

/* Whether this thread watches. */
bool flow_watch_active(void);

/* By flow_get(). */
void flow_watch_note(struct netdev *, const ovs_u128 *mega_ufid, const struct dpif_flow_stats *);

#endif
