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

/* Every byte of struct flow, in its order, under the name that ovs-fields(7) has for it. */
#define FIELDS(FIELD) \
    FIELD(tunnel.ip_dst, "tun_dst") \
    FIELD(tunnel.ipv6_dst, "tun_ipv6_dst") \
    FIELD(tunnel.ip_src, "tun_src") \
    FIELD(tunnel.ipv6_src, "tun_ipv6_src") \
    FIELD(tunnel.tun_id, "tun_id") \
    FIELD(tunnel.flags, "tun_flags") \
    FIELD(tunnel.ip_tos, "tun_tos") \
    FIELD(tunnel.ip_ttl, "tun_ttl") \
    FIELD(tunnel.tp_src, "tun_tp_src") \
    FIELD(tunnel.tp_dst, "tun_tp_dst") \
    FIELD(tunnel.gbp_id, "tun_gbp_id") \
    FIELD(tunnel.gbp_flags, "tun_gbp_flags") \
    FIELD(tunnel.erspan_ver, "tun_erspan_ver") \
    FIELD(tunnel.erspan_idx, "tun_erspan_idx") \
    FIELD(tunnel.erspan_dir, "tun_erspan_dir") \
    FIELD(tunnel.erspan_hwid, "tun_erspan_hwid") \
    FIELD(tunnel.gtpu_flags, "tun_gtpu_flags") \
    FIELD(tunnel.gtpu_msgtype, "tun_gtpu_msgtype") \
    FIELD(tunnel.metadata, "tun_metadata") \
    FIELD(metadata, "metadata") \
    FIELD(regs, "reg") \
    FIELD(skb_priority, "skb_priority") \
    FIELD(pkt_mark, "pkt_mark") \
    FIELD(dp_hash, "dp_hash") \
    FIELD(in_port, "in_port") \
    FIELD(recirc_id, "recirc_id") \
    FIELD(ct_state, "ct_state") \
    FIELD(ct_nw_proto, "ct_nw_proto") \
    FIELD(ct_zone, "ct_zone") \
    FIELD(ct_mark, "ct_mark") \
    FIELD(packet_type, "packet_type") \
    FIELD(ct_label, "ct_label") \
    FIELD(conj_id, "conj_id") \
    FIELD(actset_output, "actset_output") \
    FIELD(dl_dst, "eth_dst") \
    FIELD(dl_src, "eth_src") \
    FIELD(dl_type, "eth_type") \
    FIELD(vlans, "vlan_tci") \
    FIELD(mpls_lse, "mpls") \
    FIELD(nw_src, "nw_src") \
    FIELD(nw_dst, "nw_dst") \
    FIELD(ct_nw_src, "ct_nw_src") \
    FIELD(ct_nw_dst, "ct_nw_dst") \
    FIELD(ipv6_src, "ipv6_src") \
    FIELD(ipv6_dst, "ipv6_dst") \
    FIELD(ct_ipv6_src, "ct_ipv6_src") \
    FIELD(ct_ipv6_dst, "ct_ipv6_dst") \
    FIELD(ipv6_label, "ipv6_label") \
    FIELD(nw_frag, "nw_frag") \
    FIELD(nw_tos, "nw_tos") \
    FIELD(nw_ttl, "nw_ttl") \
    FIELD(nw_proto, "nw_proto") \
    FIELD(nd_target, "nd_target") \
    FIELD(arp_sha, "arp_sha") \
    FIELD(arp_tha, "arp_tha") \
    FIELD(tcp_flags, "tcp_flags") \
    FIELD(nsh, "nsh") \
    FIELD(tp_src, "tp_src") \
    FIELD(tp_dst, "tp_dst") \
    FIELD(ct_tp_src, "ct_tp_src") \
    FIELD(ct_tp_dst, "ct_tp_dst") \
    FIELD(igmp_group_ip4, "igmp_group_ip4")


struct field {
    size_t offset, size;
};

#define AS_PLACE(MEMBER, NAME) {offsetof(struct flow, MEMBER), MEMBER_SIZEOF(struct flow, MEMBER)},
#define AS_NAME(MEMBER, NAME) NAME,
static const struct field fields[] = {FIELDS(AS_PLACE)};
static const char *const names[] = {FIELDS(AS_NAME) "padding"};
enum { PADDING = ARRAY_SIZE(fields) };

/* A field's number is its bit in struct ovsdr_names. */
BUILD_ASSERT_DECL(ARRAY_SIZE(names) <= 64);

static size_t
number_of_field(size_t offset)
{
    for (size_t i = 0; i < ARRAY_SIZE(fields); i++) {
        if (offset >= fields[i].offset && offset < fields[i].offset + fields[i].size) {
            return i;
        }
    }
    return PADDING;
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
    /* A vport's packets are Ethernet frames: matching on that is matching on nothing. */
    if (flow->packet_type == htonl(PT_ETH)) {
        left->packet_type = 0;
    }
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

/* The last step: whatever byte of the mask is still there, no step above knows what to do with. */
static struct ovsdr_names
all_left(const struct flow *left)
{
    const uint8_t *bytes = (const uint8_t *) left;
    struct ovsdr_names all = {.bits = 0};

    for (size_t i = 0; i < sizeof *left; i++) {
        if (bytes[i]) {
            all.bits |= UINT64_C(1) << number_of_field(i);
            all.names = names;
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
    carry_metadata(flow, left, to);
    carry_l2(flow, left, to);
    carry_addresses(flow, left, to);
    carry_ip(flow, left, to);
    carry_l4(flow, left, to);
    to->unsupported_match = all_left(left);
}
