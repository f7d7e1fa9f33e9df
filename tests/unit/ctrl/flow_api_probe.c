#include <config.h>

#include "flow_api_probe.h"

#include "dp-packet.h"
#include "dpif.h"
#include "dpif-netdev-private-flow.h"
#include "netdev-offload-provider.h"
#include "netdev-offload.h"
#include "netdev.h"
#include "packets.h"
#include "openvswitch/match.h"
#include "openvswitch/ofpbuf.h"
#include "ovs-rcu.h"
#include "shim/flow_api.h"
#include "shim/flow_mark.h"
#include "shim/flow_watch.h"
#include "shim/netdev_dr.h"
#include "shim/real.h"
#include "util.h"

/* A dr port's, or one that OVS made. */
struct probe_netdev {
    struct netdev_dr dr;
    struct netdev *tunnel;
    odp_port_t odp_port;
};

static const char datapath_type[] = "netdev";

static struct netdev *
netdev_of(struct probe_netdev *netdev)
{
    return netdev->tunnel ? netdev->tunnel : &netdev->dr.up;
}

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
    netdev->dr.up.dpif_type = datapath_type;
    ovs_rwlock_init(&netdev->dr.lock);
    netdev->dr.port = port;
    return netdev;
}

bool
probe_is_tunnel(const struct netdev *netdev)
{
    return netdev->netdev_class;
}

struct probe_netdev *
probe_tunnel_new(const char *type, uint32_t odp_port)
{
    struct probe_netdev *netdev = xzalloc(sizeof *netdev);
    struct dpif_port port = {.name = xasprintf("tunnel-%s", type), .type = CONST_CAST(char *, type)};

    port.port_no = netdev->odp_port = u32_to_odp(odp_port);
    ovs_assert(!netdev_open(port.name, type, &netdev->tunnel));
    netdev_set_dpif_type(netdev->tunnel, datapath_type);
    ovs_assert(!netdev_ports_insert(netdev->tunnel, &port));
    free(port.name);
    return netdev;
}

void
probe_tunnel_moves_to(struct probe_netdev *netdev, const char *type)
{
    netdev_set_dpif_type(netdev->tunnel, !strcmp(type, datapath_type) ? datapath_type : type);
}

bool
probe_takes(struct probe_netdev *netdev)
{
    return !flow_api_dr.init_flow_api(netdev_of(netdev));
}

void
probe_netdev_free(struct probe_netdev *netdev)
{
    if (netdev->tunnel) {
        netdev_ports_remove(netdev->odp_port, datapath_type);
        netdev_close(netdev->tunnel);
        free(netdev);
        return;
    }
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
    int error;

    memset(&match, 0, sizeof match);
    error = flow_api_dr.flow_put(netdev_of(netdev), &match, NULL, 0, &flow->flow.mega_ufid, &info, NULL);
    if (!error) {
        flow->flow.mark = info.flow_mark;
    }
    return error;
}

void
probe_del(struct probe_netdev *netdev, struct probe_flow *flow)
{
    flow_api_dr.flow_del(netdev_of(netdev), &flow->flow.mega_ufid, NULL);
}

void
probe_marks_init(void)
{
    flow_mark_init();
}

static size_t n_marks_back;

/* Ahead of the daemon's, which is not linked. */
void
real_id_fpool_free_id(struct id_fpool *pool OVS_UNUSED, unsigned int user OVS_UNUSED, uint32_t id OVS_UNUSED)
{
    n_marks_back++;
}

void
probe_mark_free(uint32_t mark)
{
    flow_mark_free(NULL, 0, mark);
}

size_t
probe_marks_back(void)
{
    size_t n = n_marks_back;

    n_marks_back = 0;
    return n;
}

void
probe_quiesce(void)
{
    ovsrcu_barrier();
}

bool
probe_is_quiescent(void)
{
    return ovsrcu_is_quiescent();
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
probe_recover_packet(struct probe_netdev *netdev, uint32_t tag, const uint8_t *data, size_t size)
{
    struct probe_recovered recovered = {.gone = false};
    struct dp_packet *packet = dp_packet_new(size);
    unsigned int before = packets_freed;
    uint32_t mark;

    dp_packet_put(packet, data, size);
    pkt_metadata_init(&packet->md, u32_to_odp(1));
    dp_packet_set_flow_mark(packet, tag);
    recovered.error = flow_api_dr.hw_miss_packet_recover(&netdev->dr.up, packet);
    recovered.gone = packets_freed != before;
    if (!recovered.gone) {
        recovered.recirc_id = packet->md.recirc_id;
        recovered.in_port = odp_to_u32(packet->md.in_port.odp_port);
        recovered.tunnel_id = flow_tnl_dst_is_set(&packet->md.tunnel) ? ntohll(packet->md.tunnel.tun_id) : 0;
        recovered.size = dp_packet_size(packet);
        recovered.has_mark = dp_packet_has_flow_mark(packet, &mark);
        recovered.mark = recovered.has_mark ? mark : 0;
        dp_packet_delete(packet);
    }
    return recovered;
}

struct probe_recovered
probe_recover(struct probe_netdev *netdev, uint32_t tag)
{
    static const uint8_t zeros[64];

    return probe_recover_packet(netdev, tag, zeros, sizeof zeros);
}

static int
get(struct probe_netdev *netdev, struct probe_flow *flow, struct dpif_flow_stats *stats)
{
    struct dpif_flow_attrs attrs;

    return flow_api_dr.flow_get(netdev_of(netdev), NULL, NULL, &flow->flow.mega_ufid, stats, &attrs, NULL);
}

bool
probe_get(struct probe_netdev *netdev, struct probe_flow *flow, uint64_t *packets)
{
    struct dpif_flow_stats stats;
    bool known = !get(netdev, flow, &stats);

    *packets = stats.n_packets;
    return known;
}

struct probe_watch *
probe_watch_new(struct probe_netdev *netdev, struct probe_flow *flow)
{
    struct probe_watch *watch = xzalloc(sizeof *watch);
    struct dpif_flow_stats stats;

    flow_watch_begin(&watch->watch);
    get(netdev, flow, &stats);
    flow_watch_pause();
    return watch;
}

struct probe_watch *
probe_watch_of_two(struct probe_netdev *netdev, struct probe_flow *first, struct probe_flow *second)
{
    struct probe_watch *watch = xzalloc(sizeof *watch);
    struct dpif_flow_stats stats;

    flow_watch_begin(&watch->watch);
    get(netdev, first, &stats);
    probe_flow_dies(first);
    probe_del(netdev, first);
    get(netdev, second, &stats);
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
