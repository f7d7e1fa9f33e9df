/* See port_del.h. */
#include <config.h>

#include "shim/port_del.h"

#include "dpif-netdev-private-flow.h"
#include "dpif-provider.h"
#include "dpif.h"
#include "netdev-offload.h"
#include "netdev.h"
#include "ofproto/ofproto-dpif.h"
#include "ofproto/ofproto-provider.h"
#include "openvswitch/poll-loop.h"
#include "openvswitch/vlog.h"
#include "ovs-atomic.h"
#include "packets.h"
#include "seq.h"
#include "shim/flow_api.h"
#include "shim/flow_watch.h"
#include "shim/netdev_dr.h"
#include "shim/real.h"
#include "shim/tunnel_port.h"
#include "timeval.h"
#include "util.h"

VLOG_DEFINE_THIS_MODULE(port_del);

enum { SILENCE_MS = 1000, PATIENCE_MS = 5000 };

/* In CLOCK_MONOTONIC milliseconds, and for revalidators older than any flow's right to stay. */
enum { LONG_AGO = 1 };

/* The port that goes. Netdev and dump are compared, never followed. */
static struct {
    ATOMIC(struct netdev *) netdev;         /* NULL: none goes. */
    atomic_bool tunnels_too;                /* Flows of tunnel ports go with the port's. */
    struct in6_addr remote;                 /* A tunnel's other end, whose flows go; 0: all. Set before the netdev. */
    ATOMIC(const char *) dpif_type;         /* Of the datapath that it is in; there is one of each type. */
    ATOMIC(struct dpif_flow_dump *) dump;   /* The last one that began since, NULL: none. */
    atomic_uint n_flows;                    /* Of the port, in that dump. */
    atomic_uint n_tunnel_flows;             /* Of tunnels that go with it, or of the tunnel. */
    atomic_uint n_dumps;                    /* Whole ones. */
    atomic_bool gone;                       /* A whole dump had none. */
    atomic_llong heard_ms;                  /* Of a revalidator. */
} leaving;

static struct seq *wake;        /* Changes when a port wants a dump. */
static struct seq *progress;    /* Changes when such a dump ends. */
static __thread uint64_t wake_seen;

void
port_del_init(void)
{
    wake = seq_create();
    progress = seq_create();
}

static bool
is_leaving_from(const struct dpif *dpif)
{
    struct netdev *netdev;
    const char *type;

    atomic_read(&leaving.netdev, &netdev);
    if (OVS_LIKELY(!netdev)) {
        return false;
    }
    atomic_read(&leaving.dpif_type, &type);
    return !strcmp(type, dpif_normalize_type(dpif_type(dpif)));
}

struct dpif_flow_dump *
port_del_flow_dump_create(const struct dpif *dpif, bool terse, struct dpif_flow_dump_types *types)
{
    struct dpif_flow_dump *dump;

    wake_seen = seq_read(wake);
    dump = real_dpif_flow_dump_create(dpif, terse, types);
    if (is_leaving_from(dpif)) {
        atomic_store(&leaving.n_flows, 0);
        atomic_store(&leaving.n_tunnel_flows, 0);
        atomic_store(&leaving.dump, dump);
        atomic_store(&leaving.heard_ms, time_msec());
    }
    return dump;
}

static bool
comes_from(const struct dp_netdev_flow *flow, const struct in6_addr *remote)
{
    struct in6_addr source = flow_tnl_src(&flow->flow.tunnel);

    return ipv6_addr_equals(&source, remote);
}

static bool
is_leaving(const struct flow_watch *watch)
{
    struct netdev *leaver;
    bool tunnels_too;

    atomic_read(&leaving.netdev, &leaver);
    atomic_read(&leaving.tunnels_too, &tunnels_too);
    if (!leaver || !watch->netdev) {
        return false;
    }
    return watch->netdev == leaver ? !ipv6_addr_is_set(&leaving.remote) || comes_from(watch->flow, &leaving.remote)
                                   : tunnels_too && is_tunnel_port(watch->netdev);
}

/* One flow, so that it is known whose netdev dpif-netdev asked for its statistics. A flow that is not in the NIC,
 * too: its packets could not be told from which rule they came either. */
static int
next_with_its_netdev(struct dpif_flow_dump_thread *thread, struct dpif_flow *flow)
{
    struct flow_watch watch;
    unsigned int before;
    int n;

    flow_watch_begin(&watch);
    n = real_dpif_flow_dump_next(thread, flow, 1);
    if (n > 0 && is_leaving(&watch)) {
        flow->stats.used = LONG_AGO;
        atomic_add(is_tunnel_port(watch.netdev) ? &leaving.n_tunnel_flows : &leaving.n_flows, 1, &before);
    }
    flow_api_end_watch(&watch);
    atomic_store(&leaving.heard_ms, time_msec());
    return n;
}

int
port_del_flow_dump_next(struct dpif_flow_dump_thread *thread, struct dpif_flow *flows, int max_flows)
{
    return is_leaving_from(thread->dpif) ? next_with_its_netdev(thread, flows)
                                         : real_dpif_flow_dump_next(thread, flows, max_flows);
}

/* Nothing of a port comes in while it leaves, but packets of tunnels do by other ports, and PMD threads make flows
 * anew. */
enum { TUNNEL_DUMPS = 3 };

/* After a whole dump. */
static bool
have_gone(void)
{
    unsigned int n_flows, n_tunnel_flows, n_dumps;

    atomic_read(&leaving.n_flows, &n_flows);
    atomic_read(&leaving.n_tunnel_flows, &n_tunnel_flows);
    atomic_add(&leaving.n_dumps, 1, &n_dumps);
    return !n_flows && (!n_tunnel_flows || n_dumps + 1 >= TUNNEL_DUMPS);
}

/* The leader of the revalidators goes to sleep next. */
int
port_del_flow_dump_destroy(struct dpif_flow_dump *dump)
{
    struct dpif_flow_dump *counted;
    int error;

    if (is_leaving_from(dump->dpif)) {
        atomic_store(&leaving.heard_ms, time_msec());
        atomic_read(&leaving.dump, &counted);
        if (counted == dump) {
            if (have_gone()) {
                atomic_store(&leaving.gone, true);
            } else {
                wake_seen = 0;      /* At once again: there may be some that were busy. */
            }
            seq_change(progress);
        }
    }
    error = real_dpif_flow_dump_destroy(dump);
    seq_wait(wake, wake_seen);
    return error;
}

static bool
wait_until_gone(void)
{
    long long int end = time_msec() + PATIENCE_MS;

    for (;;) {
        uint64_t seq = seq_read(progress);
        long long int heard;
        bool gone;

        atomic_read(&leaving.gone, &gone);
        if (gone) {
            return true;
        }
        atomic_read(&leaving.heard_ms, &heard);
        if (time_msec() >= MIN(end, heard + SILENCE_MS)) {
            return false;
        }
        seq_wait(progress, seq);
        poll_timer_wait_until(MIN(end, heard + SILENCE_MS));
        poll_block();
    }
}

static void
warn_of_loss(const struct netdev *netdev, const char *why)
{
    static struct vlog_rate_limit limit = VLOG_RATE_LIMIT_INIT(5, 10);

    VLOG_WARN_RL(&limit, "%s: goes before its flows, whose last statistics may be short: %s", netdev_get_name(netdev),
                 why);
}

static void
flows_go(struct netdev *netdev, bool tunnels_too, const struct in6_addr *remote)
{
    leaving.remote = *remote;
    atomic_store(&leaving.dump, NULL);
    atomic_store(&leaving.gone, false);
    atomic_store(&leaving.n_dumps, 0);
    atomic_store(&leaving.heard_ms, time_msec());
    atomic_store(&leaving.dpif_type, netdev_get_dpif_type(netdev));
    atomic_store(&leaving.tunnels_too, tunnels_too);
    atomic_store(&leaving.netdev, netdev);
    seq_change(wake);
    if (!wait_until_gone()) {
        warn_of_loss(netdev, "no revalidator deleted them");
    }
    atomic_store(&leaving.netdev, NULL);
}

/* The main thread receives nothing while it waits, and some controllers delete hundreds of ports and tunnels at once.
 * Those behind the ones that took this long go as with stock. */
enum { BUDGET_MS = 1000, BUDGET_AGAIN_MS = 10000 };

static void
flows_go_within_budget(struct netdev *netdev, bool tunnels_too, const struct in6_addr *remote)
{
    static long long int since = LLONG_MIN / 2, spent;
    long long int now = time_msec();

    if (now - since > BUDGET_AGAIN_MS) {
        since = now;
        spent = 0;
    }
    if (spent < BUDGET_MS) {
        flows_go(netdev, tunnels_too, remote);
        spent += time_msec() - now;
    } else {
        warn_of_loss(netdev, "the deletion of ports before it took too long");
    }
}

void
port_del_flows_go(struct netdev *netdev)
{
    struct netdev_dr *dev = netdev_dr_cast(netdev);

    if (netdev_get_dpif_type(netdev) && netdev_is_flow_api_enabled()) {
        netdev_dr_close_entrance(dev);
        flows_go_within_budget(netdev, netdev_dr_is_last_of_device(dev), &in6addr_any);
    }
}

static void
flows_of_tunnel_go(const char *type, odp_port_t port_no, const struct in6_addr *remote)
{
    struct netdev *netdev = netdev_ports_get(port_no, type);

    if (netdev && is_tunnel_port(netdev) && netdev_is_flow_api_enabled()) {
        flows_go_within_budget(netdev, false, remote);
    }
    netdev_close(netdev);
}

/* The last bridge of a datapath's type ends the revalidators before it deletes the tunnels' ports. */
static bool
has_revalidators(const struct dpif *dpif)
{
    struct shash_node *node;

    SHASH_FOR_EACH (node, &all_dpif_backers) {
        const struct dpif_backer *backer = node->data;

        if (backer->dpif == dpif) {
            return backer->refcount > 0;
        }
    }
    return false;
}

void
port_del_flows_of_port_go(struct dpif *dpif, odp_port_t port_no)
{
    const char *type = dpif_normalize_type(dpif_type(dpif));
    struct netdev *netdev = netdev_ports_get(port_no, type);

    if (netdev && is_netdev_dr(netdev)) {
        port_del_flows_go(netdev);
    } else if (has_revalidators(dpif)) {
        flows_of_tunnel_go(type, port_no, &in6addr_any);
    }
    netdev_close(netdev);
}

void
port_del_flows_of_tunnel_go(const struct ofproto *ofproto, ofp_port_t ofp_port)
{
    const struct ofport *port = ofproto_get_port(ofproto, ofp_port);
    const struct dpif *dpif = CONTAINER_OF(ofproto, struct ofproto_dpif, up)->backer->dpif;
    const char *type = dpif_normalize_type(dpif_type(dpif));
    const struct netdev_tunnel_config *config;
    odp_port_t odp_port;

    if (port && tunnel_port_is_ours(type) && tunnel_port_of(port->netdev, &odp_port)) {
        config = netdev_get_tunnel_config(port->netdev);
        flows_of_tunnel_go(type, odp_port, config->ip_dst_flow ? &in6addr_any : &config->ipv6_dst);
    }
}
