/* See adopt.h. */
#include <config.h>

#include "shim/adopt.h"

#include <netinet/icmp6.h>
#include <netinet/in.h>

#include "ctrl/flow.h"
#include "ctrl/tunnel_port.h"
#include "dpif.h"
#include "flow.h"
#include "netdev-offload.h"
#include "netlink.h"
#include "odp-netlink.h"
#include "odp-util.h"
#include "openvswitch/vlog.h"
#include "packets.h"
#include "shim/gate.h"
#include "shim/modification.h"
#include "shim/netdev_dr.h"
#include "shim/real.h"
#include "shim/tunnel_port.h"
#include "sset.h"
#include "util.h"

VLOG_DEFINE_THIS_MODULE(adopt);

enum { BATCH = 50 };

static void
put_as_it_is(struct dpif *dpif, const struct dpif_flow *flow)
{
    struct dpif_op op = {
        .type = DPIF_OP_FLOW_PUT,
        .flow_put = {
            .flags = DPIF_FP_MODIFY,
            .key = flow->key,
            .key_len = flow->key_len,
            .mask = flow->mask,
            .mask_len = flow->mask_len,
            .actions = flow->actions,
            .actions_len = flow->actions_len,
            .ufid = flow->ufid_present ? &flow->ufid : NULL,
            .pmd_id = flow->pmd_id,
        },
    };
    struct dpif_op *ops = &op;
    unsigned int patience_ms = 0;       /* Ports change in this thread. */

    if (is_modification_of_one(&op)) {
        modification_operate(dpif, &op, DPIF_OFFLOAD_AUTO, &patience_ms);
    } else {
        real_dpif_operate(dpif, &ops, 1, DPIF_OFFLOAD_AUTO);
    }
}

/* A dump has nothing of ND in it but where the whole type of ICMPv6 is matched, and for a solicitation or advertisement
 * the whole code: what is matched of ND beside less of the type is not told. The packets of other types that such a
 * megaflow is for have zero there; those of ND need not, and are not the megaflow's. */
static bool
is_told_whole(const struct dpif_flow *megaflow)
{
    struct flow_wildcards wc;
    struct flow flow;
    uint8_t type, type_mask;

    if (odp_flow_key_to_flow(megaflow->key, megaflow->key_len, &flow, NULL) == ODP_FIT_ERROR
        || odp_flow_key_to_mask(megaflow->mask, megaflow->mask_len, &wc, &flow, NULL) == ODP_FIT_ERROR) {
        return false;
    }
    if (flow.dl_type != htons(ETH_TYPE_IPV6) || flow.nw_proto != IPPROTO_ICMPV6 || !wc.masks.nw_proto) {
        return true;
    }
    type = ntohs(flow.tp_src);
    type_mask = ntohs(wc.masks.tp_src);
    return type_mask == UINT8_MAX
           && (type < ND_NEIGHBOR_SOLICIT || type > ND_NEIGHBOR_ADVERT || (ntohs(wc.masks.tp_dst) & 0xff) == 0xff);
}

static bool
is_of_tunnel_port(const struct dpif_flow *flow)
{
    const struct nlattr *in_port = nl_attr_find__(flow->key, flow->key_len, OVS_KEY_ATTR_IN_PORT);
    struct ovsdr_tunnel_port port;

    return in_port && ovsdr_tunnel_port_get(nl_attr_get_u32(in_port), &port);
}

static void
adopt(struct dpif *dpif, bool only_of_tunnel_ports)
{
    struct dpif_flow_dump *dump = real_dpif_flow_dump_create(dpif, false, NULL);
    struct dpif_flow_dump_thread *thread = dpif_flow_dump_thread_create(dump);
    struct dpif_flow flows[BATCH];
    unsigned int total = 0;
    int n;

    while ((n = real_dpif_flow_dump_next(thread, flows, BATCH)) > 0) {
        for (int i = 0; i < n; i++) {
            if ((!only_of_tunnel_ports || is_of_tunnel_port(&flows[i])) && is_told_whole(&flows[i])) {
                put_as_it_is(dpif, &flows[i]);
                total++;
            }
        }
        /* A thread that could not enter for too long would change a flow between our reading and writing it. */
        gate_open();
        gate_close();
    }
    dpif_flow_dump_thread_destroy(thread);
    real_dpif_flow_dump_destroy(dump);
    VLOG_DBG("%s: %u flows offered for offload", dpif_name(dpif), total);
}

static bool
note_dr_port(struct netdev *netdev, odp_port_t odp_port OVS_UNUSED, void *found_)
{
    bool *found = found_;

    *found = is_netdev_dr(netdev);
    return *found;
}

void
adopt_flows(struct dpif *dpif)
{
    static struct sset heard_of = SSET_INITIALIZER(&heard_of);   /* Types of datapaths. */
    const char *type = dpif_normalize_type(dpif_type(dpif));
    bool has_dr_ports = false;

    if (sset_add(&heard_of, type)) {
        netdev_ports_traverse(type, note_dr_port, &has_dr_ports);
        if (has_dr_ports) {
            adopt(dpif, false);
        }
    }
    if (tunnel_port_is_ours(type) && ovsdr_lacks_tunnel_flows()) {
        adopt(dpif, true);
    }
}
