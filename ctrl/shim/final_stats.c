/* Interposes dpif_operate() and dpif_run(). See final_stats.h. */
#include <config.h>

#include "shim/final_stats.h"

#include <dlfcn.h>
#include <pthread.h>
#include <time.h>

#include "ctrl/flow.h"
#include "dpif.h"
#include "netdev-offload.h"
#include "netlink.h"
#include "odp-netlink.h"
#include "odp-util.h"
#include "openvswitch/ofpbuf.h"
#include "openvswitch/vlog.h"
#include "shim/adopt.h"
#include "shim/flow_api.h"
#include "shim/netdev_dr.h"
#include "util.h"

VLOG_DEFINE_THIS_MODULE(final_stats);

static struct vlog_rate_limit limit = VLOG_RATE_LIMIT_INIT(1, 5);

static __thread struct final_stats_watch *watch;

/* Held by dpif_run() alone, by deletions together. Prefers dpif_run(), which must not starve. */
static pthread_rwlock_t gate = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
static __thread bool in_dpif_run;

/* For both kinds of waiting. The main thread may wait for this thread in turn. */
enum { GATE_MS = 100, PORTS_MS = 20 };

void *
final_stats_next_definition(const char *name)
{
    void *function = dlsym(RTLD_NEXT, name);

    ovs_assert(function);
    return function;
}

void
final_stats_real_operate(struct dpif *dpif, struct dpif_op **ops, size_t n_ops, enum dpif_offload_type offload_type)
{
    static void (*real)(struct dpif *, struct dpif_op **, size_t, enum dpif_offload_type);

    if (!real) {
        real = final_stats_next_definition("dpif_operate");
    }
    real(dpif, ops, n_ops, offload_type);
}

void
final_stats_watch_begin(struct final_stats_watch *watched)
{
    *watched = (struct final_stats_watch) {.netdev = NULL};
    watch = watched;
}

void
final_stats_watch_end(struct final_stats_watch *watched)
{
    watch = NULL;
    netdev_close(watched->netdev);
    watched->netdev = NULL;
}

void
final_stats_note_get(struct netdev *netdev, const ovs_u128 *mega_ufid, const struct dpif_flow_stats *stats)
{
    if (watch) {
        if (!watch->netdev) {
            watch->netdev = netdev_ref(netdev);
        }
        watch->mega_ufid = *mega_ufid;
        watch->stats = *stats;
    }
}

static bool
gate_enter(void)
{
    struct timespec until;

    if (in_dpif_run) {
        return false;
    }
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += GATE_MS * 1000000L;
    if (until.tv_nsec >= 1000000000L) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000L;
    }
    if (pthread_rwlock_clockrdlock(&gate, CLOCK_MONOTONIC, &until)) {
        VLOG_WARN_RL(&limit, "the main thread is busy: a flow's last statistics may be short");
        return false;
    }
    return true;
}

static void
gate_leave(bool entered)
{
    if (entered) {
        pthread_rwlock_unlock(&gate);
    }
}

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

/* Makes dpif-netdev ask flow_get() in this thread, so that `watch` learns the megaflow. False: there is no such flow. */
static bool
ask(struct dpif *dpif, const struct nlattr *key, size_t key_len, const ovs_u128 *ufid, unsigned int pmd_id)
{
    uint64_t stub[4096 / 8];
    struct ofpbuf buffer;
    struct dpif_flow flow;
    struct dpif_op op = {.type = DPIF_OP_FLOW_GET};
    struct dpif_op *ops = &op;

    ofpbuf_use_stub(&buffer, stub, sizeof stub);
    op.flow_get = (struct dpif_flow_get) {
        .key = key, .key_len = key_len, .ufid = ufid, .pmd_id = pmd_id, .buffer = &buffer, .flow = &flow,
    };
    final_stats_real_operate(dpif, &ops, 1, DPIF_OFFLOAD_AUTO);
    ofpbuf_uninit(&buffer);
    return !op.error;
}

/* dpif-netdev does not ask while the datapath's ports are being changed. Not xnanosleep(): a revalidator may be in the
 * middle of what RCU protects. */
static void
ask_until_answered(struct dpif *dpif, const struct dpif_flow_del *del)
{
    for (int ms = 0; ms < PORTS_MS; ms++) {
        if (!ask(dpif, del->key, del->key_len, del->ufid, del->pmd_id) || watch->netdev) {
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
    struct final_stats_watch watched;
    struct ovsdr_flow_stats last;
    bool entered;

    final_stats_watch_begin(&watched);
    entered = gate_enter();
    ask_until_answered(dpif, &op->flow_del);
    final_stats_real_operate(dpif, &op, 1, offload_type);
    if (!op->error && watched.netdev && flow_api_del_dead(watched.netdev, &watched.mega_ufid, &last)) {
        correct(op->flow_del.stats, &watched.stats, &last);
    }
    gate_leave(entered);
    final_stats_watch_end(&watched);
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

    final_stats_real_operate(dpif, &op, 1, offload_type);
    gate_leave(entered);
}

/* Takes the place of libopenvswitch's, in calls across libraries. */
void
dpif_operate(struct dpif *dpif, struct dpif_op **ops, size_t n_ops, enum dpif_offload_type offload_type)
{
    size_t done = 0;

    if (netdev_is_flow_api_enabled() && !watch) {
        for (size_t i = 0; i < n_ops; i++) {
            bool deletion = is_deletion_of_ours(dpif, ops[i]);

            if (!deletion && !is_modification(ops[i])) {
                continue;
            }
            if (i > done) {
                final_stats_real_operate(dpif, ops + done, i - done, offload_type);
            }
            if (deletion) {
                delete_exactly(dpif, ops[i], offload_type);
            } else {
                operate_gated(dpif, ops[i], offload_type);
            }
            done = i + 1;
        }
    }
    if (n_ops > done) {
        final_stats_real_operate(dpif, ops + done, n_ops - done, offload_type);
    }
}

/* Takes the place of libopenvswitch's: the main thread receives and classifies packets in there. */
bool
dpif_run(struct dpif *dpif)
{
    static bool (*real)(struct dpif *);
    static bool adopted;
    bool result;

    if (!real) {
        real = final_stats_next_definition("dpif_run");
    }
    if (!netdev_is_flow_api_enabled()) {
        return real(dpif);
    }
    pthread_rwlock_wrlock(&gate);
    in_dpif_run = true;
    if (!adopted) {
        adopted = true;
        adopt_flows(dpif);
    }
    result = real(dpif);
    in_dpif_run = false;
    pthread_rwlock_unlock(&gate);
    return result;
}

bool
final_stats_mega_ufid(struct dpif *dpif, const ovs_u128 *ufid, ovs_u128 *mega_ufid)
{
    struct final_stats_watch watched;
    bool answered;

    final_stats_watch_begin(&watched);
    ask(dpif, NULL, 0, ufid, PMD_ID_NULL);
    *mega_ufid = watched.mega_ufid;
    answered = watched.netdev != NULL;
    final_stats_watch_end(&watched);
    return answered;
}
