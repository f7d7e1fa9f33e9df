/* dpif actions -> the actions of a struct ovsdr_megaflow. See megaflow.h. */
#include <config.h>

#include <string.h>

#include "netdev-native-tnl.h"
#include "netlink.h"
#include "odp-netlink.h"
#include "openvswitch/ofpbuf.h"
#include "openvswitch/types.h"
#include "shim/megaflow.h"
#include "shim/software_actions.h"
#include "util.h"

/* A set action is named with what it sets. Both: an int, a datapath may know more than this release. */
static const char *
name_of_set(const struct nlattr *key)
{
    switch ((enum ovs_key_attr) nl_attr_type(key)) {
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
    switch ((enum ovs_action_attr) nl_attr_type(action)) {
    case OVS_ACTION_ATTR_UNSPEC: return "unspec";
    case OVS_ACTION_ATTR_OUTPUT: return "output";
    case OVS_ACTION_ATTR_USERSPACE: return "userspace";
    case OVS_ACTION_ATTR_SET: return "set";
    case OVS_ACTION_ATTR_SET_MASKED: return "set_masked";
    case OVS_ACTION_ATTR_PUSH_VLAN: return "push_vlan";
    case OVS_ACTION_ATTR_POP_VLAN: return "pop_vlan";
    case OVS_ACTION_ATTR_SAMPLE: return "sample";
    case OVS_ACTION_ATTR_RECIRC: return "recirc";
    case OVS_ACTION_ATTR_HASH: return "hash";
    case OVS_ACTION_ATTR_PUSH_MPLS: return "push_mpls";
    case OVS_ACTION_ATTR_POP_MPLS: return "pop_mpls";
    /* With an empty nat, too, it may write addresses and ports. */
    case OVS_ACTION_ATTR_CT: return nl_attr_find_nested(action, OVS_CT_ATTR_NAT) ? "ct(nat)" : "ct";
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

/* A copy takes two entries of the list. One that is nested deeper than this is beyond the list's end. */
enum { MOST_NESTED = OVSDR_MAX_ACTIONS / 2 };

static const char malformed[] = "malformed";

static void
append(struct ovsdr_megaflow *to, const struct ovsdr_action *action)
{
    if (to->n_actions < OVSDR_MAX_ACTIONS) {
        to->actions[to->n_actions] = *action;
    }
    to->n_actions++;
}

static void
append_type(struct ovsdr_megaflow *to, enum ovsdr_action_type type)
{
    struct ovsdr_action action = {.type = type};

    append(to, &action);
}

static void
append_unsupported(struct ovsdr_megaflow *to, const char *name)
{
    struct ovsdr_action action = {.type = OVSDR_ACTION_UNSUPPORTED};

    action.unsupported = name;
    append(to, &action);
}

static bool
has_size(const struct nlattr *attr, size_t size)
{
    return nl_attr_get_size(attr) == size;
}

/* A member of a struct ovs_key_* that OVS writes into the packet (odp-execute.c, packets.c). It reads no other. */
struct member {
    size_t offset, size;
    const char *unsupported;          /* NULL: there is a header field for it */
    enum ovsdr_header_field field;
};

#define MEMBER(STRUCT, NAME) .offset = offsetof(struct STRUCT, NAME), .size = MEMBER_SIZEOF(struct STRUCT, NAME)
static const struct member ethernet[] = {
    {MEMBER(ovs_key_ethernet, eth_src), .field = OVSDR_HEADER_ETH_SRC},
    {MEMBER(ovs_key_ethernet, eth_dst), .field = OVSDR_HEADER_ETH_DST},
};
static const struct member ipv4[] = {
    {MEMBER(ovs_key_ipv4, ipv4_src), .field = OVSDR_HEADER_IP_SRC},
    {MEMBER(ovs_key_ipv4, ipv4_dst), .field = OVSDR_HEADER_IP_DST},
    {MEMBER(ovs_key_ipv4, ipv4_tos), .field = OVSDR_HEADER_IP_TOS},
    {MEMBER(ovs_key_ipv4, ipv4_ttl), .field = OVSDR_HEADER_IP_TTL},
};
static const struct member ipv6[] = {
    {MEMBER(ovs_key_ipv6, ipv6_src), .field = OVSDR_HEADER_IPV6_SRC},
    {MEMBER(ovs_key_ipv6, ipv6_dst), .field = OVSDR_HEADER_IPV6_DST},
    {MEMBER(ovs_key_ipv6, ipv6_label), .unsupported = "set(ipv6(label))"},
    {MEMBER(ovs_key_ipv6, ipv6_tclass), .field = OVSDR_HEADER_IP_TOS},
    {MEMBER(ovs_key_ipv6, ipv6_hlimit), .field = OVSDR_HEADER_IP_TTL},
};
static const struct member tcp[] = {
    {MEMBER(ovs_key_tcp, tcp_src), .field = OVSDR_HEADER_TCP_SRC},
    {MEMBER(ovs_key_tcp, tcp_dst), .field = OVSDR_HEADER_TCP_DST},
};
static const struct member udp[] = {
    {MEMBER(ovs_key_udp, udp_src), .field = OVSDR_HEADER_UDP_SRC},
    {MEMBER(ovs_key_udp, udp_dst), .field = OVSDR_HEADER_UDP_DST},
};

struct header {
    size_t size;                      /* of the struct ovs_key_* */
    const struct member *members;
    size_t n_members;
};

#define HEADER(STRUCT, MEMBERS) {sizeof(struct STRUCT), MEMBERS, ARRAY_SIZE(MEMBERS)}
/* By OVS_KEY_ATTR_*; no members where nothing of a header has a place. */
static const struct header headers[OVS_KEY_ATTR_MAX + 1] = {
    [OVS_KEY_ATTR_ETHERNET] = HEADER(ovs_key_ethernet, ethernet),
    [OVS_KEY_ATTR_IPV4] = HEADER(ovs_key_ipv4, ipv4),
    [OVS_KEY_ATTR_IPV6] = HEADER(ovs_key_ipv6, ipv6),
    [OVS_KEY_ATTR_TCP] = HEADER(ovs_key_tcp, tcp),
    [OVS_KEY_ATTR_UDP] = HEADER(ovs_key_udp, udp),
};

/* `mask` NULL: all of it is written. */
static void
append_member(struct ovsdr_megaflow *to, const struct member *member, const uint8_t *key, const uint8_t *mask)
{
    struct ovsdr_action action;
    uint8_t any = 0, outside = 0;

    memset(&action, 0, sizeof action);
    action.type = OVSDR_ACTION_SET;
    action.set.field = member->field;
    for (size_t i = 0; i < member->size; i++) {
        action.set.value[i] = key[member->offset + i];
        action.set.mask[i] = mask ? mask[member->offset + i] : UINT8_MAX;
        any |= action.set.value[i] | action.set.mask[i];
        outside |= action.set.value[i] & ~action.set.mask[i];
    }
    if (!any) {
        return;
    }
    if (member->unsupported) {
        append_unsupported(to, member->unsupported);
    } else if (outside) {
        /* OVS would not replace such bits, but set those that are one. */
        append_unsupported(to, "set of bits outside the mask");
    } else {
        append(to, &action);
    }
}

/* A set has one attribute, which holds a struct ovs_key_*; a masked one holds the mask behind it. */
static void
append_set(struct ovsdr_megaflow *to, const struct nlattr *action, bool masked)
{
    const struct nlattr *key = nl_attr_get(action);
    const struct header *header;
    const uint8_t *value;

    if (!nl_attr_is_valid(key, nl_attr_get_size(action))) {
        append_unsupported(to, malformed);
        return;
    }
    header = nl_attr_type(key) <= OVS_KEY_ATTR_MAX ? &headers[nl_attr_type(key)] : &headers[OVS_KEY_ATTR_UNSPEC];
    if (!header->n_members) {
        append_unsupported(to, name_of_set(key));
    } else if (!has_size(key, masked ? 2 * header->size : header->size)) {
        append_unsupported(to, malformed);
    } else {
        value = nl_attr_get(key);
        for (size_t i = 0; i < header->n_members; i++) {
            append_member(to, &header->members[i], value, masked ? value + header->size : NULL);
        }
    }
}

static void append_all(struct ovsdr_megaflow *, const void *actions, size_t actions_len, int depth);

/* OVS does nested actions to a copy of the packet, unless there is nothing to be done behind them. */
static void
append_copy(struct ovsdr_megaflow *to, const struct nlattr *nested, int depth)
{
    append_type(to, OVSDR_ACTION_COPY_BEGIN);
    if (depth < MOST_NESTED) {
        append_all(to, nl_attr_get(nested), nl_attr_get_size(nested), depth + 1);
    }
    append_type(to, OVSDR_ACTION_COPY_END);
}

/* Does one of two lists to a copy of the packet; equal ones without a look at its length. */
static void
append_check_pkt_len(struct ovsdr_megaflow *to, const struct nlattr *action, int depth)
{
    static const struct nl_policy policy[] = {
        [OVS_CHECK_PKT_LEN_ATTR_PKT_LEN] = {.type = NL_A_U16},
        [OVS_CHECK_PKT_LEN_ATTR_ACTIONS_IF_GREATER] = {.type = NL_A_NESTED},
        [OVS_CHECK_PKT_LEN_ATTR_ACTIONS_IF_LESS_EQUAL] = {.type = NL_A_NESTED},
    };
    struct nlattr *attrs[ARRAY_SIZE(policy)];
    const struct nlattr *greater, *others;

    if (!nl_parse_nested(action, policy, attrs, ARRAY_SIZE(policy))) {
        append_unsupported(to, malformed);
        return;
    }
    greater = attrs[OVS_CHECK_PKT_LEN_ATTR_ACTIONS_IF_GREATER];
    others = attrs[OVS_CHECK_PKT_LEN_ATTR_ACTIONS_IF_LESS_EQUAL];
    if (has_size(greater, nl_attr_get_size(others))
        && !memcmp(nl_attr_get(greater), nl_attr_get(others), nl_attr_get_size(others))) {
        append_copy(to, greater, depth);
    } else {
        append_unsupported(to, "check_pkt_len (branches differ)");
    }
}

static void
append_software(struct ovsdr_megaflow *to, const struct nlattr *list, size_t size, uint32_t one_of, const char *name)
{
    struct ovsdr_action software = {.type = OVSDR_ACTION_SOFTWARE};

    if (size > OVSDR_MAX_SOFTWARE_ACTIONS) {
        append_unsupported(to, name);
        return;
    }
    software.software.actions = (const uint8_t *) list;
    software.software.actions_size = size;
    software.software.metered_from = meter_in_front(list, size, &software.software.meter);
    software.software.one_of = one_of;
    software.software.name = name;
    software.software.sampler = sampler_of_work(list, size);
    (void) is_cut_output(list, size, &software.software.cut_at, &software.software.output);
    append(to, &software);
}

/* OVS does the list to a copy of one of so many packets. */
static void
append_sample(struct ovsdr_megaflow *to, const struct nlattr *action, int depth)
{
    static const struct nl_policy policy[] = {
        [OVS_SAMPLE_ATTR_PROBABILITY] = {.type = NL_A_U32},
        [OVS_SAMPLE_ATTR_ACTIONS] = {.type = NL_A_NESTED},
    };
    struct nlattr *attrs[ARRAY_SIZE(policy)];
    const struct nlattr *list;
    uint32_t one_of;

    if (!nl_parse_nested(action, policy, attrs, ARRAY_SIZE(policy))) {
        append_unsupported(to, malformed);
        return;
    }
    list = attrs[OVS_SAMPLE_ATTR_ACTIONS];
    one_of = one_of_how_many(nl_attr_get_u32(attrs[OVS_SAMPLE_ATTR_PROBABILITY]));
    if (!one_of) {
        append_unsupported(to, "sample (its probability is no 1/N)");
    } else if (is_software_work(nl_attr_get(list), nl_attr_get_size(list))) {
        append_software(to, nl_attr_get(list), nl_attr_get_size(list), one_of, name_of(action));
    } else if (one_of == 1) {
        append_copy(to, list, depth);
    } else {
        append_unsupported(to, "sample (of more than userspace)");
    }
}

BUILD_ASSERT_DECL(TNL_PUSH_HEADER_SIZE == OVSDR_MAX_TUNNEL_HEADER);

/* Other tunnels' headers hold what OVS counts or computes for each packet. */
static const char *
name_of_foreign_tunnel(uint32_t type)
{
    switch (type) {
    case OVS_VPORT_TYPE_VXLAN:
    case OVS_VPORT_TYPE_GENEVE:
    case OVS_VPORT_TYPE_GRE:
    case OVS_VPORT_TYPE_IP6GRE: return NULL;
    case OVS_VPORT_TYPE_ERSPAN:
    case OVS_VPORT_TYPE_IP6ERSPAN: return "tnl_push of ERSPAN";
    case OVS_VPORT_TYPE_GTPU: return "tnl_push of GTP-U";
    default: return "tnl_push of another tunnel";
    }
}

static void
append_tunnel_push(struct ovsdr_megaflow *to, const struct nlattr *action)
{
    const struct ovs_action_push_tnl *push = nl_attr_get(action);
    const char *foreign = name_of_foreign_tunnel(push->tnl_type);
    struct ovsdr_action encapsulation = {.type = OVSDR_ACTION_TUNNEL_PUSH};

    if (foreign) {
        append_unsupported(to, foreign);
        return;
    }
    encapsulation.tunnel_push.header = (const uint8_t *) push->header;
    encapsulation.tunnel_push.header_size = push->header_len;
    encapsulation.tunnel_push.udp_source_first = tnl_udp_port_min;
    encapsulation.tunnel_push.udp_source_end = tnl_udp_port_max;
    encapsulation.tunnel_push.out_port = odp_to_u32(push->out_port);
    append(to, &encapsulation);
}

static bool
is_whole_tunnel_push(const struct nlattr *action)
{
    const struct ovs_action_push_tnl *push = nl_attr_get(action);
    size_t before = offsetof(struct ovs_action_push_tnl, header);

    return nl_attr_get_size(action) >= before && push->header_len <= sizeof push->header
           && nl_attr_get_size(action) - before >= push->header_len;
}

/* What append_action() reads of the action is there. */
static bool
is_whole(const struct nlattr *action)
{
    switch (nl_attr_type(action)) {
    case OVS_ACTION_ATTR_OUTPUT: return has_size(action, sizeof(odp_port_t));
    case OVS_ACTION_ATTR_PUSH_VLAN: return has_size(action, sizeof(struct ovs_action_push_vlan));
    case OVS_ACTION_ATTR_RECIRC: return has_size(action, sizeof(uint32_t));
    case OVS_ACTION_ATTR_TUNNEL_POP: return has_size(action, sizeof(odp_port_t));
    case OVS_ACTION_ATTR_METER: return has_size(action, sizeof(uint32_t));
    case OVS_ACTION_ATTR_TUNNEL_PUSH: return is_whole_tunnel_push(action);
    default: return true;
    }
}

static void
append_action(struct ovsdr_megaflow *to, const struct nlattr *action, int depth)
{
    struct ovsdr_action simple = {.type = OVSDR_ACTION_UNSUPPORTED};

    switch (nl_attr_type(action)) {
    case OVS_ACTION_ATTR_OUTPUT:
        simple.type = OVSDR_ACTION_OUTPUT;
        simple.output = nl_attr_get_u32(action);
        break;
    case OVS_ACTION_ATTR_PUSH_VLAN: {
        const struct ovs_action_push_vlan *vlan = nl_attr_get(action);

        simple.type = OVSDR_ACTION_PUSH_VLAN;
        simple.push_vlan.be_tpid = vlan->vlan_tpid;
        simple.push_vlan.be_tci = vlan->vlan_tci;
        break;
    }
    case OVS_ACTION_ATTR_POP_VLAN:
        simple.type = OVSDR_ACTION_POP_VLAN;
        break;
    case OVS_ACTION_ATTR_RECIRC:
        simple.type = OVSDR_ACTION_RECIRC;
        simple.recirc_id = nl_attr_get_u32(action);
        break;
    case OVS_ACTION_ATTR_TUNNEL_POP:
        simple.type = OVSDR_ACTION_TUNNEL_POP;
        simple.tunnel_port = nl_attr_get_u32(action);
        break;
    case OVS_ACTION_ATTR_METER:
        simple.type = OVSDR_ACTION_METER;
        simple.meter = nl_attr_get_u32(action);
        break;
    case OVS_ACTION_ATTR_SET:
        append_set(to, action, false);
        return;
    case OVS_ACTION_ATTR_SET_MASKED:
        append_set(to, action, true);
        return;
    case OVS_ACTION_ATTR_TUNNEL_PUSH:
        append_tunnel_push(to, action);
        return;
    case OVS_ACTION_ATTR_CLONE:
        append_copy(to, action, depth);
        return;
    case OVS_ACTION_ATTR_SAMPLE:
        append_sample(to, action, depth);
        return;
    case OVS_ACTION_ATTR_CHECK_PKT_LEN:
        append_check_pkt_len(to, action, depth);
        return;
    default:
        simple.unsupported = name_of(action);
        break;
    }
    append(to, &simple);
}

static void
append_all(struct ovsdr_megaflow *to, const void *actions, size_t actions_len, int depth)
{
    const struct nlattr *action, *done = NULL;
    size_t left, work;

    NL_ATTR_FOR_EACH (action, left, actions, actions_len) {
        /* What comes before a drop has been done, what comes after it in this list never is. */
        if (nl_attr_type(action) == OVS_ACTION_ATTR_DROP) {
            return;
        }
        /* The end of a work that is in the list already: software does it. */
        if (action == done) {
            continue;
        }
        work = software_work_size(action, left, &done);
        if (work) {
            append_software(to, action, work, 1, nl_attr_type(action) == OVS_ACTION_ATTR_TRUNC ? "trunc" : "userspace");
        } else if (is_whole(action)) {
            append_action(to, action, depth);
        } else {
            append_unsupported(to, malformed);
        }
    }
    if (left) {
        append_unsupported(to, malformed);
    }
}

void
megaflow_from_actions(const struct nlattr *actions, size_t actions_len, struct ovsdr_megaflow *to)
{
    to->n_actions = 0;
    append_all(to, actions, actions_len, 0);
}
