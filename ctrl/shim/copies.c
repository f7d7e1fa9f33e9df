/* See copies.h. */
#include <config.h>

#include "shim/copies.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "coverage.h"
#include "ctrl/copies.h"
#include "dp-packet.h"
#include "dpif.h"
#include "flow.h"
#include "netlink.h"
#include "odp-netlink.h"
#include "openvswitch/poll-loop.h"
#include "openvswitch/thread.h"
#include "openvswitch/vlog.h"
#include "ovs-rcu.h"
#include "ovs-thread.h"
#include "packets.h"
#include "shim/netdev_dr_parts.h"
#include "shim/real.h"
#include "timeval.h"
#include "util.h"

VLOG_DEFINE_THIS_MODULE(dr_copies);

COVERAGE_DEFINE(dr_copies_executed);
COVERAGE_DEFINE(dr_copies_without_datapath);

/* Held while copies are executed. */
static struct ovs_mutex mutex = OVS_MUTEX_INITIALIZER;
static struct dpif *datapath OVS_GUARDED_BY(mutex);

/* Of the main thread: what it has made of `datapath`, and the threads, if it has started them. */
static struct dpif *shown;
static bool started;
static pthread_t receiver, tender;

static atomic_bool receiver_stops = ATOMIC_VAR_INIT(false), tender_stops = ATOMIC_VAR_INIT(false);

/* Commands of devices may take long, but no operator waits for ever, and init scripts kill what does not end. */
#define STOP_MS 3000

/* A copy that is being executed; what dpif_operate() is given points in here. */
struct execution {
    struct flow flow;
    struct output {                     /* An attribute. */
        struct nlattr header;
        uint32_t port;
    } outputs[OVSDR_MAX_ACTIONS];
    struct dpif_op op;
};
BUILD_ASSERT_DECL(sizeof(struct output) == NLA_HDRLEN + sizeof(odp_port_t));

static void
set_tunnel(struct flow_tnl *tunnel, const struct ovsdr_tunnel_fields *fields)
{
    tunnel->tun_id = fields->be_id;
    if (fields->ipv6) {
        memcpy(&tunnel->ipv6_src, fields->src, sizeof tunnel->ipv6_src);
        memcpy(&tunnel->ipv6_dst, fields->dst, sizeof tunnel->ipv6_dst);
    } else {
        memcpy(&tunnel->ip_src, fields->src, sizeof tunnel->ip_src);
        memcpy(&tunnel->ip_dst, fields->dst, sizeof tunnel->ip_dst);
    }
    tunnel->tp_src = fields->be_tp_src;
    tunnel->tp_dst = fields->be_tp_dst;
    tunnel->ip_tos = fields->tos;
    tunnel->ip_ttl = fields->ttl;
    tunnel->flags = (fields->flags & OVSDR_TUNNEL_CSUM ? FLOW_TNL_F_CSUM : 0)
                    | (fields->flags & OVSDR_TUNNEL_KEY ? FLOW_TNL_F_KEY : 0)
                    | (fields->flags & OVSDR_TUNNEL_OAM ? FLOW_TNL_F_OAM : 0);
}

static void
set_outputs(struct output *outputs, const struct ovsdr_copy *copy)
{
    for (size_t i = 0; i < copy->n_outputs; i++) {
        outputs[i].header.nla_len = sizeof *outputs;
        outputs[i].header.nla_type = OVS_ACTION_ATTR_OUTPUT;
        outputs[i].port = copy->outputs[i];
    }
}

static void
prepare(struct execution *execution, const struct ovsdr_copy *copy)
{
    struct dp_packet *packet = netdev_dr_packet_new(copy->data, copy->size);

    memset(&packet->md, 0, sizeof packet->md);
    pkt_metadata_init(&packet->md, u32_to_odp(copy->in_port));
    set_tunnel(&packet->md.tunnel, &copy->tunnel);
    flow_extract(packet, &execution->flow);
    if (!copy->actions) {
        set_outputs(execution->outputs, copy);
    }
    memset(&execution->op, 0, sizeof execution->op);
    execution->op.type = DPIF_OP_EXECUTE;
    execution->op.execute = (struct dpif_execute) {
        .actions = copy->actions ? ALIGNED_CAST(const struct nlattr *, copy->actions)
                                 : &execution->outputs[0].header,
        .actions_len = copy->actions ? copy->actions_size : copy->n_outputs * sizeof execution->outputs[0],
        .flow = &execution->flow,
        .packet = packet,
    };
}

/* False: there is no datapath. */
static bool
operate(struct dpif_op **ops, size_t n)
{
    bool done;

    ovs_mutex_lock(&mutex);
    done = datapath != NULL;
    if (done) {
        real_dpif_operate(datapath, ops, n, DPIF_OFFLOAD_AUTO);
    }
    ovs_mutex_unlock(&mutex);
    return done;
}

static void
execute(const struct ovsdr_copy *copies, size_t n)
{
    static struct execution executions[OVSDR_BATCH];    /* Of the only thread. */
    struct dpif_op *ops[OVSDR_BATCH];

    for (size_t i = 0; i < n; i++) {
        prepare(&executions[i], &copies[i]);
        ops[i] = &executions[i].op;
    }
    if (operate(ops, n)) {
        COVERAGE_ADD(dr_copies_executed, n);
    } else {
        COVERAGE_ADD(dr_copies_without_datapath, n);
    }
    for (size_t i = 0; i < n; i++) {
        dp_packet_delete(executions[i].op.execute.packet);
    }
}

static void
wait_for(int fd)
{
    poll_fd_wait(fd, POLLIN);
}

static bool
is_set(atomic_bool *flag)
{
    bool value;

    atomic_read(flag, &value);
    return value;
}

static void *
copies_main(void *aux OVS_UNUSED)
{
    while (!is_set(&receiver_stops)) {
        struct ovsdr_copy copies[OVSDR_BATCH];
        bool waits;
        size_t n = ovsdr_copies_receive(copies, &waits);

        if (n) {
            execute(copies, n);
        }
        if (waits) {
            ovsrcu_quiesce();
            coverage_try_clear();
        } else {
            int again = ovsdr_copies_arm(wait_for);

            if (again >= 0) {
                poll_timer_wait(again);
            }
            poll_block();
        }
    }
    ovsdr_copies_let_go();
    return NULL;
}

/* What it does may take long, and nothing of it is OVS's. */
static void *
tend_main(void *aux OVS_UNUSED)
{
    for (;;) {
        bool is_last = is_set(&tender_stops);
        int again;

        ovsrcu_quiesce_start();
        again = ovsdr_copies_tend(wait_for);
        ovsrcu_quiesce_end();
        if (is_last) {
            return NULL;
        }
        if (is_set(&tender_stops)) {
            poll_immediate_wake();      /* The call may have taken the wake-up. */
        } else if (again >= 0) {
            poll_timer_wait(again);
        }
        poll_block();
    }
}

void
copies_start(void)
{
    if (!started) {
        started = true;
        receiver = ovs_thread_create("dr_copies", copies_main, NULL);
        tender = ovs_thread_create("dr_queues", tend_main, NULL);
    }
}

/* Tells the thread to end and waits for that. False: it has not ended by the deadline. */
static bool
end_thread(pthread_t thread, atomic_bool *stops, long long int deadline)
{
    atomic_store(stops, true);
    ovsdr_copies_wake();
    while (pthread_tryjoin_np(thread, NULL)) {
        if (time_msec() >= deadline) {
            return false;
        }
        usleep(1000);
    }
    return true;
}

void
copies_stop(void)
{
    long long int deadline = time_msec() + STOP_MS;

    if (started && !(end_thread(receiver, &receiver_stops, deadline)
                     && end_thread(tender, &tender_stops, deadline))) {
        VLOG_WARN("a device has not answered for %d ms: what it still has is left to the kernel", STOP_MS);
    }
}

static void
show(struct dpif *dpif)
{
    shown = dpif;
    ovs_mutex_lock(&mutex);
    datapath = dpif;
    ovs_mutex_unlock(&mutex);
}

/* There is one datapath of this type (one_datapath.h), and ofproto runs it by one handle. */
void
copies_run(struct dpif *dpif)
{
    if (dpif != shown && !strcmp(dpif_normalize_type(dpif_type(dpif)), "netdev")) {
        show(dpif);
    }
}

void
copies_close(struct dpif *dpif)
{
    if (dpif && dpif == shown) {
        show(NULL);
    }
}
