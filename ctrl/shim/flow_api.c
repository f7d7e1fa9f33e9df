/* The flow-API provider "dr". See flow_api.h. */
#include <config.h>

#include "shim/flow_api.h"

#include <errno.h>

#include "ctrl/flow.h"
#include "ctrl/insertion_times.h"
#include "dp-packet.h"
#include "dpif.h"
#include "dpif-netdev-private-flow.h"
#include "hash.h"
#include "netdev-offload-provider.h"
#include "netdev-offload.h"
#include "openvswitch/match.h"
#include "openvswitch/vlog.h"
#include "shim/flow_watch.h"
#include "shim/megaflow.h"
#include "shim/netdev_dr.h"
#include "shim/tunnel_port.h"
#include "util.h"

VLOG_DEFINE_THIS_MODULE(flow_api_dr);

static struct vlog_rate_limit error_limit = VLOG_RATE_LIMIT_INIT(6, 12);

/* Each guards the megaflows whose ufid falls to it: put and del of one megaflow exclude one another. Whoever takes
 * several takes them in ascending order, and before any netdev's lock. */
enum { N_LOCKS = 32 };
static struct ovs_mutex locks[N_LOCKS] = {[0 ... N_LOCKS - 1] = OVS_MUTEX_INITIALIZER};

static unsigned int
lock_number(const ovs_u128 *ufid)
{
    return ufid->u32[0] % N_LOCKS;
}

static struct ovs_mutex *
lock_of(const ovs_u128 *ufid)
{
    return &locks[lock_number(ufid)];
}

static struct ovsdr_ufid
ufid_from(const ovs_u128 *ufid)
{
    return (struct ovsdr_ufid) {.value = {ufid->u64.lo, ufid->u64.hi}};
}

struct odp_port_search {
    const struct netdev *netdev;
    uint32_t odp_port;
};

static bool
is_searched(struct netdev *netdev, odp_port_t odp_port, void *search_)
{
    struct odp_port_search *search = search_;

    if (netdev == search->netdev) {
        search->odp_port = odp_to_u32(odp_port);
        return true;
    }
    return false;
}

bool
flow_api_takes(const struct netdev *netdev)
{
    return is_netdev_dr(netdev) || is_tunnel_port(netdev);
}

/* Called when the datapath has the netdev in its map of ports and offload is on, in either order. */
static int
dr_init_flow_api(struct netdev *netdev)
{
    struct odp_port_search search = {.netdev = netdev, .odp_port = OVSDR_NO_ODP_PORT};

    if (is_netdev_dr(netdev)) {
        netdev_ports_traverse(netdev_get_dpif_type(netdev), is_searched, &search);
        netdev_dr_set_odp_port(netdev_dr_cast(netdev), search.odp_port);
    }
    return flow_api_takes(netdev) ? 0 : EOPNOTSUPP;
}

static void
dr_uninit_flow_api(struct netdev *netdev)
{
    if (is_netdev_dr(netdev)) {
        netdev_dr_set_odp_port(netdev_dr_cast(netdev), OVSDR_NO_ODP_PORT);
    }
}

/* A dr port's device, for whose sake its netdev is locked; NULL for a tunnel port, which is in all devices. False:
 * there is none, and nothing is locked. */
static bool
enter_device(struct netdev *netdev, struct ovsdr_port **port)
{
    struct netdev_dr *dev;

    *port = NULL;
    if (!is_netdev_dr(netdev)) {
        return true;
    }
    dev = netdev_dr_cast(netdev);
    ovs_rwlock_rdlock(&dev->lock);
    if (!dev->port) {
        ovs_rwlock_unlock(&dev->lock);
        return false;
    }
    *port = dev->port;
    return true;
}

static void
leave_device(struct netdev *netdev)
{
    if (is_netdev_dr(netdev)) {
        ovs_rwlock_unlock(&netdev_dr_cast(netdev)->lock);
    }
}

/* The ufid that dpif-netdev passes is the flow's own member. */
static const struct dp_netdev_flow *
flow_of(const ovs_u128 *mega_ufid)
{
    return CONTAINER_OF(mega_ufid, struct dp_netdev_flow, mega_ufid);
}

/* Revalidators keep flows in maps by this hash, and delete together what lies in one map (ofproto-dpif-upcall.c). */
static uint16_t
neighbourhood_of(const struct dp_netdev_flow *flow)
{
    enum { N_UMAPS = 512 };

    return hash_2words(flow->ufid.u32[0], flow->pmd_id) % N_UMAPS;
}

static int
put(struct netdev *netdev, const ovs_u128 *mega_ufid, const struct ovsdr_megaflow *megaflow, uint32_t mark,
    uint64_t began)
{
    struct ovsdr_ufid ufid = ufid_from(mega_ufid);
    enum ovsdr_put_outcome outcome = OVSDR_PUT_NOWHERE;
    struct ovsdr_port *port;
    char *message = NULL;

    if (enter_device(netdev, &port)) {
        outcome = ovsdr_flow_put(port, &ufid, megaflow, neighbourhood_of(flow_of(mega_ufid)), mark, &message);
        leave_device(netdev);
    }
    if (outcome == OVSDR_PUT_FAILED) {
        VLOG_WARN_RL(&error_limit, "%s: a megaflow stays in software: %s", netdev_get_name(netdev),
                     message ? message : "out of memory");
        free(message);
    }
    ovsdr_insertion_ends(began, outcome);
    return outcome == OVSDR_PUT_NOWHERE ? ENODEV : 0;
}

static bool
is_known(struct netdev *netdev, const ovs_u128 *mega_ufid)
{
    struct ovsdr_ufid ufid = ufid_from(mega_ufid);
    struct ovsdr_port *port;
    bool known = false;

    if (enter_device(netdev, &port)) {
        known = ovsdr_flow_known(port, &ufid);
        leave_device(netdev);
    }
    return known;
}

/* With the ufid's lock. */
static void
del(struct netdev *netdev, const struct dp_netdev_flow *flow, struct ovsdr_flow_stats *last)
{
    struct ovsdr_flow_deletion deletion = {.ufid = ufid_from(&flow->mega_ufid)};

    if (enter_device(netdev, &deletion.port)) {
        ovsdr_flows_del(&deletion, 1);
        leave_device(netdev);
    }
    flow_watch_deleted(netdev, flow, &deletion.last);
    *last = deletion.last;
}

static int
dr_flow_put(struct netdev *netdev, struct match *match, struct nlattr *actions, size_t actions_len,
            const ovs_u128 *ufid, struct offload_info *info, struct dpif_flow_stats *stats)
{
    uint64_t began = ovsdr_insertion_begins();
    uint32_t mark = info ? info->flow_mark : 0;
    struct ovsdr_megaflow megaflow;
    int error;

    /* OVS's flow was made by another thread. */
    OVS_PREFETCH(&flow_of(ufid)->dead);
    OVS_PREFETCH(&flow_of(ufid)->ufid);
    megaflow_from_match(match, &megaflow);
    megaflow_from_actions(actions, actions_len, &megaflow);
    if (stats) {
        memset(stats, 0, sizeof *stats);
    }
    ovs_mutex_lock(lock_of(ufid));
    /* dpif-netdev looks whether the flow is dead before it calls us, and another thread may have deleted it since. */
    if (flow_of(ufid)->dead) {
        error = ENOENT;
    } else {
        const struct dp_netdev_flow *left = flow_watch_left(netdev, ufid);
        struct ovsdr_flow_stats last;

        if (left) {
            del(netdev, left, &last);
        }
        flow_watch_put(netdev, flow_of(ufid));
        error = put(netdev, ufid, &megaflow, mark, began);
    }
    ovs_mutex_unlock(lock_of(ufid));
    return error;
}

/* Usually the rule is gone already, or will be soon: whoever deleted the flow needs its statistics. */
static int
dr_flow_del(struct netdev *netdev, const ovs_u128 *ufid, struct dpif_flow_stats *stats)
{
    struct ovsdr_flow_stats last = {.packets = 0};

    if (is_known(netdev, ufid) && !flow_watch_leave(netdev, flow_of(ufid))) {
        ovs_mutex_lock(lock_of(ufid));
        del(netdev, flow_of(ufid), &last);
        ovs_mutex_unlock(lock_of(ufid));
    }
    if (stats) {
        memset(stats, 0, sizeof *stats);
        stats->n_packets = last.packets;
        stats->n_bytes = last.bytes;
        stats->used = last.used_ms;
    }
    return 0;
}

/* The locks of many ufids and of their netdevs. */
struct many_locks {
    uint32_t numbers;                   /* A bit for each of `locks`. */
    struct netdev_dr *devs[FLOW_API_MANY];      /* dr ports by ascending address, each once. */
    size_t n_devs;
};
BUILD_ASSERT_DECL(N_LOCKS <= 32);

static void
add_locks_of(struct many_locks *many, const struct flow_watch *watch)
{
    struct netdev_dr *dev = netdev_dr_cast(watch->netdev);
    size_t i = many->n_devs;

    many->numbers |= UINT32_C(1) << lock_number(&watch->mega_ufid);
    if (!is_netdev_dr(watch->netdev)) {
        return;
    }
    while (i > 0 && many->devs[i - 1] > dev) {
        i--;
    }
    if (i > 0 && many->devs[i - 1] == dev) {
        return;
    }
    memmove(&many->devs[i + 1], &many->devs[i], (many->n_devs - i) * sizeof many->devs[0]);
    many->devs[i] = dev;
    many->n_devs++;
}

static void
take_locks(const struct many_locks *many)
{
    for (int i = 0; i < N_LOCKS; i++) {
        if (many->numbers & (UINT32_C(1) << i)) {
            ovs_mutex_lock(&locks[i]);
        }
    }
    for (size_t i = 0; i < many->n_devs; i++) {
        ovs_rwlock_rdlock(&many->devs[i]->lock);
    }
}

static void
give_locks(const struct many_locks *many)
{
    for (size_t i = 0; i < many->n_devs; i++) {
        ovs_rwlock_unlock(&many->devs[i]->lock);
    }
    for (int i = 0; i < N_LOCKS; i++) {
        if (many->numbers & (UINT32_C(1) << i)) {
            ovs_mutex_unlock(&locks[i]);
        }
    }
}

void
flow_api_del_watched(struct flow_watch *watches[], size_t n)
{
    struct ovsdr_flow_deletion deletions[FLOW_API_MANY];
    struct flow_watch *of[FLOW_API_MANY];
    struct many_locks many = {.numbers = 0};
    size_t n_deletions = 0;

    ovs_assert(n <= FLOW_API_MANY);
    for (size_t i = 0; i < n; i++) {
        add_locks_of(&many, watches[i]);
    }
    take_locks(&many);
    for (size_t i = 0; i < n; i++) {
        bool is_dr = is_netdev_dr(watches[i]->netdev);
        struct ovsdr_port *port = is_dr ? netdev_dr_cast(watches[i]->netdev)->port : NULL;
        enum watched_rule rule = flow_watch_rule(watches[i]);

        if (rule != WATCHED_RULE_ITS_OWN && rule != WATCHED_RULE_LEFT) {
            continue;
        }
        if (is_dr && !port) {
            flow_watch_deleted(watches[i]->netdev, watches[i]->flow, &(struct ovsdr_flow_stats) {.packets = 0});
            continue;
        }
        of[n_deletions] = watches[i];
        deletions[n_deletions++] = (struct ovsdr_flow_deletion) {
            .port = port, .ufid = ufid_from(&watches[i]->mega_ufid),
        };
    }
    ovsdr_flows_del(deletions, n_deletions);
    for (size_t i = 0; i < n_deletions; i++) {
        flow_watch_deleted(of[i]->netdev, of[i]->flow, &deletions[i].last);
    }
    give_locks(&many);
}

void
flow_api_end_watch(struct flow_watch *watch)
{
    while (!flow_watch_end(watch)) {
        flow_api_del_watched(&watch, 1);
    }
}

static int
dr_flow_get(struct netdev *netdev, struct match *match OVS_UNUSED, struct nlattr **actions OVS_UNUSED,
            const ovs_u128 *ufid, struct dpif_flow_stats *stats, struct dpif_flow_attrs *attrs,
            struct ofpbuf *wbuffer OVS_UNUSED)
{
    struct ovsdr_flow_stats from = {.packets = 0};
    struct ovsdr_ufid key = ufid_from(ufid);
    struct flow_watch *busy;
    struct ovsdr_port *port;
    bool known = false;

    /* dpif-netdev gives a flow its mark when it has been put: until then what there is with this ufid is of another,
     * which was deleted. */
    if (flow_of(ufid)->mark && enter_device(netdev, &port)) {
        known = ovsdr_flow_get(port, &key, &from);
        leave_device(netdev);
    }

    memset(stats, 0, sizeof *stats);
    stats->n_packets = from.packets;
    stats->n_bytes = from.bytes;
    stats->used = from.used_ms;
    attrs->offloaded = from.offloaded;
    attrs->dp_layer = from.offloaded && !from.partly ? "dr" : "ovs";
    while ((busy = flow_watch_note(netdev, flow_of(ufid), stats))) {
        flow_api_del_watched(&busy, 1);
    }
    return known ? 0 : ENOENT;
}

/* Megaflows of a tunnel port go with it (tunnel_port_deleted()): dpif-netdev flushes another netdev of such a port. */
static int
dr_flow_flush(struct netdev *netdev)
{
    struct ovsdr_port *port;

    if (is_netdev_dr(netdev) && enter_device(netdev, &port)) {
        ovsdr_flow_flush(port);
        leave_device(netdev);
    }
    return 0;
}

/* One counter per offload thread, and only their sum is used. */
static int
dr_flow_get_n_flows(struct netdev *netdev, uint64_t *n_flows)
{
    struct ovsdr_port *port;

    n_flows[0] = 0;
    if (is_netdev_dr(netdev) && enter_device(netdev, &port)) {
        n_flows[0] = ovsdr_flow_count_of_device(port);
        leave_device(netdev);
    }
    return 0;
}

static bool
find_table(struct netdev *netdev, uint32_t tag, struct ovsdr_missed *missed)
{
    struct ovsdr_port *port;
    bool known = false;

    if (enter_device(netdev, &port)) {
        known = ovsdr_missed_in(port, tag, missed);
        leave_device(netdev);
    }
    return known;
}

/* The mark is the table that the packet missed in. Behind a recirculation the packet is as its parents left it, and
 * goes on there; no megaflow in the NIC sets other metadata (match.c). In a tunnel port's table it still has its outer
 * headers: whoever sent it there has counted it, and here it is taken out of them. The mark must go: dpif-netdev
 * would take it for one of its own.
 *
 * Dropped, and counted as datapath_drop_hw_miss_recover, are packets of a table of which nothing is known, for it can
 * not be said where they go on, and those that OVS drops in tnl_pop. Who gets an error has no packet any more.
 *
 * A plain function's packets have missed in no table. Their mark says whose they are, and becomes the datapath's. */
static int
dr_hw_miss_packet_recover(struct netdev *netdev, struct dp_packet *packet)
{
    struct ovsdr_missed missed = {.recirc_id = 0};
    uint32_t tag;

    if (dp_packet_has_flow_mark(packet, &tag) && !find_table(netdev, tag, &missed)) {
        dp_packet_delete(packet);
        return ENOENT;
    }
    dp_packet_reset_offload(packet);
    if (missed.tunnel_port
        && !tunnel_port_pop(u32_to_odp(missed.tunnel_port), packet)) {
        return ENODEV;
    }
    packet->md.recirc_id = missed.recirc_id;
    if (missed.mark) {
        dp_packet_set_flow_mark(packet, missed.mark);
    }
    return 0;
}

const struct netdev_flow_api flow_api_dr = {
    .type = "dr",
    .flow_flush = dr_flow_flush,
    .flow_put = dr_flow_put,
    .flow_get = dr_flow_get,
    .flow_del = dr_flow_del,
    .flow_get_n_flows = dr_flow_get_n_flows,
    .hw_miss_packet_recover = dr_hw_miss_packet_recover,
    .init_flow_api = dr_init_flow_api,
    .uninit_flow_api = dr_uninit_flow_api,
};
