/* See flow_ask.h. */
#include <config.h>

#include "shim/flow_ask.h"

#include <time.h>

#include "openvswitch/ofpbuf.h"
#include "shim/flow_watch.h"
#include "shim/real.h"

/* False: there is no such flow. */
static bool
ask(struct dpif *dpif, const struct dpif_flow_get *get)
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

/* Not xnanosleep(): a revalidator may be in the middle of what RCU protects. */
bool
flow_ask(struct dpif *dpif, const struct dpif_flow_get *get, const struct flow_watch *watch, unsigned int *patience_ms)
{
    while (ask(dpif, get) && !watch->netdev) {
        if (!*patience_ms) {
            return false;
        }
        --*patience_ms;
        nanosleep(&(struct timespec) {.tv_nsec = 1000000}, NULL);
    }
    return true;
}
