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
    const struct dp_netdev_flow *flow;      /* NULL: it has gone, or dpif-netdev did not tell. */
};
static __thread const struct wanted *wanted;

bool
is_modification_of_one(const struct dpif_op *op)
{
    return op->type == DPIF_OP_FLOW_PUT && op->flow_put.flags & DPIF_FP_MODIFY && op->flow_put.ufid
           && op->flow_put.pmd_id != PMD_ID_NULL;
}

/* With the lock of the flows' thread. */
struct dpcls_rule *
modification_find(struct dpcls_rule *found)
{
    if (!wanted || !found
        || ovs_u128_equals(CONTAINER_OF(found, struct dp_netdev_flow, cr)->ufid, *wanted->ufid)) {
        return found;
    }
    return wanted->flow && !wanted->flow->dead ? CONST_CAST(struct dpcls_rule *, &wanted->flow->cr) : NULL;
}

void
modification_operate(struct dpif *dpif, struct dpif_op *op, enum dpif_offload_type offload_type,
                     unsigned int *patience_ms)
{
    const struct dpif_flow_put *put = &op->flow_put;
    const struct dpif_flow_get get = {
        .key = put->key, .key_len = put->key_len, .ufid = put->ufid, .pmd_id = put->pmd_id,
    };
    struct wanted one = {.ufid = put->ufid};
    struct flow_watch watch;

    flow_watch_begin(&watch);
    flow_ask(dpif, &get, &watch, patience_ms);
    flow_watch_pause();
    one.flow = watch.netdev ? watch.flow : NULL;
    wanted = &one;
    real_dpif_operate(dpif, &op, 1, offload_type);
    wanted = NULL;
    flow_api_end_watch(&watch);
}
