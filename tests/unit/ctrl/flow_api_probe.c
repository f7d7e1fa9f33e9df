#include <config.h>

#include "flow_api_probe.h"

#include "dp-packet.h"
#include "dpif.h"
#include "dpif-netdev-private-flow.h"
#include "netdev-offload-provider.h"
#include "netdev-offload.h"
#include "openvswitch/match.h"
#include "openvswitch/ofpbuf.h"
#include "shim/flow_api.h"
#include "shim/flow_watch.h"
#include "shim/netdev_dr.h"
#include "util.h"

struct probe_netdev {
    struct netdev_dr dr;
};

struct probe_flow {
    struct dp_netdev_flow flow;
};

struct probe_watch {
    struct flow_watch watch;
};

const size_t probe_many = FLOW_API_MANY;

struct probe_netdev *
probe_netdev_new(struct ovsdr_port *port)
{
    struct probe_netdev *netdev = xzalloc(sizeof *netdev);

    netdev->dr.up.ref_cnt = 1;
    netdev->dr.up.name = "probe";
    ovs_rwlock_init(&netdev->dr.lock);
    netdev->dr.port = port;
    return netdev;
}

void
probe_netdev_free(struct probe_netdev *netdev)
{
    ovs_assert(netdev->dr.up.ref_cnt == 1);
    ovs_rwlock_destroy(&netdev->dr.lock);
    free(netdev);
}

struct probe_flow *
probe_flow_new(uint64_t mega_ufid)
{
    struct probe_flow *flow = xzalloc(sizeof *flow);

    *CONST_CAST(ovs_u128 *, &flow->flow.mega_ufid) = (ovs_u128) {.u64 = {.lo = mega_ufid}};
    return flow;
}

void
probe_flow_free(struct probe_flow *flow)
{
    free(flow);
}

void
probe_flow_dies(struct probe_flow *flow)
{
    flow->flow.dead = true;
}

int
probe_put(struct probe_netdev *netdev, struct probe_flow *flow)
{
    struct offload_info info = {.flow_mark = 1};
    struct match match;

    memset(&match, 0, sizeof match);
    return flow_api_dr.flow_put(&netdev->dr.up, &match, NULL, 0, &flow->flow.mega_ufid, &info, NULL);
}

void
probe_del(struct probe_netdev *netdev, struct probe_flow *flow)
{
    flow_api_dr.flow_del(&netdev->dr.up, &flow->flow.mega_ufid, NULL);
}

static unsigned int packets_freed;

/* Ahead of OVS's own, which dp_packet_delete() calls. */
void
dp_packet_uninit(struct dp_packet *packet)
{
    packets_freed++;
    free(dp_packet_base(packet));
}

struct probe_recovered
probe_recover(struct probe_netdev *netdev, uint32_t tag)
{
    struct probe_recovered recovered = {.gone = false};
    struct dp_packet *packet = dp_packet_new(64);
    unsigned int before = packets_freed;
    uint32_t mark;

    pkt_metadata_init(&packet->md, u32_to_odp(1));
    dp_packet_set_flow_mark(packet, tag);
    recovered.error = flow_api_dr.hw_miss_packet_recover(&netdev->dr.up, packet);
    recovered.gone = packets_freed != before;
    if (!recovered.gone) {
        recovered.recirc_id = packet->md.recirc_id;
        recovered.has_mark = dp_packet_has_flow_mark(packet, &mark);
        dp_packet_delete(packet);
    }
    return recovered;
}

static void
get(struct probe_netdev *netdev, struct probe_flow *flow)
{
    struct dpif_flow_stats stats;
    struct dpif_flow_attrs attrs;

    flow_api_dr.flow_get(&netdev->dr.up, NULL, NULL, &flow->flow.mega_ufid, &stats, &attrs, NULL);
}

struct probe_watch *
probe_watch_new(struct probe_netdev *netdev, struct probe_flow *flow)
{
    struct probe_watch *watch = xzalloc(sizeof *watch);

    flow_watch_begin(&watch->watch);
    get(netdev, flow);
    flow_watch_pause();
    return watch;
}

struct probe_watch *
probe_watch_of_two(struct probe_netdev *netdev, struct probe_flow *first, struct probe_flow *second)
{
    struct probe_watch *watch = xzalloc(sizeof *watch);

    flow_watch_begin(&watch->watch);
    get(netdev, first);
    probe_flow_dies(first);
    probe_del(netdev, first);
    get(netdev, second);
    flow_watch_pause();
    return watch;
}

void
probe_delete(struct probe_watch *watches[], size_t n)
{
    struct flow_watch *inner[FLOW_API_MANY];

    for (size_t i = 0; i < n; i++) {
        inner[i] = &watches[i]->watch;
    }
    flow_api_del_watched(inner, n);
}

bool
probe_watch_has_last(const struct probe_watch *watch, uint64_t *packets)
{
    *packets = watch->watch.last.packets;
    return flow_watch_rule(&watch->watch) == WATCHED_RULE_GONE;
}

void
probe_watch_free(struct probe_watch *watch)
{
    flow_api_end_watch(&watch->watch);
    free(watch);
}
