/* The flow-API provider "dr". See flow_api.h. */
#include <config.h>

#include "shim/flow_api.h"

#include <errno.h>

#include "ctrl/flow.h"
#include "dp-packet.h"
#include "dpif.h"
#include "dpif-netdev-private-flow.h"
#include "netdev-offload-provider.h"
#include "netdev-offload.h"
#include "openvswitch/match.h"
#include "openvswitch/vlog.h"
#include "shim/flow_watch.h"
#include "shim/megaflow.h"
#include "shim/netdev_dr.h"
#include "util.h"

VLOG_DEFINE_THIS_MODULE(flow_api_dr);

static struct vlog_rate_limit error_limit = VLOG_RATE_LIMIT_INIT(6, 12);

/* Each guards the megaflows whose ufid falls to it: put and del of one megaflow exclude one another. */
enum { N_LOCKS = 64 };
static struct ovs_mutex locks[N_LOCKS] = {[0 ... N_LOCKS - 1] = OVS_MUTEX_INITIALIZER};

static struct ovs_mutex *
lock_of(const ovs_u128 *ufid)
{
    return &locks[ufid->u32[0] % N_LOCKS];
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

/* Called when the datapath has the netdev in its map of ports and offload is on, in either order. */
static int
dr_init_flow_api(struct netdev *netdev)
{
    struct odp_port_search search = {.netdev = netdev, .odp_port = OVSDR_NO_ODP_PORT};

    if (!is_netdev_dr(netdev)) {
        return EOPNOTSUPP;
    }
    netdev_ports_traverse(netdev_get_dpif_type(netdev), is_searched, &search);
    netdev_dr_set_odp_port(netdev_dr_cast(netdev), search.odp_port);
    return 0;
}

static void
dr_uninit_flow_api(struct netdev *netdev)
{
    netdev_dr_set_odp_port(netdev_dr_cast(netdev), OVSDR_NO_ODP_PORT);
}

/* dpif-netdev looks whether a flow is dead before it calls flow_put, and another thread may delete the flow in between.
 * The ufid that it passes is the flow's own member. */
static bool
is_dead(const ovs_u128 *mega_ufid)
{
    return CONTAINER_OF(mega_ufid, struct dp_netdev_flow, mega_ufid)->dead;
}

static int
put(struct netdev_dr *dev, const ovs_u128 *mega_ufid, const struct ovsdr_megaflow *megaflow)
{
    struct ovsdr_ufid ufid = ufid_from(mega_ufid);
    char *message = NULL;
    int error = ENODEV;

    ovs_rwlock_rdlock(&dev->lock);
    if (dev->port) {
        error = 0;
        if (ovsdr_flow_put(dev->port, &ufid, megaflow, &message) == OVSDR_PUT_FAILED) {
            VLOG_WARN_RL(&error_limit, "%s: a megaflow stays in software: %s", netdev_get_name(&dev->up),
                         message ? message : "out of memory");
            free(message);
        }
    }
    ovs_rwlock_unlock(&dev->lock);
    return error;
}

static int
dr_flow_put(struct netdev *netdev, struct match *match, struct nlattr *actions, size_t actions_len,
            const ovs_u128 *ufid, struct offload_info *info OVS_UNUSED, struct dpif_flow_stats *stats)
{
    struct ovsdr_megaflow megaflow;
    int error;

    megaflow_from_match(match, &megaflow);
    megaflow_from_actions(actions, actions_len, &megaflow);
    if (stats) {
        memset(stats, 0, sizeof *stats);
    }
    ovs_mutex_lock(lock_of(ufid));
    error = is_dead(ufid) ? ENOENT : put(netdev_dr_cast(netdev), ufid, &megaflow);
    ovs_mutex_unlock(lock_of(ufid));
    return error;
}

bool
flow_api_del_dead(struct netdev *netdev, const ovs_u128 *mega_ufid, struct ovsdr_flow_stats *stats)
{
    struct netdev_dr *dev = netdev_dr_cast(netdev);
    struct ovsdr_flow_deletion deletion = {.ufid = ufid_from(mega_ufid)};

    ovs_mutex_lock(lock_of(mega_ufid));
    ovs_rwlock_rdlock(&dev->lock);
    if (dev->port) {
        deletion.port = dev->port;
        ovsdr_flows_del(&deletion, 1);
    }
    ovs_rwlock_unlock(&dev->lock);
    ovs_mutex_unlock(lock_of(mega_ufid));
    *stats = deletion.last;
    return deletion.had_stats;
}

/* Usually the megaflow is gone already: whoever deleted the flow needed its statistics. */
static int
dr_flow_del(struct netdev *netdev, const ovs_u128 *ufid, struct dpif_flow_stats *stats)
{
    struct ovsdr_flow_stats last = {.packets = 0};

    flow_api_del_dead(netdev, ufid, &last);
    if (stats) {
        memset(stats, 0, sizeof *stats);
        stats->n_packets = last.packets;
        stats->n_bytes = last.bytes;
        stats->used = last.used_ms;
    }
    return 0;
}

static int
dr_flow_get(struct netdev *netdev, struct match *match OVS_UNUSED, struct nlattr **actions OVS_UNUSED,
            const ovs_u128 *ufid, struct dpif_flow_stats *stats, struct dpif_flow_attrs *attrs,
            struct ofpbuf *wbuffer OVS_UNUSED)
{
    struct netdev_dr *dev = netdev_dr_cast(netdev);
    struct ovsdr_flow_stats from = {.packets = 0};
    struct ovsdr_ufid key = ufid_from(ufid);
    bool known = false;

    ovs_rwlock_rdlock(&dev->lock);
    if (dev->port) {
        known = ovsdr_flow_get(dev->port, &key, &from);
    }
    ovs_rwlock_unlock(&dev->lock);

    memset(stats, 0, sizeof *stats);
    stats->n_packets = from.packets;
    stats->n_bytes = from.bytes;
    stats->used = from.used_ms;
    attrs->offloaded = from.offloaded;
    attrs->dp_layer = from.offloaded ? "dr" : "ovs";
    flow_watch_note(netdev, ufid, stats);
    return known ? 0 : ENOENT;
}

static int
dr_flow_flush(struct netdev *netdev)
{
    struct netdev_dr *dev = netdev_dr_cast(netdev);

    ovs_rwlock_rdlock(&dev->lock);
    if (dev->port) {
        ovsdr_flow_flush(dev->port);
    }
    ovs_rwlock_unlock(&dev->lock);
    return 0;
}

/* One counter per offload thread, and only their sum is used. */
static int
dr_flow_get_n_flows(struct netdev *netdev, uint64_t *n_flows)
{
    struct netdev_dr *dev = netdev_dr_cast(netdev);

    ovs_rwlock_rdlock(&dev->lock);
    n_flows[0] = dev->port ? ovsdr_flow_count_of_device(dev->port) : 0;
    ovs_rwlock_unlock(&dev->lock);
    return 0;
}

/* Megaflows start at recirculation 0, so whichever table missed, the packet is as it came from the vport, and the slow
 * path starts afresh. The mark must go: dpif-netdev would take it for one of its own. */
static int
dr_hw_miss_packet_recover(struct netdev *netdev OVS_UNUSED, struct dp_packet *packet)
{
    dp_packet_reset_offload(packet);
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
