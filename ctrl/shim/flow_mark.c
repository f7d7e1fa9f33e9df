/* See flow_mark.h. */
#include <config.h>

#include "shim/flow_mark.h"

#include "ctrl/flow.h"
#include "hash.h"
#include "openvswitch/hmap.h"
#include "openvswitch/thread.h"
#include "ovs-rcu.h"
#include "shim/real.h"
#include "util.h"

/* A mark on its way back to its pool. */
struct freed_mark {
    struct id_fpool *pool;
    unsigned int user;
    uint32_t mark;
};

struct held_mark {
    struct hmap_node node;
    uint32_t mark;
    unsigned int n_holders;
    struct freed_mark *freed;       /* NULL: dpif-netdev has not freed it. */
};

static struct ovs_mutex mutex = OVS_MUTEX_INITIALIZER;
static struct hmap held_marks = HMAP_INITIALIZER(&held_marks);      /* With the mutex. */

/* With the mutex. */
static struct held_mark *
find(uint32_t mark)
{
    struct held_mark *held;

    HMAP_FOR_EACH_WITH_HASH (held, node, hash_int(mark, 0), &held_marks) {
        if (held->mark == mark) {
            return held;
        }
    }
    return NULL;
}

static void
give_back(struct freed_mark *freed)
{
    real_id_fpool_free_id(freed->pool, freed->user, freed->mark);
    free(freed);
}

/* ovsrcu_postpone() makes its thread one that every grace period waits for. One that OVS has not started never says
 * that it is quiescent, so it must not stay one. */
static void
give_back_after_grace_period(struct freed_mark *freed)
{
    bool foreign = ovsrcu_is_quiescent();

    ovsrcu_postpone(give_back, freed);
    if (foreign) {
        ovsrcu_quiesce_start();
    }
}

static void
hold(uint32_t mark)
{
    struct held_mark *held;

    ovs_mutex_lock(&mutex);
    held = find(mark);
    if (!held) {
        held = xzalloc(sizeof *held);
        held->mark = mark;
        hmap_insert(&held_marks, &held->node, hash_int(mark, 0));
    }
    held->n_holders++;
    ovs_mutex_unlock(&mutex);
}

static void
let_go(uint32_t mark)
{
    struct freed_mark *freed = NULL;
    struct held_mark *held;

    ovs_mutex_lock(&mutex);
    held = find(mark);
    if (!--held->n_holders) {
        freed = held->freed;
        hmap_remove(&held_marks, &held->node);
        free(held);
    }
    ovs_mutex_unlock(&mutex);
    if (freed) {
        give_back_after_grace_period(freed);
    }
}

void
flow_mark_free(struct id_fpool *pool, unsigned int user, uint32_t mark)
{
    struct freed_mark *freed = xmalloc(sizeof *freed);
    struct held_mark *held;

    *freed = (struct freed_mark) {.pool = pool, .user = user, .mark = mark};
    ovs_mutex_lock(&mutex);
    held = find(mark);
    if (held) {
        held->freed = freed;
    }
    ovs_mutex_unlock(&mutex);
    if (!held) {
        give_back_after_grace_period(freed);
    }
}

void
flow_mark_init(void)
{
    ovsdr_on_marks(hold, let_go);
}
