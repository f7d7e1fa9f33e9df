/* See mega_ufid.h. */
#include <config.h>

#include "shim/mega_ufid.h"

#include "openvswitch/ofpbuf.h"
#include "shim/flow_watch.h"
#include "shim/real.h"

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
    flow_watch_end(&watch);
    ofpbuf_uninit(&buffer);
    return found;
}
