/* See flow_mark.h. */
#include <config.h>

#include "shim/flow_mark.h"

#include "cmap.h"
#include "ctrl/flow.h"
#include "hash.h"
#include "openvswitch/thread.h"
#include "ovs-rcu.h"
#include "util.h"

struct resting_mark {
    struct cmap_node node;
    uint32_t mark;
};

static struct ovs_mutex mutex = OVS_MUTEX_INITIALIZER;
static struct cmap resting = CMAP_INITIALIZER;     /* Changed with the mutex. */

static void
has_rested(struct resting_mark *mark)
{
    ovs_mutex_lock(&mutex);
    cmap_remove(&resting, &mark->node, hash_int(mark->mark, 0));
    ovs_mutex_unlock(&mutex);
    ovsrcu_postpone(free, mark);
}

/* A mark may rest several times at once. */
static void
rest(uint32_t number)
{
    struct resting_mark *mark = xmalloc(sizeof *mark);

    mark->mark = number;
    ovs_mutex_lock(&mutex);
    cmap_insert(&resting, &mark->node, hash_int(number, 0));
    ovs_mutex_unlock(&mutex);
    ovsrcu_postpone(has_rested, mark);
}

bool
flow_mark_rests(uint32_t number)
{
    struct resting_mark *mark;

    CMAP_FOR_EACH_WITH_HASH (mark, node, hash_int(number, 0), &resting) {
        if (mark->mark == number) {
            return true;
        }
    }
    return false;
}

void
flow_mark_init(void)
{
    ovsdr_on_mark_gone(rest);
}
