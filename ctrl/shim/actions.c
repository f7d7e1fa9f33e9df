/* dpif actions -> the actions of a struct ovsdr_megaflow. See megaflow.h. */
#include <config.h>

#include "netlink.h"
#include "odp-netlink.h"
#include "openvswitch/types.h"
#include "shim/megaflow.h"
#include "util.h"

/* A set action is named with what it sets. */
static const char *
name_of_set(enum ovs_key_attr key)
{
    switch (key) {
    case OVS_KEY_ATTR_UNSPEC: return "set(unspec)";
    case OVS_KEY_ATTR_ENCAP: return "set(encap)";
    case OVS_KEY_ATTR_PRIORITY: return "set(skb_priority)";
    case OVS_KEY_ATTR_IN_PORT: return "set(in_port)";
    case OVS_KEY_ATTR_ETHERNET: return "set(eth)";
    case OVS_KEY_ATTR_VLAN: return "set(vlan)";
    case OVS_KEY_ATTR_ETHERTYPE: return "set(eth_type)";
    case OVS_KEY_ATTR_IPV4: return "set(ipv4)";
    case OVS_KEY_ATTR_IPV6: return "set(ipv6)";
    case OVS_KEY_ATTR_TCP: return "set(tcp)";
    case OVS_KEY_ATTR_UDP: return "set(udp)";
    case OVS_KEY_ATTR_ICMP: return "set(icmp)";
    case OVS_KEY_ATTR_ICMPV6: return "set(icmpv6)";
    case OVS_KEY_ATTR_ARP: return "set(arp)";
    case OVS_KEY_ATTR_ND: return "set(nd)";
    case OVS_KEY_ATTR_SKB_MARK: return "set(skb_mark)";
    case OVS_KEY_ATTR_TUNNEL: return "set(tunnel)";
    case OVS_KEY_ATTR_SCTP: return "set(sctp)";
    case OVS_KEY_ATTR_TCP_FLAGS: return "set(tcp_flags)";
    case OVS_KEY_ATTR_DP_HASH: return "set(dp_hash)";
    case OVS_KEY_ATTR_RECIRC_ID: return "set(recirc_id)";
    case OVS_KEY_ATTR_MPLS: return "set(mpls)";
    case OVS_KEY_ATTR_CT_STATE: return "set(ct_state)";
    case OVS_KEY_ATTR_CT_ZONE: return "set(ct_zone)";
    case OVS_KEY_ATTR_CT_MARK: return "set(ct_mark)";
    case OVS_KEY_ATTR_CT_LABELS: return "set(ct_label)";
    case OVS_KEY_ATTR_CT_ORIG_TUPLE_IPV4: return "set(ct_tuple4)";
    case OVS_KEY_ATTR_CT_ORIG_TUPLE_IPV6: return "set(ct_tuple6)";
    case OVS_KEY_ATTR_NSH: return "set(nsh)";
    case OVS_KEY_ATTR_PACKET_TYPE: return "set(packet_type)";
    case OVS_KEY_ATTR_ND_EXTENSIONS: return "set(nd_ext)";
    case OVS_KEY_ATTR_TUNNEL_INFO: return "set(tunnel_info)";
    case __OVS_KEY_ATTR_MAX: break;
    }
    return "set(unknown)";
}

static const char *
name_of(const struct nlattr *action)
{
    /* An int: a datapath may know more actions than this release. */
    switch ((enum ovs_action_attr) nl_attr_type(action)) {
    case OVS_ACTION_ATTR_UNSPEC: return "unspec";
    case OVS_ACTION_ATTR_OUTPUT: return "output";
    case OVS_ACTION_ATTR_USERSPACE: return "userspace";
    case OVS_ACTION_ATTR_SET: return name_of_set(nl_attr_type(nl_attr_get(action)));
    case OVS_ACTION_ATTR_SET_MASKED: return name_of_set(nl_attr_type(nl_attr_get(action)));
    case OVS_ACTION_ATTR_PUSH_VLAN: return "push_vlan";
    case OVS_ACTION_ATTR_POP_VLAN: return "pop_vlan";
    case OVS_ACTION_ATTR_SAMPLE: return "sample";
    case OVS_ACTION_ATTR_RECIRC: return "recirc";
    case OVS_ACTION_ATTR_HASH: return "hash";
    case OVS_ACTION_ATTR_PUSH_MPLS: return "push_mpls";
    case OVS_ACTION_ATTR_POP_MPLS: return "pop_mpls";
    case OVS_ACTION_ATTR_CT: return "ct";
    case OVS_ACTION_ATTR_TRUNC: return "trunc";
    case OVS_ACTION_ATTR_PUSH_ETH: return "push_eth";
    case OVS_ACTION_ATTR_POP_ETH: return "pop_eth";
    case OVS_ACTION_ATTR_CT_CLEAR: return "ct_clear";
    case OVS_ACTION_ATTR_PUSH_NSH: return "push_nsh";
    case OVS_ACTION_ATTR_POP_NSH: return "pop_nsh";
    case OVS_ACTION_ATTR_METER: return "meter";
    case OVS_ACTION_ATTR_CLONE: return "clone";
    case OVS_ACTION_ATTR_CHECK_PKT_LEN: return "check_pkt_len";
    case OVS_ACTION_ATTR_ADD_MPLS: return "add_mpls";
    case OVS_ACTION_ATTR_TUNNEL_PUSH: return "tnl_push";
    case OVS_ACTION_ATTR_TUNNEL_POP: return "tnl_pop";
    case OVS_ACTION_ATTR_DROP: return "drop";
    case OVS_ACTION_ATTR_LB_OUTPUT: return "lb_output";
    case __OVS_ACTION_ATTR_MAX: break;
    }
    return "unknown";
}

static struct ovsdr_action
translate(const struct nlattr *action)
{
    struct ovsdr_action to = {.type = OVSDR_ACTION_UNSUPPORTED};

    switch (nl_attr_type(action)) {
    case OVS_ACTION_ATTR_OUTPUT:
        to.type = OVSDR_ACTION_OUTPUT;
        to.output = nl_attr_get_u32(action);
        break;
    case OVS_ACTION_ATTR_PUSH_VLAN: {
        const struct ovs_action_push_vlan *vlan = nl_attr_get(action);

        to.type = OVSDR_ACTION_PUSH_VLAN;
        to.push_vlan.be_tpid = vlan->vlan_tpid;
        to.push_vlan.be_tci = vlan->vlan_tci;
        break;
    }
    case OVS_ACTION_ATTR_POP_VLAN:
        to.type = OVSDR_ACTION_POP_VLAN;
        break;
    default:
        to.unsupported = name_of(action);
        break;
    }
    return to;
}

void
megaflow_from_actions(const struct nlattr *actions, size_t actions_len, struct ovsdr_megaflow *to)
{
    const struct nlattr *action;
    size_t left;

    to->n_actions = 0;
    NL_ATTR_FOR_EACH (action, left, actions, actions_len) {
        /* What comes before a drop has been done, what comes after never is. */
        if (nl_attr_type(action) == OVS_ACTION_ATTR_DROP) {
            return;
        }
        if (to->n_actions < OVSDR_MAX_ACTIONS) {
            to->actions[to->n_actions] = translate(action);
        }
        to->n_actions++;
    }
}
