/* See flow_watch.h. */
#include <config.h>

#include "shim/flow_watch.h"

#include "dpif-netdev-private-flow.h"
#include "netdev.h"
#include "openvswitch/thread.h"
#include "util.h"

static __thread struct flow_watch *current;

/* Watches that have a flow, by its ufid. Innermost locks: whoever holds one takes no other. */
enum { N_SHARDS = 64 };
static struct shard {
    struct ovs_mutex lock;
    struct ovs_list watches;        /* Empty: not yet initialized, or initialized. */
    ATOMIC(unsigned int) n_watches; /* Of the list; written with the lock. */
} shards[N_SHARDS] = {[0 ... N_SHARDS - 1] = {.lock = OVS_MUTEX_INITIALIZER}};

static struct shard *
shard_of(const ovs_u128 *mega_ufid)
{
    return &shards[mega_ufid->u32[0] % N_SHARDS];
}

/* With the shard's lock. */
static struct ovs_list *
watches_of(struct shard *shard)
{
    if (OVS_UNLIKELY(!shard->watches.next)) {
        ovs_list_init(&shard->watches);
    }
    return &shard->watches;
}

static void
enlist(struct flow_watch *watch)
{
    struct shard *shard = shard_of(&watch->mega_ufid);
    unsigned int n;

    ovs_mutex_lock(&shard->lock);
    ovs_list_push_back(watches_of(shard), &watch->node);
    atomic_add(&shard->n_watches, 1, &n);
    ovs_mutex_unlock(&shard->lock);
}

/* Mostly there are none, and each new megaflow asks twice. What this says without the lock is what an empty list says
 * with it: a watch that is enlisted now comes later. One that was there when the ufid's lock was taken is seen. */
static bool
has_none(struct shard *shard)
{
    unsigned int n;

    atomic_read(&shard->n_watches, &n);
    return n == 0;
}

/* False: a rule was left to it meanwhile. */
static bool
delist_unless_left(struct flow_watch *watch)
{
    struct shard *shard = shard_of(&watch->mega_ufid);
    unsigned int n;
    bool left;

    ovs_mutex_lock(&shard->lock);
    left = watch->rule == WATCHED_RULE_LEFT;
    if (!left) {
        ovs_list_remove(&watch->node);
        atomic_sub(&shard->n_watches, 1, &n);
    }
    ovs_mutex_unlock(&shard->lock);
    return !left;
}

static bool
is_its_own(const struct flow_watch *watch)
{
    return watch->rule == WATCHED_RULE_ITS_OWN || watch->rule == WATCHED_RULE_LEFT;
}

void
flow_watch_begin(struct flow_watch *watch)
{
    *watch = (struct flow_watch) {.netdev = NULL};
    current = watch;
}

void
flow_watch_pause(void)
{
    current = NULL;
}

bool
flow_watch_end(struct flow_watch *watch)
{
    if (current == watch) {
        current = NULL;
    }
    if (watch->flow && !delist_unless_left(watch)) {
        return false;
    }
    netdev_close(watch->netdev);
    return true;
}

bool
flow_watch_active(void)
{
    return current != NULL;
}

struct flow_watch *
flow_watch_note(struct netdev *netdev, const struct dp_netdev_flow *flow, const struct dpif_flow_stats *stats)
{
    struct flow_watch *watch = current;

    if (!watch) {
        return NULL;
    }
    if (watch->flow != flow) {
        if (watch->flow && !delist_unless_left(watch)) {
            return watch;
        }
        if (watch->netdev != netdev) {
            netdev_close(watch->netdev);
            watch->netdev = netdev_ref(netdev);
        }
        watch->flow = flow;
        watch->mega_ufid = flow->mega_ufid;
        watch->rule = WATCHED_RULE_ITS_OWN;
        enlist(watch);
    }
    watch->stats = *stats;
    return NULL;
}

void
flow_watch_put(const struct netdev *netdev, const struct dp_netdev_flow *flow)
{
    struct shard *shard = shard_of(&flow->mega_ufid);
    struct flow_watch *watch;

    if (has_none(shard)) {
        return;
    }
    ovs_mutex_lock(&shard->lock);
    LIST_FOR_EACH (watch, node, watches_of(shard)) {
        if (watch->flow != flow && watch->netdev == netdev && is_its_own(watch)
            && ovs_u128_equals(watch->mega_ufid, flow->mega_ufid)) {
            watch->rule = WATCHED_RULE_ANOTHERS;
        }
    }
    ovs_mutex_unlock(&shard->lock);
}

bool
flow_watch_leave(const struct netdev *netdev, const struct dp_netdev_flow *flow)
{
    struct shard *shard = shard_of(&flow->mega_ufid);
    struct flow_watch *watch;
    bool left = false;

    ovs_mutex_lock(&shard->lock);
    LIST_FOR_EACH (watch, node, watches_of(shard)) {
        if (watch->flow == flow && watch->netdev == netdev && is_its_own(watch)) {
            watch->rule = WATCHED_RULE_LEFT;
            left = true;
            break;
        }
    }
    ovs_mutex_unlock(&shard->lock);
    return left;
}

const struct dp_netdev_flow *
flow_watch_left(const struct netdev *netdev, const ovs_u128 *mega_ufid)
{
    struct shard *shard = shard_of(mega_ufid);
    const struct dp_netdev_flow *flow = NULL;
    struct flow_watch *watch;

    if (has_none(shard)) {
        return NULL;
    }
    ovs_mutex_lock(&shard->lock);
    LIST_FOR_EACH (watch, node, watches_of(shard)) {
        if (watch->netdev == netdev && watch->rule == WATCHED_RULE_LEFT
            && ovs_u128_equals(watch->mega_ufid, *mega_ufid)) {
            flow = watch->flow;
            break;
        }
    }
    ovs_mutex_unlock(&shard->lock);
    return flow;
}

void
flow_watch_deleted(const struct netdev *netdev, const struct dp_netdev_flow *flow, const struct ovsdr_flow_stats *last)
{
    struct shard *shard = shard_of(&flow->mega_ufid);
    struct flow_watch *watch;

    ovs_mutex_lock(&shard->lock);
    LIST_FOR_EACH (watch, node, watches_of(shard)) {
        if (watch->flow == flow && watch->netdev == netdev && is_its_own(watch)) {
            watch->rule = WATCHED_RULE_GONE;
            watch->last = *last;
        }
    }
    ovs_mutex_unlock(&shard->lock);
}

enum watched_rule
flow_watch_rule(const struct flow_watch *watch)
{
    struct shard *shard = shard_of(&watch->mega_ufid);
    enum watched_rule rule;

    ovs_mutex_lock(&shard->lock);
    rule = watch->rule;
    ovs_mutex_unlock(&shard->lock);
    return rule;
}
