/* struct match -> the match of a struct ovsdr_megaflow. See megaflow.h. */
#include <config.h>

#include "openvswitch/match.h"

#include <stdbool.h>
#include <string.h>

#include "flow.h"
#include "odp-util.h"
#include "packets.h"
#include "shim/megaflow.h"
#include "util.h"

/* Another struct flow needs another look at every field below. */
BUILD_ASSERT_DECL(FLOW_WC_SEQ == 42);

/* Who gives a field its value. Of all but PACKET, zero stands for none. */
enum origin {
    PACKET,     /* the packet; the port and the recirculation that it comes from */
    SWITCH,     /* set(skb_mark), hash and the like; OpenFlow's own fields are never in a datapath's packet */
    TRACKER,    /* ct */
    TUNNEL,     /* tnl_pop */
};

/* Every byte of struct flow, in its order: who sets it, and its name in ovs-fields(7). */
#define FIELDS(FIELD) \
    FIELD(TUNNEL, tunnel.ip_dst, "tun_dst") \
    FIELD(TUNNEL, tunnel.ipv6_dst, "tun_ipv6_dst") \
    FIELD(TUNNEL, tunnel.ip_src, "tun_src") \
    FIELD(TUNNEL, tunnel.ipv6_src, "tun_ipv6_src") \
    FIELD(TUNNEL, tunnel.tun_id, "tun_id") \
    FIELD(TUNNEL, tunnel.flags, "tun_flags") \
    FIELD(TUNNEL, tunnel.ip_tos, "tun_tos") \
    FIELD(TUNNEL, tunnel.ip_ttl, "tun_ttl") \
    FIELD(TUNNEL, tunnel.tp_src, "tun_tp_src") \
    FIELD(TUNNEL, tunnel.tp_dst, "tun_tp_dst") \
    FIELD(TUNNEL, tunnel.gbp_id, "tun_gbp_id") \
    FIELD(TUNNEL, tunnel.gbp_flags, "tun_gbp_flags") \
    FIELD(TUNNEL, tunnel.erspan_ver, "tun_erspan_ver") \
    FIELD(TUNNEL, tunnel.erspan_idx, "tun_erspan_idx") \
    FIELD(TUNNEL, tunnel.erspan_dir, "tun_erspan_dir") \
    FIELD(TUNNEL, tunnel.erspan_hwid, "tun_erspan_hwid") \
    FIELD(TUNNEL, tunnel.gtpu_flags, "tun_gtpu_flags") \
    FIELD(TUNNEL, tunnel.gtpu_msgtype, "tun_gtpu_msgtype") \
    FIELD(TUNNEL, tunnel.metadata, "tun_metadata") \
    FIELD(SWITCH, metadata, "metadata") \
    FIELD(SWITCH, regs, "reg") \
    FIELD(SWITCH, skb_priority, "skb_priority") \
    FIELD(SWITCH, pkt_mark, "pkt_mark") \
    FIELD(SWITCH, dp_hash, "dp_hash") \
    FIELD(PACKET, in_port, "in_port") \
    FIELD(PACKET, recirc_id, "recirc_id") \
    FIELD(TRACKER, ct_state, "ct_state") \
    FIELD(TRACKER, ct_nw_proto, "ct_nw_proto") \
    FIELD(TRACKER, ct_zone, "ct_zone") \
    FIELD(TRACKER, ct_mark, "ct_mark") \
    FIELD(PACKET, packet_type, "packet_type") \
    FIELD(TRACKER, ct_label, "ct_label") \
    FIELD(SWITCH, conj_id, "conj_id") \
    FIELD(SWITCH, actset_output, "actset_output") \
    FIELD(PACKET, dl_dst, "eth_dst") \
    FIELD(PACKET, dl_src, "eth_src") \
    FIELD(PACKET, dl_type, "eth_type") \
    FIELD(PACKET, vlans, "vlan_tci") \
    FIELD(PACKET, mpls_lse, "mpls") \
    FIELD(PACKET, nw_src, "nw_src") \
    FIELD(PACKET, nw_dst, "nw_dst") \
    FIELD(TRACKER, ct_nw_src, "ct_nw_src") \
    FIELD(TRACKER, ct_nw_dst, "ct_nw_dst") \
    FIELD(PACKET, ipv6_src, "ipv6_src") \
    FIELD(PACKET, ipv6_dst, "ipv6_dst") \
    FIELD(TRACKER, ct_ipv6_src, "ct_ipv6_src") \
    FIELD(TRACKER, ct_ipv6_dst, "ct_ipv6_dst") \
    FIELD(PACKET, ipv6_label, "ipv6_label") \
    FIELD(PACKET, nw_frag, "nw_frag") \
    FIELD(PACKET, nw_tos, "nw_tos") \
    FIELD(PACKET, nw_ttl, "nw_ttl") \
    FIELD(PACKET, nw_proto, "nw_proto") \
    FIELD(PACKET, nd_target, "nd_target") \
    FIELD(PACKET, arp_sha, "arp_sha") \
    FIELD(PACKET, arp_tha, "arp_tha") \
    FIELD(PACKET, tcp_flags, "tcp_flags") \
    FIELD(PACKET, nsh, "nsh") \
    FIELD(PACKET, tp_src, "tp_src") \
    FIELD(PACKET, tp_dst, "tp_dst") \
    FIELD(TRACKER, ct_tp_src, "ct_tp_src") \
    FIELD(TRACKER, ct_tp_dst, "ct_tp_dst") \
    FIELD(PACKET, igmp_group_ip4, "igmp_group_ip4")

struct field {
    enum origin origin;
    size_t offset, size;
};

#define AS_FIELD(ORIGIN, MEMBER, NAME) {ORIGIN, offsetof(struct flow, MEMBER), MEMBER_SIZEOF(struct flow, MEMBER)},
#define AS_NAME(ORIGIN, MEMBER, NAME) NAME,
/* Last the padding: all that is no field. */
static const struct field fields[] = {FIELDS(AS_FIELD) {PACKET, 0, sizeof(struct flow)}};
static const char *const names[] = {FIELDS(AS_NAME) "padding"};

/* A field's number is its bit in struct ovsdr_names. */
BUILD_ASSERT_DECL(ARRAY_SIZE(names) <= 64);

static size_t
number_of_field(size_t offset)
{
    size_t i = 0;

    while (offset < fields[i].offset || offset >= fields[i].offset + fields[i].size) {
        i++;
    }
    return i;
}

const char *
megaflow_field_name(size_t offset)
{
    return names[number_of_field(offset)];
}

/* Moves MEMBER of the flow and of its mask over, and takes it out of what is left of the mask. */
#define CARRY(TO, MEMBER)                                           \
    do {                                                            \
        BUILD_ASSERT(sizeof to->key.TO == sizeof flow->MEMBER);     \
        memcpy(&to->key.TO, &flow->MEMBER, sizeof flow->MEMBER);    \
        memcpy(&to->mask.TO, &left->MEMBER, sizeof left->MEMBER);   \
        memset(&left->MEMBER, 0, sizeof left->MEMBER);              \
    } while (0)

static void
carry_metadata(const struct flow *flow, struct flow *left, struct ovsdr_megaflow *to)
{
    to->key.in_port = odp_to_u32(flow->in_port.odp_port);
    to->mask.in_port = odp_to_u32(left->in_port.odp_port);
    left->in_port.odp_port = 0;
    CARRY(recirc_id, recirc_id);
    /* A vport's packets are Ethernet frames, and so is what the NIC takes out of tunnels (a header that OVS finds
     * something else behind does not get that far: tunnel_match.hpp): matching on that is matching on nothing. */
    if (flow->packet_type == htonl(PT_ETH)) {
        left->packet_type = 0;
    }
}

/* Bits of the tunnel's flags that have a place. */
static uint8_t
tunnel_flags(uint16_t flags)
{
    return (flags & FLOW_TNL_F_CSUM ? OVSDR_TUNNEL_CSUM : 0) | (flags & FLOW_TNL_F_KEY ? OVSDR_TUNNEL_KEY : 0)
           | (flags & FLOW_TNL_F_OAM ? OVSDR_TUNNEL_OAM : 0);
}

static void
carry_tunnel_flags(const struct flow *flow, struct flow *left, struct ovsdr_megaflow *to)
{
    to->tunnel_key.flags = tunnel_flags(flow->tunnel.flags);
    to->tunnel_mask.flags = tunnel_flags(left->tunnel.flags);
    left->tunnel.flags &= ~(FLOW_TNL_F_CSUM | FLOW_TNL_F_KEY | FLOW_TNL_F_OAM);
    /* tnl_pop sets DONT_FRAGMENT for no packet, whatever it was in, and UDPIF, which says how the options lie in struct
     * flow, for all of Geneve: matching on that is matching on nothing. */
    left->tunnel.flags &= flow->tunnel.flags | ~FLOW_TNL_F_DONT_FRAGMENT;
    left->tunnel.flags &= ~(flow->tunnel.flags & FLOW_TNL_F_UDPIF);
}

/* Geneve's, which are raw bytes in a datapath's flow. What lies behind their end is not of the packet. */
static void
carry_tunnel_options(const struct flow *flow, struct flow *left, struct ovsdr_megaflow *to)
{
    const struct tun_metadata *key = &flow->tunnel.metadata;
    struct tun_metadata *mask = &left->tunnel.metadata;
    size_t size = MIN(key->present.len, sizeof to->tunnel_key.option);

    if (!(flow->tunnel.flags & FLOW_TNL_F_UDPIF)) {
        return;
    }
    to->tunnel_key.options_size = key->present.len;
    to->tunnel_mask.options_size = mask->present.len;
    mask->present.len = 0;
    memcpy(to->tunnel_key.option, key->opts.u8, size);
    memcpy(to->tunnel_mask.option, mask->opts.u8, size);
    memset(mask->opts.u8, 0, size);
}

/* Moves MEMBER of the tunnel over as CARRY does. */
#define CARRY_TUNNEL(TO, MEMBER)                                                    \
    do {                                                                            \
        BUILD_ASSERT(sizeof to->tunnel_key.TO >= sizeof flow->tunnel.MEMBER);       \
        memcpy(&to->tunnel_key.TO, &flow->tunnel.MEMBER, sizeof flow->tunnel.MEMBER); \
        memcpy(&to->tunnel_mask.TO, &left->tunnel.MEMBER, sizeof left->tunnel.MEMBER); \
        memset(&left->tunnel.MEMBER, 0, sizeof left->tunnel.MEMBER);                \
    } while (0)

/* Without a destination there is no tunnel. */
static void
carry_tunnel(const struct flow *flow, struct flow *left, struct ovsdr_megaflow *to)
{
    if (!flow_tnl_dst_is_set(&flow->tunnel)) {
        return;
    }
    if (flow->tunnel.ip_dst) {
        CARRY_TUNNEL(src, ip_src);
        CARRY_TUNNEL(dst, ip_dst);
    } else {
        to->tunnel_key.ipv6 = 1;
        CARRY_TUNNEL(src, ipv6_src);
        CARRY_TUNNEL(dst, ipv6_dst);
    }
    CARRY_TUNNEL(be_id, tun_id);
    CARRY_TUNNEL(tos, ip_tos);
    CARRY_TUNNEL(ttl, ip_ttl);
    CARRY_TUNNEL(be_tp_src, tp_src);
    CARRY_TUNNEL(be_tp_dst, tp_dst);
    carry_tunnel_flags(flow, left, to);
    carry_tunnel_options(flow, left, to);
}

static void
carry_l2(const struct flow *flow, struct flow *left, struct ovsdr_megaflow *to)
{
    CARRY(eth_dst, dl_dst);
    CARRY(eth_src, dl_src);
    CARRY(be_eth_type, dl_type);
    for (size_t i = 0; i < ARRAY_SIZE(flow->vlans); i++) {
        CARRY(be_vlan_tpid[i], vlans[i].tpid);
        CARRY(be_vlan_tci[i], vlans[i].tci);
    }
    to->key.vlan_limit = flow_vlan_limit;
}

static void
carry_addresses(const struct flow *flow, struct flow *left, struct ovsdr_megaflow *to)
{
    /* src and dst have room for 16 bytes, IPv4 takes the first 4. */
    if (flow->dl_type == htons(ETH_TYPE_IPV6)) {
        to->key.ipv6 = 1;
        CARRY(src, ipv6_src);
        CARRY(dst, ipv6_dst);
        CARRY(be_ipv6_label, ipv6_label);
    } else if (flow->dl_type == htons(ETH_TYPE_IP) || flow->dl_type == htons(ETH_TYPE_ARP)
               || flow->dl_type == htons(ETH_TYPE_RARP)) {
        to->key.arp = flow->dl_type != htons(ETH_TYPE_IP);
        memcpy(to->key.src, &flow->nw_src, sizeof flow->nw_src);
        memcpy(to->mask.src, &left->nw_src, sizeof left->nw_src);
        memcpy(to->key.dst, &flow->nw_dst, sizeof flow->nw_dst);
        memcpy(to->mask.dst, &left->nw_dst, sizeof left->nw_dst);
        left->nw_src = 0;
        left->nw_dst = 0;
    }
}

static void
carry_ip(const struct flow *flow, struct flow *left, struct ovsdr_megaflow *to)
{
    CARRY(ip_proto, nw_proto);
    CARRY(ip_tos, nw_tos);
    CARRY(ip_ttl, nw_ttl);
    CARRY(ip_frag, nw_frag);
}

static void
carry_l4(const struct flow *flow, struct flow *left, struct ovsdr_megaflow *to)
{
    CARRY(be_tp_src, tp_src);
    CARRY(be_tp_dst, tp_dst);
    /* In ICMPv6 the same bytes hold the type of an ND option. */
    if (flow->nw_proto == IPPROTO_TCP) {
        CARRY(be_tcp_flags, tcp_flags);
    }
}

/* What only ND has: its target, the link-layer addresses and the type of its options, its reserved bits. */
static const struct {
    size_t offset, size;
} nd_fields[] = {
#define ND_FIELD(MEMBER) {offsetof(struct flow, MEMBER), MEMBER_SIZEOF(struct flow, MEMBER)}
    ND_FIELD(nd_target), ND_FIELD(arp_sha), ND_FIELD(arp_tha), ND_FIELD(tcp_flags), ND_FIELD(igmp_group_ip4),
};

/* Whether ND's fields are matched on, and for zero only. */
static bool
wants_no_nd(const struct flow *flow, const struct flow *left)
{
    bool masked = false;

    for (size_t i = 0; i < ARRAY_SIZE(nd_fields); i++) {
        const uint8_t *key = (const uint8_t *) flow + nd_fields[i].offset;
        const uint8_t *mask = (const uint8_t *) left + nd_fields[i].offset;

        for (size_t j = 0; j < nd_fields[i].size; j++) {
            if (key[j] & mask[j]) {
                return false;
            }
            masked |= mask[j];
        }
    }
    return masked;
}

/* Of ICMPv6 only solicitations and advertisements of neighbours have ND's fields; in every other packet they are zero,
 * and a match for that is no match. OVS holds an echo request against rules for ND too, which leaves in its megaflow a
 * bit or two of these fields, and as much of the type as another rule needed: 128/0xf8, say. What tells the packet's
 * type from ND's is added to the type's mask then. Of the megaflow's other types the packets come up, and software has
 * the same megaflow for them. */
static void
leave_nd_out(const struct flow *flow, struct flow *left)
{
    static const uint8_t nd_types[] = {ND_NEIGHBOR_SOLICIT, ND_NEIGHBOR_ADVERT};

    if (flow->dl_type != htons(ETH_TYPE_IPV6) || left->dl_type != OVS_BE16_MAX || flow->nw_proto != IPPROTO_ICMPV6
        || left->nw_proto != UINT8_MAX || !wants_no_nd(flow, left)) {
        return;
    }
    for (size_t i = 0; i < ARRAY_SIZE(nd_types); i++) {
        uint16_t differs = ntohs(flow->tp_src) ^ nd_types[i];

        if (!differs) {
            return;
        }
        if (!(differs & ntohs(left->tp_src))) {
            left->tp_src |= htons(1 << log_2_floor(differs));
        }
    }
    for (size_t i = 0; i < ARRAY_SIZE(nd_fields); i++) {
        memset((uint8_t *) left + nd_fields[i].offset, 0, nd_fields[i].size);
    }
}

/* Whether zero is a value of such a field in this megaflow's packets like any other, and not the lack of one. */
static bool
has_value(const struct flow *flow, const struct flow *left, enum origin origin)
{
    switch (origin) {
    case PACKET: return true;
    case SWITCH: return false;
    case TRACKER: return flow->ct_state & left->ct_state;
    case TUNNEL: return flow_tnl_dst_is_set(&flow->tunnel);
    }
    return true;
}

/* Of the bytes from `begin` up to `end`. */
static void
add_left(const struct flow *flow, const struct flow *left, size_t begin, size_t end, struct ovsdr_names *all)
{
    const uint8_t *key = (const uint8_t *) flow;
    const uint8_t *mask = (const uint8_t *) left;

    for (size_t i = begin; i < end; i++) {
        if (mask[i]) {
            size_t field = number_of_field(i);

            if (key[i] & mask[i] || has_value(flow, left, fields[field].origin)) {
                all->bits |= UINT64_C(1) << field;
                all->names = names;
            }
        }
    }
}

/* The last step: whatever byte of the mask is still there, no step above knows what to do with.
 *
 * A match for zero of metadata is no match, because all packets that the NIC can hold against this megaflow have it:
 * OVS clears the metadata of a packet that a vport hands it, and tnl_pop clears it too, and sets the tunnel's. Behind a
 * recirculation the NIC has only packets that megaflows in the NIC have sent there. Those do nothing but what enum
 * ovsdr_action_type knows: outputs, VLAN tags, set of header fields, copies, recirculation, tnl_pop, and tnl_push,
 * behind which the compiler takes no recirculation. A megaflow that does something else (ct, hash, set(skb_mark)) stays
 * in software, and its packets with it.
 *
 * What a tunnel leaves is in all megaflows of its port, in those behind recirculations too, and in no other: zero is a
 * value there like any other. Whoever carries over another action that leaves metadata behind must make its fields say
 * so in has_value(). */
static struct ovsdr_names
all_left(const struct flow *flow, const struct flow *left)
{
    const uint8_t *mask = (const uint8_t *) left;
    struct ovsdr_names all = {.bits = 0};
    uint64_t words[4];

    /* Nearly always nothing is left: several words are looked at together. */
    BUILD_ASSERT(sizeof *left % sizeof words == 0);
    for (size_t i = 0; i < sizeof *left; i += sizeof words) {
        memcpy(words, mask + i, sizeof words);
        if (words[0] | words[1] | words[2] | words[3]) {
            add_left(flow, left, i, i + sizeof words, &all);
        }
    }
    return all;
}

void
megaflow_from_match(const struct match *match, struct ovsdr_megaflow *to)
{
    const struct flow *flow = &match->flow;
    struct flow mask = match->wc.masks;
    struct flow *left = &mask;

    memset(&to->key, 0, sizeof to->key);
    memset(&to->mask, 0, sizeof to->mask);
    memset(&to->tunnel_key, 0, sizeof to->tunnel_key);
    memset(&to->tunnel_mask, 0, sizeof to->tunnel_mask);
    leave_nd_out(flow, left);
    carry_metadata(flow, left, to);
    carry_tunnel(flow, left, to);
    carry_l2(flow, left, to);
    carry_addresses(flow, left, to);
    carry_ip(flow, left, to);
    carry_l4(flow, left, to);
    to->unsupported_match = all_left(flow, left);
}
