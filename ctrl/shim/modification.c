/* See modification.h. */
#include <config.h>

#include "shim/modification.h"

#include "dpif-netdev-private-dpcls.h"
#include "dpif-netdev-private-flow.h"
#include "dpif-netdev.h"
#include "shim/flow_api.h"
#include "shim/flow_ask.h"
#include "shim/flow_watch.h"
#include "shim/real.h"
#include "util.h"

/* The one that this thread modifies. */
struct wanted {
    const ovs_u128 *ufid;
    const struct dp_netdev_flow *flow;      /* NULL: not known yet. */
    bool found_another;
};
static __thread struct wanted *wanted;

bool
is_modification(const struct dpif_op *op)
{
    return op->type == DPIF_OP_FLOW_PUT && op->flow_put.flags & DPIF_FP_MODIFY;
}

struct dpcls_rule *
modification_find(struct dpcls_rule *found)
{
    if (!wanted || !found
        || ovs_u128_equals(CONTAINER_OF(found, struct dp_netdev_flow, cr)->ufid, *wanted->ufid)) {
        return found;
    }
    wanted->found_another = true;
    if (!wanted->flow || wanted->flow->dead) {
        return NULL;
    }
    return CONST_CAST(struct dpcls_rule *, &wanted->flow->cr);
}

/* The flow of the operation's ufid. NULL and true: it is in no netdev of ours; false: it has gone. */
static bool
find_flow(struct dpif *dpif, const struct dpif_flow_put *put, const struct dp_netdev_flow **flow)
{
    const struct dpif_flow_get get = {
        .key = put->key, .key_len = put->key_len, .ufid = put->ufid, .pmd_id = put->pmd_id,
    };
    struct flow_watch watch;
    bool is_there;

    flow_watch_begin(&watch);
    is_there = flow_ask(dpif, &get);
    flow_watch_pause();
    *flow = watch.netdev ? watch.flow : NULL;
    flow_api_end_watch(&watch);
    return is_there;
}

static void
modify(struct dpif *dpif, struct dpif_op *op, enum dpif_offload_type offload_type)
{
    struct wanted one = {.ufid = op->flow_put.ufid};

    wanted = &one;
    real_dpif_operate(dpif, &op, 1, offload_type);
    if (one.found_another) {
        bool is_there = find_flow(dpif, &op->flow_put, &one.flow);

        if (!one.flow) {
            wanted = NULL;
        }
        if (is_there) {
            real_dpif_operate(dpif, &op, 1, offload_type);
        }
    }
    wanted = NULL;
}

/* Without the thread's number it is of every thread that has a megaflow with this ufid. */
static bool
names_one(const struct dpif_op *op)
{
    return is_modification(op) && op->flow_put.ufid && op->flow_put.pmd_id != PMD_ID_NULL;
}

void
modification_operate(struct dpif *dpif, struct dpif_op **ops, size_t n_ops, enum dpif_offload_type offload_type)
{
    size_t done = 0;

    for (size_t i = 0; i < n_ops; i++) {
        if (names_one(ops[i])) {
            if (i > done) {
                real_dpif_operate(dpif, ops + done, i - done, offload_type);
            }
            modify(dpif, ops[i], offload_type);
            done = i + 1;
        }
    }
    if (n_ops > done) {
        real_dpif_operate(dpif, ops + done, n_ops - done, offload_type);
    }
}
