/* See mega_ufid.h. */
#include <config.h>

#include "shim/mega_ufid.h"

#include "dpif-netdev-private-flow.h"
#include "flow.h"
#include "openvswitch/match.h"
#include "openvswitch/ofpbuf.h"
#include "shim/flow_api.h"
#include "shim/flow_watch.h"
#include "shim/real.h"
#include "util.h"

/* What this thread adds to the datapath just now; NULL when its ufid is made. */
static __thread const struct match *added;
static __thread struct flowmap added_fields;

void
mega_ufid_note_match(const struct flow *flow, const struct flowmap *fields)
{
    added = CONTAINER_OF(flow, struct match, flow);
    added_fields = *fields;
}

void
mega_ufid_hash(const void *key, size_t size, ovs_u128 *hash)
{
    const struct match *match = added;
    struct {
        struct flow key, mask;
        uint64_t pmd_id;
    } megaflow;
    size_t index;

    added = NULL;
    if (!match || size != sizeof megaflow.key) {
        real_odp_flow_key_hash(key, size, hash);
        return;
    }
    memcpy(&megaflow.key, key, size);
    memset(&megaflow.mask, 0, sizeof megaflow.mask);
    FLOWMAP_FOR_EACH_INDEX (index, added_fields) {
        *flow_u64_lvalue(&megaflow.mask, index) = flow_u64_value(&match->wc.masks, index);
    }
    /* The ufid is made in its place, in the flow. */
    megaflow.pmd_id = CONTAINER_OF(hash, struct dp_netdev_flow, mega_ufid)->pmd_id;
    real_odp_flow_key_hash(&megaflow, sizeof megaflow, hash);
}

bool
mega_ufid_find(struct dpif *dpif, const ovs_u128 *ufid, ovs_u128 *mega_ufid)
{
    uint64_t stub[4096 / 8];
    struct flow_watch watch;
    struct ofpbuf buffer;
    struct dpif_flow flow;
    bool found;
    struct dpif_op op = {
        .type = DPIF_OP_FLOW_GET,
        .flow_get = {.ufid = ufid, .pmd_id = PMD_ID_NULL, .buffer = &buffer, .flow = &flow},
    };
    struct dpif_op *ops = &op;

    ofpbuf_use_stub(&buffer, stub, sizeof stub);
    flow_watch_begin(&watch);
    real_dpif_operate(dpif, &ops, 1, DPIF_OFFLOAD_AUTO);
    *mega_ufid = watch.mega_ufid;
    found = watch.netdev != NULL;
    flow_api_end_watch(&watch);
    ofpbuf_uninit(&buffer);
    return found;
}
