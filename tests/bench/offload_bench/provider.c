/* See provider.h. */
#include <config.h>

#include "provider.h"

#include "dpif.h"
#include "dpif-netdev-private-flow.h"
#include "netdev-offload-provider.h"
#include "netdev-offload.h"
#include "netlink.h"
#include "odp-netlink.h"
#include "openvswitch/match.h"
#include "openvswitch/ofpbuf.h"
#include "packets.h"
#include "shim/flow_api.h"
#include "shim/netdev_dr.h"
#include "util.h"

struct provider_netdev {
    struct netdev_dr dr;
};

struct provider_flows {
    struct dp_netdev_flow *flows;
};

struct provider_put {
    struct match match;
    struct ofpbuf actions;
};

/* Of the netdev class, which is not linked: there are no others. */
bool
is_netdev_dr(const struct netdev *netdev OVS_UNUSED)
{
    return true;
}

void
netdev_dr_set_odp_port(struct netdev_dr *dev OVS_UNUSED, uint32_t odp_port OVS_UNUSED)
{
}

struct provider_netdev *
provider_netdev_new(struct ovsdr_port *port)
{
    struct provider_netdev *netdev = xzalloc(sizeof *netdev);

    netdev->dr.up.ref_cnt = 1;
    netdev->dr.up.name = "bench";
    ovs_rwlock_init(&netdev->dr.lock);
    netdev->dr.port = port;
    return netdev;
}

void
provider_netdev_free(struct provider_netdev *netdev)
{
    ovs_rwlock_destroy(&netdev->dr.lock);
    free(netdev);
}

struct provider_flows *
provider_flows_new(size_t n)
{
    struct provider_flows *flows = xmalloc(sizeof *flows);

    flows->flows = xcalloc(n, sizeof *flows->flows);
    return flows;
}

void
provider_flows_free(struct provider_flows *flows)
{
    free(flows->flows);
    free(flows);
}

void
provider_flow_name(struct provider_flows *flows, size_t i, const uint64_t mega_ufid[2])
{
    const ovs_u128 ufid = {.u64 = {.lo = mega_ufid[0], .hi = mega_ufid[1]}};

    *CONST_CAST(ovs_u128 *, &flows->flows[i].mega_ufid) = ufid;
    *CONST_CAST(ovs_u128 *, &flows->flows[i].ufid) = ufid;
}

/* As dpif-netdev has it: in_port, recirc_id, the packet's type and the presence of a tag are always matched. */
struct provider_put *
provider_put_new(uint32_t in_port, uint32_t out_port)
{
    struct provider_put *put = xmalloc(sizeof *put);
    struct match *match = &put->match;

    match_init_catchall(match);
    match->flow.in_port.odp_port = u32_to_odp(in_port);
    match->wc.masks.in_port.odp_port = u32_to_odp(UINT32_MAX);
    match_set_recirc_id(match, 0);
    match_set_packet_type(match, htonl(PT_ETH));
    match->wc.masks.vlans[0].tci = htons(VLAN_CFI);
    match_set_dl_type(match, htons(ETH_TYPE_IP));
    match_set_nw_frag(match, 0);
    match_set_nw_proto(match, IPPROTO_TCP);
    match_set_nw_dst(match, htonl(0x0a020001));
    match_set_tp_dst(match, htons(443));
    ofpbuf_init(&put->actions, 64);
    nl_msg_put_u32(&put->actions, OVS_ACTION_ATTR_OUTPUT, out_port);
    return put;
}

void
provider_put_free(struct provider_put *put)
{
    ofpbuf_uninit(&put->actions);
    free(put);
}

void
provider_put_from(struct provider_put *put, uint32_t source_ip, uint16_t source_port)
{
    match_set_nw_src(&put->match, htonl(source_ip));
    match_set_tp_src(&put->match, htons(source_port));
}

bool
provider_flow_put(struct provider_netdev *netdev, struct provider_flows *flows, size_t i, struct provider_put *put)
{
    struct offload_info info = {.flow_mark = 1};

    if (flow_api_dr.flow_put(&netdev->dr.up, &put->match, put->actions.data, put->actions.size,
                             &flows->flows[i].mega_ufid, &info, NULL)) {
        return false;
    }
    flows->flows[i].mark = info.flow_mark;      /* As dpif-netdev does. */
    return true;
}

bool
provider_flow_get(struct provider_netdev *netdev, struct provider_flows *flows, size_t i)
{
    struct dpif_flow_stats stats;
    struct dpif_flow_attrs attrs;

    return !flow_api_dr.flow_get(&netdev->dr.up, NULL, NULL, &flows->flows[i].mega_ufid, &stats, &attrs, NULL);
}
