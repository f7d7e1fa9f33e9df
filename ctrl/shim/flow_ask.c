/* See flow_ask.h. */
#include <config.h>

#include "shim/flow_ask.h"

#include "openvswitch/ofpbuf.h"
#include "shim/real.h"

bool
flow_ask(struct dpif *dpif, const struct dpif_flow_get *get)
{
    uint64_t stub[4096 / 8];
    struct ofpbuf buffer;
    struct dpif_flow flow;
    struct dpif_op op = {.type = DPIF_OP_FLOW_GET};
    struct dpif_op *ops = &op;

    ofpbuf_use_stub(&buffer, stub, sizeof stub);
    op.flow_get = *get;
    op.flow_get.buffer = &buffer;
    op.flow_get.flow = &flow;
    real_dpif_operate(dpif, &ops, 1, DPIF_OFFLOAD_AUTO);
    ofpbuf_uninit(&buffer);
    return !op.error;
}
