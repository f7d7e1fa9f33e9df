/* See deletion.h. */
#include <config.h>

#include "shim/deletion.h"

#include <time.h>

#include "ctrl/flow.h"
#include "netdev-offload.h"
#include "netlink.h"
#include "odp-netlink.h"
#include "odp-util.h"
#include "openvswitch/ofpbuf.h"
#include "openvswitch/vlog.h"
#include "shim/flow_api.h"
#include "shim/flow_watch.h"
#include "shim/gate.h"
#include "shim/netdev_dr.h"
#include "shim/real.h"
#include "util.h"

VLOG_DEFINE_THIS_MODULE(deletion);

static struct vlog_rate_limit limit = VLOG_RATE_LIMIT_INIT(1, 5);

/* The main thread, which changes ports, may wait for this thread in turn. */
enum { PORTS_MS = 20 };

static bool
is_dr_port(odp_port_t odp_port, const char *dpif_type_name)
{
    struct netdev *netdev = netdev_ports_get(odp_port, dpif_type_name);
    bool is_dr = netdev && is_netdev_dr(netdev);

    netdev_close(netdev);
    return is_dr;
}

static bool
is_deletion_of_ours(const struct dpif *dpif, const struct dpif_op *op)
{
    const struct nlattr *in_port;

    if (op->type != DPIF_OP_FLOW_DEL) {
        return false;
    }
    in_port = nl_attr_find__(op->flow_del.key, op->flow_del.key_len, OVS_KEY_ATTR_IN_PORT);
    return in_port && is_dr_port(nl_attr_get_odp_port(in_port), dpif_normalize_type(dpif_type(dpif)));
}

/* Makes dpif-netdev ask flow_get() in this thread, so that its watch learns the megaflow. False: there is no such flow. */
static bool
ask(struct dpif *dpif, const struct dpif_flow_del *del)
{
    uint64_t stub[4096 / 8];
    struct ofpbuf buffer;
    struct dpif_flow flow;
    struct dpif_op op = {.type = DPIF_OP_FLOW_GET};
    struct dpif_op *ops = &op;

    ofpbuf_use_stub(&buffer, stub, sizeof stub);
    op.flow_get = (struct dpif_flow_get) {
        .key = del->key, .key_len = del->key_len, .ufid = del->ufid, .pmd_id = del->pmd_id,
        .buffer = &buffer, .flow = &flow,
    };
    real_dpif_operate(dpif, &ops, 1, DPIF_OFFLOAD_AUTO);
    ofpbuf_uninit(&buffer);
    return !op.error;
}

/* dpif-netdev does not ask while the datapath's ports are being changed. Not xnanosleep(): a revalidator may be in the
 * middle of what RCU protects. */
static void
ask_until_answered(struct dpif *dpif, const struct dpif_flow_del *del, const struct flow_watch *watch)
{
    for (int ms = 0; ms < PORTS_MS; ms++) {
        if (!ask(dpif, del) || watch->netdev) {
            return;
        }
        nanosleep(&(struct timespec) {.tv_nsec = 1000000}, NULL);
    }
    VLOG_WARN_RL(&limit, "the datapath's ports are being changed: a flow's last statistics may be short");
}

static void
correct(struct dpif_flow_stats *reply, const struct dpif_flow_stats *told, const struct ovsdr_flow_stats *last)
{
    if (reply) {
        reply->n_packets += last->packets - MIN(told->n_packets, last->packets);
        reply->n_bytes += last->bytes - MIN(told->n_bytes, last->bytes);
        reply->used = MAX(reply->used, last->used_ms);
    }
}

static void
delete_exactly(struct dpif *dpif, struct dpif_op *op, enum dpif_offload_type offload_type)
{
    struct flow_watch watch;
    struct ovsdr_flow_stats last;
    bool entered;

    flow_watch_begin(&watch);
    entered = gate_enter();
    ask_until_answered(dpif, &op->flow_del, &watch);
    real_dpif_operate(dpif, &op, 1, offload_type);
    if (!op->error && watch.netdev && flow_api_del_dead(watch.netdev, &watch.mega_ufid, &last)) {
        correct(op->flow_del.stats, &watch.stats, &last);
    }
    gate_leave(entered);
    flow_watch_end(&watch);
}

static bool
is_modification(const struct dpif_op *op)
{
    return op->type == DPIF_OP_FLOW_PUT && op->flow_put.flags & DPIF_FP_MODIFY;
}

static void
operate_gated(struct dpif *dpif, struct dpif_op *op, enum dpif_offload_type offload_type)
{
    bool entered = gate_enter();

    real_dpif_operate(dpif, &op, 1, offload_type);
    gate_leave(entered);
}

void
deletion_operate(struct dpif *dpif, struct dpif_op **ops, size_t n_ops, enum dpif_offload_type offload_type)
{
    size_t done = 0;

    for (size_t i = 0; i < n_ops; i++) {
        bool deletion = is_deletion_of_ours(dpif, ops[i]);

        if (!deletion && !is_modification(ops[i])) {
            continue;
        }
        if (i > done) {
            real_dpif_operate(dpif, ops + done, i - done, offload_type);
        }
        if (deletion) {
            delete_exactly(dpif, ops[i], offload_type);
        } else {
            operate_gated(dpif, ops[i], offload_type);
        }
        done = i + 1;
    }
    if (n_ops > done) {
        real_dpif_operate(dpif, ops + done, n_ops - done, offload_type);
    }
}
