/* A thread's look at a flow, and what becomes of the flow's rule meanwhile.
 *
 * dpif-netdev does not tell its callers in which netdev a flow is and by which ufid. But it asks flow_get() in the
 * thread that asks dpif-netdev: a thread that watches learns both, and what the NIC had counted at that moment.
 *
 * The ufid does not say whose rule is in the NIC. When a flow is deleted, the next packet makes a flow with the same
 * ufid, and OVS's offload thread takes the one's rule out and puts the other's in, whatever the thread that deleted is
 * doing. So the provider tells each watch what it does with the rule of the flow that is watched. Flows are told apart
 * by their address, which is no other flow's while the watching thread does not quiesce (ovs-rcu.h).
 *
 * Threads: a watch is its thread's own. The provider's calls come from any thread; those for one ufid exclude one
 * another by the provider's lock.
 */
#ifndef CTRL_SHIM_FLOW_WATCH_H
#define CTRL_SHIM_FLOW_WATCH_H

#include <stdbool.h>

#include "ctrl/flow.h"
#include "dpif.h"
#include "openvswitch/list.h"
#include "openvswitch/types.h"

struct dp_netdev_flow;
struct netdev;

enum watched_rule {
    WATCHED_RULE_ITS_OWN,       /* If there is a rule, it is that of the flow that is watched. */
    WATCHED_RULE_LEFT,          /* The same, and the provider, asked to take it out, leaves that to this thread. */
    WATCHED_RULE_GONE,          /* The provider took it out; `last` is what it counted. */
    WATCHED_RULE_ANOTHERS,      /* Another flow with this ufid has put its own. */
};

struct flow_watch {
    /* Of the last call of flow_get(). */
    struct netdev *netdev;              /* A reference; NULL until flow_get() is called. */
    const struct dp_netdev_flow *flow;
    ovs_u128 mega_ufid;
    struct dpif_flow_stats stats;

    /* For the provider. */
    struct ovs_list node;
    enum watched_rule rule;
    struct ovsdr_flow_stats last;
};

/* From the beginning to the pause, the thread's calls of flow_get() go into this watch: one at a time in each thread.
 * From the first such call to the end the provider tells it of the rule: any number. The thread must not quiesce in
 * between. The end gives the reference back; false: the watch goes on, since a rule was left to it (use
 * flow_api_end_watch()). */
void flow_watch_begin(struct flow_watch *);
void flow_watch_pause(void);
bool flow_watch_end(struct flow_watch *);

/* Whether this thread watches, and has not paused. */
bool flow_watch_active(void);

/* By the provider: flow_get() for this flow in this thread. Not NULL: nothing is noted yet, since the rule of another
 * flow was left to this watch; once it has been taken out, note again. */
struct flow_watch *flow_watch_note(struct netdev *, const struct dp_netdev_flow *, const struct dpif_flow_stats *);

/* By the provider, with its lock of the ufid: the flow is about to have a rule of its own. */
void flow_watch_put(const struct netdev *, const struct dp_netdev_flow *);

/* By the provider: a rule of this flow is left to a thread that watches it. False: none does. */
bool flow_watch_leave(const struct netdev *, const struct dp_netdev_flow *);

/* By the provider, with its lock of the ufid: the flow whose rule is left to a watching thread, and still there. */
const struct dp_netdev_flow *flow_watch_left(const struct netdev *, const ovs_u128 *mega_ufid);

/* By the provider, with its lock of the ufid: it took out the flow's rule, which had counted this. */
void flow_watch_deleted(const struct netdev *, const struct dp_netdev_flow *, const struct ovsdr_flow_stats *last);

/* With the provider's lock of the ufid. */
enum watched_rule flow_watch_rule(const struct flow_watch *);

#endif
