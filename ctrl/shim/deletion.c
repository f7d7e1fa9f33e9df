/* See deletion.h. */
#include <config.h>

#include "shim/deletion.h"

#include <time.h>

#include "netdev-offload.h"
#include "netlink.h"
#include "odp-netlink.h"
#include "odp-util.h"
#include "openvswitch/ofpbuf.h"
#include "openvswitch/vlog.h"
#include "shim/flow_api.h"
#include "shim/flow_ask.h"
#include "shim/flow_watch.h"
#include "shim/gate.h"
#include "shim/modification.h"
#include "shim/real.h"
#include "util.h"

VLOG_DEFINE_THIS_MODULE(deletion);

static struct vlog_rate_limit limit = VLOG_RATE_LIMIT_INIT(1, 5);

/* The main thread, which changes ports, may wait for this thread in turn. */
enum { PORTS_MS = 20 };

/* What one call of deletion_operate() knows. */
struct batch {
    struct dpif *dpif;
    enum dpif_offload_type offload_type;
    enum gate_entry gate;
    unsigned int patience_ms;   /* Left to wait for the datapath's ports. */

    /* The port that was looked up last; most operations of a batch are of few ports. */
    odp_port_t port;
    bool port_is_ours;

    struct deletion {
        struct dpif_op *op;
        struct flow_watch watch;
    } deletions[FLOW_API_MANY];
    size_t n;
};

static bool
is_port_of_ours(struct batch *batch, odp_port_t odp_port)
{
    if (odp_port != batch->port) {
        struct netdev *netdev = netdev_ports_get(odp_port, dpif_normalize_type(dpif_type(batch->dpif)));

        batch->port = odp_port;
        batch->port_is_ours = netdev && flow_api_takes(netdev);
        netdev_close(netdev);
    }
    return batch->port_is_ours;
}

static bool
is_of_ours(struct batch *batch, const struct nlattr *key, size_t key_len)
{
    const struct nlattr *in_port = nl_attr_find__(key, key_len, OVS_KEY_ATTR_IN_PORT);

    return in_port && is_port_of_ours(batch, nl_attr_get_odp_port(in_port));
}

static bool
is_deletion_of_ours(struct batch *batch, const struct dpif_op *op)
{
    return op->type == DPIF_OP_FLOW_DEL && is_of_ours(batch, op->flow_del.key, op->flow_del.key_len);
}

static bool
is_modification_of_ours(struct batch *batch, const struct dpif_op *op)
{
    return is_modification_of_one(op) && is_of_ours(batch, op->flow_put.key, op->flow_put.key_len);
}

static bool
is_modification(const struct dpif_op *op)
{
    return op->type == DPIF_OP_FLOW_PUT && op->flow_put.flags & DPIF_FP_MODIFY;
}

/* Without the gate the datapath's ports may be about to change, and dpif-netdev does not ask flow_get() then: see to
 * it that the flow is known before it is deleted. */
static void
ask_until_answered(struct batch *batch, const struct dpif_flow_del *del, const struct flow_watch *watch)
{
    const struct dpif_flow_get get = {
        .key = del->key, .key_len = del->key_len, .ufid = del->ufid, .pmd_id = del->pmd_id,
    };

    if (!flow_ask(batch->dpif, &get, watch, &batch->patience_ms)) {
        VLOG_WARN_RL(&limit, "the datapath's ports are being changed: flows' last statistics may be short");
    }
}

/* Deletes the flow in dpif-netdev, which asks flow_get() of it once more. From then on the provider tells the watch of
 * the flow's rule. */
static void
delete_watched(struct batch *batch, struct dpif_op *op)
{
    struct deletion *deletion = &batch->deletions[batch->n++];

    deletion->op = op;
    flow_watch_begin(&deletion->watch);
    if (batch->gate != GATE_ENTERED) {
        ask_until_answered(batch, &op->flow_del, &deletion->watch);
    }
    real_dpif_operate(batch->dpif, &op, 1, batch->offload_type);
    flow_watch_pause();
}

static void
correct(const struct deletion *deletion)
{
    struct dpif_flow_stats *reply = deletion->op->flow_del.stats;
    const struct dpif_flow_stats *told = &deletion->watch.stats;
    const struct ovsdr_flow_stats *last = &deletion->watch.last;

    if (reply && !deletion->op->error && deletion->watch.rule == WATCHED_RULE_GONE) {
        reply->n_packets += last->packets - MIN(told->n_packets, last->packets);
        reply->n_bytes += last->bytes - MIN(told->n_bytes, last->bytes);
        reply->used = MAX(reply->used, last->used_ms);
    }
}

/* Takes the rules of what was deleted out of the NIC, all at once. */
static void
finish(struct batch *batch)
{
    struct flow_watch *watches[FLOW_API_MANY];
    size_t n_watches = 0;

    for (size_t i = 0; i < batch->n; i++) {
        if (!batch->deletions[i].op->error && batch->deletions[i].watch.netdev) {
            watches[n_watches++] = &batch->deletions[i].watch;
        }
    }
    if (n_watches) {
        flow_api_del_watched(watches, n_watches);
    }
    for (size_t i = 0; i < batch->n; i++) {
        flow_api_end_watch(&batch->deletions[i].watch);
        correct(&batch->deletions[i]);
    }
    batch->n = 0;
}

static void
operate(struct batch *batch, struct dpif_op **ops, size_t n_ops)
{
    size_t done = 0;

    for (size_t i = 0; i < n_ops; i++) {
        bool deletes = is_deletion_of_ours(batch, ops[i]);

        if (!deletes && !is_modification_of_ours(batch, ops[i])) {
            continue;
        }
        if (i > done) {
            real_dpif_operate(batch->dpif, ops + done, i - done, batch->offload_type);
        }
        if (deletes) {
            if (batch->n == FLOW_API_MANY) {
                finish(batch);
            }
            delete_watched(batch, ops[i]);
        } else {
            modification_operate(batch->dpif, ops[i], batch->offload_type, &batch->patience_ms);
        }
        done = i + 1;
    }
    if (n_ops > done) {
        real_dpif_operate(batch->dpif, ops + done, n_ops - done, batch->offload_type);
    }
    finish(batch);
}

void
deletion_operate(struct dpif *dpif, struct dpif_op **ops, size_t n_ops, enum dpif_offload_type offload_type)
{
    struct batch batch;
    bool gated = false;

    batch.dpif = dpif;
    batch.offload_type = offload_type;
    batch.port = ODPP_NONE;
    batch.port_is_ours = false;
    batch.n = 0;
    for (size_t i = 0; i < n_ops && !gated; i++) {
        gated = is_modification(ops[i]) || is_deletion_of_ours(&batch, ops[i]);
    }
    if (gated) {
        batch.gate = gate_enter();
        batch.patience_ms = batch.gate == GATE_TIMED_OUT ? PORTS_MS : 0;
        operate(&batch, ops, n_ops);
        gate_leave(batch.gate);
    } else {
        real_dpif_operate(dpif, ops, n_ops, offload_type);
    }
}
