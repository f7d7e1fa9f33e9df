// What of OVS's match reaches offload/, and that nothing gets lost on the way.
#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <string>

#include "ovs_probe.h"

namespace {

constexpr std::uint16_t ipv4 = 0x0800, ipv6 = 0x86dd, arp = 0x0806;
constexpr std::uint8_t tcp = 6, icmpv6 = 58;

template <typename Fields>
bool any(const Fields& fields) {
    const Fields none{};
    return std::memcmp(&fields, &none, sizeof none) != 0;
}

/// Whether anything of a mask is carried over.
bool matches(const ovsdr_megaflow& megaflow) { return any(megaflow.mask) || any(megaflow.tunnel_mask); }

/// The fields that have no place, in the order of struct flow: "ct_state,ct_mark".
std::string unsupported(const ovsdr_megaflow& megaflow) {
    std::string names;
    for (int i = 0; i < 64; ++i) {
        if ((megaflow.unsupported_match.bits >> i & 1) == 0) continue;
        if (!names.empty()) names += ",";
        names += megaflow.unsupported_match.names[i];
    }
    return names;
}

ovsdr_megaflow from_match(const std::string& text) {
    ovsdr_megaflow megaflow{};
    std::uint64_t attributes = 0;
    EXPECT_TRUE(probe_match_text(text.c_str(), &megaflow, &attributes)) << text;
    return megaflow;
}

/// Fields of struct flow that no packet of a vport has until an action gives it one.
const std::set<std::string> metadata = {
    "tun_dst", "tun_ipv6_dst", "tun_src", "tun_ipv6_src", "tun_id", "tun_flags", "tun_tos", "tun_ttl", "tun_tp_src",
    "tun_tp_dst", "tun_gbp_id", "tun_gbp_flags", "tun_erspan_ver", "tun_erspan_idx", "tun_erspan_dir",
    "tun_erspan_hwid", "tun_gtpu_flags", "tun_gtpu_msgtype", "tun_metadata", "metadata", "reg", "skb_priority",
    "pkt_mark", "dp_hash", "ct_state", "ct_nw_proto", "ct_zone", "ct_mark", "ct_label", "conj_id", "actset_output",
    "ct_nw_src", "ct_nw_dst", "ct_ipv6_src", "ct_ipv6_dst", "ct_tp_src", "ct_tp_dst"};

TEST(MegaflowMatch, EveryMaskedBitOfStructFlowIsCarriedOverOrNamed) {
    for (const auto& [eth_type, proto] : {std::pair{ipv4, tcp}, {ipv6, icmpv6}, {arp, std::uint8_t{1}}, {0x88b5, 0}}) {
        for (std::size_t bit = 0; bit < 8 * probe_flow_size(); ++bit) {
            const std::string name = probe_field_name(bit / 8);
            const auto bits = static_cast<std::uint8_t>(1 << bit % 8);
            ovsdr_megaflow megaflow;
            probe_match_byte(bit / 8, metadata.contains(name) ? bits : 0, bits, eth_type, proto, &megaflow);
            if (matches(megaflow) || name == "packet_type") {
                EXPECT_EQ(unsupported(megaflow), "") << "bit " << bit;
            } else {
                EXPECT_EQ(unsupported(megaflow), name) << "bit " << bit << " of struct flow, eth_type " << eth_type;
            }
        }
    }
}

TEST(MegaflowMatch, AMatchForZeroOfMetadataIsNoMatch) {
    for (std::size_t offset = 0; offset < probe_flow_size(); ++offset) {
        const std::string name = probe_field_name(offset);
        if (!metadata.contains(name)) continue;
        const bool tells_tunnel = name == "tun_dst" || name == "tun_ipv6_dst";
        ovsdr_megaflow megaflow;
        probe_match_byte(offset, tells_tunnel ? 0 : 0x50, 0xaf, ipv4, tcp, &megaflow);
        EXPECT_EQ(unsupported(megaflow), "") << name << ": no bit of the value is matched on";
        EXPECT_FALSE(matches(megaflow));
    }
}

TEST(MegaflowMatch, AMatchForZeroOfAHeaderFieldIsOne) {
    for (std::size_t offset = 0; offset < probe_flow_size(); ++offset) {
        const std::string name = probe_field_name(offset);
        if (metadata.contains(name) || name == "packet_type") continue;
        ovsdr_megaflow megaflow;
        probe_match_byte(offset, 0, 0xff, 0x88b5, 0, &megaflow);
        EXPECT_TRUE(matches(megaflow) || unsupported(megaflow) == name) << name << ", byte " << offset;
    }
}

TEST(MegaflowMatch, APacketTypeOtherThanEthernetIsNamed) {
    for (std::size_t offset = 0; offset < probe_flow_size(); ++offset) {
        if (std::string(probe_field_name(offset)) != "packet_type") continue;
        ovsdr_megaflow megaflow;
        for (const std::uint8_t bits : {0xff, 0xfe}) {
            probe_match_byte(offset, 1, bits, ipv4, tcp, &megaflow);
            EXPECT_EQ(unsupported(megaflow), "packet_type");
        }
    }
}

struct ZeroCase {
    const char* text;
    const char* unsupported;
};

// As OVN makes them, at the start and behind a recirculation.
const ZeroCase zero_cases[] = {
    {"ct_state(-trk),in_port(1),eth(),eth_type(0x1234)", ""},
    {"ct_state(0/0x3f),in_port(1),eth(),eth_type(0x1234)", ""},
    {"ct_mark(0/0x2),recirc_id(0),in_port(1),eth(),eth_type(0x1234)", ""},
    {"ct_mark(0/0x2),recirc_id(0x7),in_port(1),eth(),eth_type(0x1234)", ""},
    {"ct_state(0x2a/0),ct_mark(0/0x1),recirc_id(0x7),in_port(1),eth(),eth_type(0x1234)", ""},
    {"ct_label(0/0x1),ct_zone(0),dp_hash(0),skb_priority(0),skb_mark(0/0xf),in_port(1),eth(),eth_type(0x1234)", ""},
    {"dp_hash(0x10/0xf),recirc_id(0x7),in_port(1),eth(),eth_type(0x1234)", ""},
    {"dp_hash(0x1/0xf),recirc_id(0x7),in_port(1),eth(),eth_type(0x1234)", "dp_hash"},
    {"ct_mark(0x2/0x2),recirc_id(0),in_port(1),eth(),eth_type(0x1234)", "ct_mark"},
    {"ct_mark(0x2/0x3),in_port(1),eth(),eth_type(0x1234)", "ct_mark"},
    // Of tracked packets zero is a value.
    {"ct_state(-new+trk),ct_mark(0/0x1),recirc_id(0x7),in_port(1),eth(),eth_type(0x1234)", "ct_state,ct_mark"},
    // And of packets out of a tunnel, where most fields have a place.
    {"tunnel(tun_id=0x0,src=1.1.1.1,dst=2.2.2.2,tos=0,ttl=0,flags(-df)),in_port(1),eth(),eth_type(0x1234)", ""},
    {"tunnel(tun_id=0x0,ipv6_src=::1,ipv6_dst=::2,ttl=0,flags(-csum)),in_port(1),eth(),eth_type(0x1234)", ""},
    {"tunnel(src=1.1.1.1,dst=2.2.2.2,ttl=64,vxlan(gbp(id=0,flags=0)),flags()),in_port(1),eth(),eth_type(0x1234)",
     "tun_gbp_id,tun_gbp_flags"},
    // What OVS's tnl_pop sets for no packet.
    {"tunnel(src=1.1.1.1,dst=2.2.2.2,ttl=64,flags(df)),in_port(1),eth(),eth_type(0x1234)", "tun_flags"},
};

TEST(MegaflowMatch, NamesMetadataOnlyWhereAPacketMustHaveSome) {
    for (const auto& [text, names] : zero_cases) EXPECT_EQ(unsupported(from_match(text)), names) << text;
}

TEST(MegaflowMatch, NamesAllFieldsThatHaveNoPlace) {
    const auto megaflow = from_match("skb_mark(1),ct_state(+trk),ct_zone(5),in_port(1),eth(),eth_type(0x1234)");
    EXPECT_EQ(unsupported(megaflow), "pkt_mark,ct_state,ct_zone");
}

TEST(MegaflowMatch, NoFieldOfStructFlowLacksAName) {
    std::set<std::string> names;
    for (std::size_t offset = 0; offset < probe_flow_size(); ++offset) names.insert(probe_field_name(offset));
    EXPECT_EQ(names.size(), 63u) << "62 fields and the padding between them";
}

/// A type of ICMPv6 with a mask, and the mask that is matched on where a field of ND's is masked and zero.
struct NdCase {
    std::uint8_t type, mask, taken;
};

// Enough to tell the type from 135 and 136, and no more.
const NdCase nd_cases[] = {
    {128, 0xff, 0xff}, {1, 0xff, 0xff},   {137, 0xff, 0xff}, {128, 0xf8, 0xfc}, {129, 0xf8, 0xfc}, {131, 0xf8, 0xfc},
    {132, 0xf8, 0xfa}, {133, 0xf8, 0xfa}, {134, 0xf8, 0xf9}, {137, 0xf8, 0xf9}, {138, 0xf8, 0xfa}, {143, 0xf8, 0xfc},
    {128, 0x00, 0x0c}, {1, 0x00, 0x80},   {4, 0x03, 0x83},
};

const std::set<std::string> nd_fields = {"nd_target", "arp_sha", "arp_tha", "tcp_flags", "igmp_group_ip4"};

TEST(MegaflowMatch, WhatOnlyNdHasIsZeroInOtherPacketsOfIcmpv6) {
    for (std::size_t offset = 0; offset < probe_flow_size(); ++offset) {
        const std::string name = probe_field_name(offset);
        if (!nd_fields.contains(name)) continue;
        for (const auto& [type, mask, taken] : nd_cases) {
            ovsdr_megaflow megaflow;
            probe_match_icmpv6(type, mask, offset, 0x50, 0xaf, &megaflow);
            EXPECT_EQ(unsupported(megaflow), "") << name << ", type " << +type;
            EXPECT_EQ(megaflow.mask.be_tp_src, htons(taken)) << name << ", type " << +type << "/" << +mask;
            EXPECT_EQ(megaflow.key.be_tp_src, htons(type));
            EXPECT_EQ(megaflow.mask.be_tcp_flags, 0);
            probe_match_icmpv6(type, mask, offset, 0x50, 0x10, &megaflow);
            EXPECT_EQ(unsupported(megaflow), name) << "no packet of type " << +type << " has it";
        }
        for (const std::uint8_t type : {135, 136}) {
            ovsdr_megaflow megaflow;
            probe_match_icmpv6(type, 0xff, offset, 0, 0x10, &megaflow);
            EXPECT_EQ(unsupported(megaflow), name) << "type " << +type << ": zero is a value";
        }
    }
}

TEST(MegaflowMatch, NoTypeOfIcmpv6ThatIsTakenWithoutNdIsOneOfNd) {
    const auto target = [] {
        std::size_t offset = 0;
        while (std::string(probe_field_name(offset)) != "nd_target") ++offset;
        return offset;
    }();
    for (unsigned type = 0; type < 256; ++type) {
        for (unsigned mask = 0; mask < 256; ++mask) {
            ovsdr_megaflow megaflow;
            probe_match_icmpv6(static_cast<std::uint8_t>(type), static_cast<std::uint8_t>(mask), target, 0, 1,
                               &megaflow);
            const unsigned taken = ntohs(megaflow.mask.be_tp_src);
            const bool has_nd = ((type ^ 135) & taken) == 0 || ((type ^ 136) & taken) == 0;
            ASSERT_EQ(has_nd, unsupported(megaflow) == "nd_target") << type << "/" << mask;
            ASSERT_EQ(taken & mask, mask);
            ASSERT_EQ(has_nd, type == 135 || type == 136);
        }
    }
}

TEST(MegaflowMatch, IcmpIsTakenAsItIsWhereNdIsNotMatchedOn) {
    ovsdr_megaflow megaflow;
    probe_match_icmpv6(128, 0xf8, 0, 0, 0, &megaflow);
    EXPECT_EQ(megaflow.mask.be_tp_src, htons(0xf8));
}

struct KeyCase {
    const char* text;
    const char* unsupported;  // empty: all of it is carried over
};

// In dpctl's words; together they have every attribute of a key.
const KeyCase key_cases[] = {
    {"recirc_id(0),in_port(1),packet_type(ns=0,id=0),eth(src=00:01:02:03:04:05,dst=10:11:12:13:14:15),eth_type(0x1234)",
     ""},
    {"in_port(1),eth(),eth_type(0x8100),vlan(vid=99,pcp=7),encap(eth_type(0x0800),ipv4(src=1.2.3.4,dst=5.6.7.8,proto=6,"
     "tos=0,ttl=64,frag=no),tcp(src=80,dst=8080))",
     ""},
    {"in_port(1),eth(),eth_type(0x86dd),ipv6(src=::1,dst=::2,label=0,proto=17,tclass=0,hlimit=64,frag=no),"
     "udp(src=80,dst=8080)",
     ""},
    {"in_port(1),eth(),eth_type(0x0800),ipv4(src=1.2.3.4,dst=5.6.7.8,proto=6,tos=0,ttl=64,frag=no),"
     "tcp(src=80,dst=8080),tcp_flags(+syn-ack)",
     ""},
    {"in_port(1),eth(),eth_type(0x0800),ipv4(src=1.2.3.4,dst=5.6.7.8,proto=1,tos=0,ttl=64,frag=no),icmp(type=8,code=0)",
     ""},
    {"in_port(1),eth(),eth_type(0x0800),ipv4(src=1.2.3.4,dst=5.6.7.8,proto=132,tos=0,ttl=64,frag=no),sctp(src=8,dst=9)",
     ""},
    {"in_port(1),eth(),eth_type(0x86dd),ipv6(src=::1,dst=::2,label=0,proto=58,tclass=0,hlimit=64,frag=no),"
     "icmpv6(type=1,code=0)",
     ""},
    {"in_port(1),eth(),eth_type(0x0806),arp(sip=1.2.3.4,tip=5.6.7.8,op=1,sha=00:0f:10:11:12:13,tha=00:14:15:16:17:18)",
     "arp_sha,arp_tha"},
    {"in_port(1),eth(),eth_type(0x86dd),ipv6(src=::1,dst=::2,label=0,proto=58,tclass=0,hlimit=64,frag=no),"
     "icmpv6(type=135,code=0),nd(target=::3,sll=00:05:06:07:08:09,tll=00:0a:0b:0c:0d:0e)",
     "nd_target,arp_sha,arp_tha"},
    {"in_port(1),eth(),eth_type(0x86dd),ipv6(src=::1,dst=::2,label=0,proto=58,tclass=0,hlimit=64,frag=no),"
     "icmpv6(type=135,code=0),nd_ext(nd_reserved=0x1,nd_options_type=1)",
     "tcp_flags,igmp_group_ip4"},
    {"skb_priority(0x1234),in_port(1),eth(),eth_type(0x1234)", "skb_priority"},
    {"skb_mark(0x1234),in_port(1),eth(),eth_type(0x1234)", "pkt_mark"},
    {"dp_hash(0x1),in_port(1),eth(),eth_type(0x1234)", "dp_hash"},
    {"tunnel(tun_id=0x7f10354,src=10.10.10.10,dst=20.20.20.20,ttl=64,flags(csum|key)),in_port(1),eth(),"
     "eth_type(0x1234)",
     ""},
    {"ct_state(+trk+est),in_port(1),eth(),eth_type(0x1234)", "ct_state"},
    {"ct_zone(5),in_port(1),eth(),eth_type(0x1234)", "ct_zone"},
    {"ct_mark(5),in_port(1),eth(),eth_type(0x1234)", "ct_mark"},
    {"ct_label(0x5),in_port(1),eth(),eth_type(0x1234)", "ct_label"},
    {"ct_tuple4(src=1.2.3.4,dst=5.6.7.8,proto=6,tp_src=1,tp_dst=2),in_port(1),eth(),eth_type(0x1234)",
     "ct_nw_proto,ct_nw_src,ct_nw_dst,ct_tp_src,ct_tp_dst"},
    {"ct_tuple6(src=::1,dst=::2,proto=6,tp_src=1,tp_dst=2),in_port(1),eth(),eth_type(0x1234)",
     "ct_nw_proto,ct_ipv6_src,ct_ipv6_dst,ct_tp_src,ct_tp_dst"},
    {"in_port(1),eth(),eth_type(0x8847),mpls(label=100,tc=7,ttl=64,bos=1)", "mpls"},
};

TEST(MegaflowMatch, EveryAttributeOfAKeyIsCarriedOverOrNamed) {
    std::uint64_t seen = 0;
    for (const auto& [text, names] : key_cases) {
        ovsdr_megaflow megaflow{};
        ASSERT_TRUE(probe_match_text(text, &megaflow, &seen)) << text;
        EXPECT_EQ(unsupported(megaflow), names) << text;
    }
    ovsdr_megaflow nsh{};
    ASSERT_TRUE(probe_match_nsh(&nsh, &seen));
    EXPECT_EQ(unsupported(nsh), "nsh");
    for (int attribute = 1; attribute <= probe_key_attribute_max; ++attribute) {
        if (attribute == probe_key_tunnel_info) continue;  // the kernel's own
        EXPECT_TRUE(seen >> attribute & 1) << "OVS_KEY_ATTR " << attribute << " has no case";
    }
}

TEST(MegaflowMatch, CarriesAddressesPortsAndTags) {
    const auto megaflow = from_match(
        "in_port(7),eth(src=00:01:02:03:04:05/ff:ff:ff:00:00:00,dst=10:11:12:13:14:15),eth_type(0x8100),"
        "vlan(vid=99,pcp=7),encap(eth_type(0x0800),ipv4(src=1.2.3.0/255.255.255.0,dst=5.6.7.8,proto=17,tos=0x10,ttl=64,"
        "frag=no),udp(src=80,dst=0/0))");
    EXPECT_EQ(megaflow.key.in_port, 7u);
    EXPECT_EQ(megaflow.mask.in_port, UINT32_MAX);
    EXPECT_EQ(megaflow.key.eth_src[2], 2);
    EXPECT_EQ(megaflow.mask.eth_src[2], 0xff);
    EXPECT_EQ(megaflow.mask.eth_src[3], 0);
    EXPECT_EQ(megaflow.key.be_eth_type, htons(ipv4));
    EXPECT_EQ(megaflow.key.be_vlan_tpid[0], htons(0x8100));
    EXPECT_EQ(megaflow.key.be_vlan_tci[0], htons(7 << 13 | 1 << 12 | 99));
    EXPECT_EQ(megaflow.key.be_vlan_tci[1], 0);
    EXPECT_EQ(megaflow.mask.src[2], 0xff);
    EXPECT_EQ(megaflow.mask.src[3], 0);
    EXPECT_EQ(megaflow.mask.src[4], 0) << "IPv4 takes four bytes";
    EXPECT_EQ(megaflow.key.ip_tos, 0x10);
    EXPECT_EQ(megaflow.key.be_tp_src, htons(80));
    EXPECT_EQ(megaflow.mask.be_tp_src, 0xffff);
    EXPECT_EQ(megaflow.mask.be_tp_dst, 0);
    EXPECT_FALSE(megaflow.key.ipv6);
    EXPECT_FALSE(megaflow.key.arp);
}

TEST(MegaflowMatch, CarriesTheSecondTagAndOvssLimit) {
    const char* const two_tags =
        "in_port(7),eth(),eth_type(0x88a8),vlan(vid=99,pcp=7),encap(eth_type(0x8100),vlan(vid=5/0xff,pcp=1),"
        "encap(eth_type(0x0806)))";
    const auto megaflow = from_match(two_tags);
    EXPECT_EQ(megaflow.key.vlan_limit, 2) << "OVS's own where nobody sets one";
    EXPECT_EQ(megaflow.mask.vlan_limit, 0);
    EXPECT_EQ(megaflow.key.be_vlan_tpid[1], htons(0x8100));
    EXPECT_EQ(megaflow.key.be_vlan_tci[1], htons(1 << 13 | 1 << 12 | 5));
    EXPECT_EQ(megaflow.mask.be_vlan_tci[1], htons(7 << 13 | 1 << 12 | 0xff));
    EXPECT_EQ(megaflow.key.be_eth_type, htons(arp));
    probe_limit_vlans(1);
    const auto limited = from_match("in_port(7),eth(),eth_type(0x88a8),vlan(vid=99,pcp=7),encap(eth_type(0x8100))");
    probe_limit_vlans(0);
    EXPECT_EQ(limited.key.vlan_limit, 1);
    EXPECT_EQ(limited.key.be_vlan_tpid[0], htons(0x88a8));
    EXPECT_EQ(limited.key.be_eth_type, htons(0x8100));
    EXPECT_EQ(limited.key.be_vlan_tci[1], 0);
}

TEST(MegaflowMatch, TellsIpv6AndArpAddressesApart) {
    const auto v6 = from_match(
        "in_port(1),eth(),eth_type(0x86dd),"
        "ipv6(src=2001:db8::1,dst=::2,label=0x12345,proto=6,tclass=0,hlimit=1,frag=later)");
    EXPECT_TRUE(v6.key.ipv6);
    EXPECT_EQ(v6.key.src[0], 0x20);
    EXPECT_EQ(v6.key.src[15], 1);
    EXPECT_EQ(v6.key.be_ipv6_label, htonl(0x12345));
    EXPECT_EQ(v6.key.ip_frag, 3);
    const auto arp_flow = from_match("in_port(1),eth(),eth_type(0x0806),arp(sip=1.2.3.4,op=2)");
    EXPECT_TRUE(arp_flow.key.arp);
    EXPECT_EQ(arp_flow.key.ip_proto, 2);
    EXPECT_EQ(arp_flow.key.src[3], 4);
}

constexpr char behind[] = ",in_port(7),eth(),eth_type(0x1234)";

TEST(MegaflowMatch, CarriesWhatTheTunnelHadAround) {
    const auto megaflow = from_match(
        "tunnel(tun_id=0x102030405060708/0xffffffffffffff00,src=1.2.3.4,dst=5.6.7.0/255.255.255.0,tos=0x11,ttl=64/0xf0,"
        "tp_src=80,tp_dst=4789/0xff,flags(-df-csum+key-oam))" + std::string(behind));
    const ovsdr_tunnel_fields &key = megaflow.tunnel_key, &mask = megaflow.tunnel_mask;
    EXPECT_EQ(unsupported(megaflow), "");
    EXPECT_EQ(std::memcmp(&key.be_id, "\1\2\3\4\5\6\7", 7), 0);
    EXPECT_EQ(std::memcmp(&mask.be_id, "\xff\xff\xff\xff\xff\xff\xff\0", 8), 0);
    EXPECT_EQ(std::memcmp(key.src, "\1\2\3\4\0\0", 6), 0);
    EXPECT_EQ(std::memcmp(mask.src, "\xff\xff\xff\xff\0\0", 6), 0);
    EXPECT_EQ(std::memcmp(mask.dst, "\xff\xff\xff\0\0", 5), 0);
    EXPECT_FALSE(key.ipv6);
    EXPECT_EQ(key.tos, 0x11);
    EXPECT_EQ(mask.tos, 0xff);
    EXPECT_EQ(mask.ttl, 0xf0);
    EXPECT_EQ(key.be_tp_src, htons(80));
    EXPECT_EQ(mask.be_tp_src, 0xffff);
    EXPECT_EQ(mask.be_tp_dst, htons(0xff));
    EXPECT_EQ(key.flags, OVSDR_TUNNEL_KEY);
    EXPECT_EQ(mask.flags, OVSDR_TUNNEL_KEY | OVSDR_TUNNEL_CSUM | OVSDR_TUNNEL_OAM) << "DF is no match";
    EXPECT_EQ(mask.options_size, 0);
}

TEST(MegaflowMatch, TellsATunnelOverIpv6Apart) {
    const auto megaflow = from_match("tunnel(tun_id=1,ipv6_src=::1,ipv6_dst=fd00::2,ttl=64,flags(csum|key))" +
                                     std::string(behind));
    EXPECT_EQ(unsupported(megaflow), "");
    EXPECT_TRUE(megaflow.tunnel_key.ipv6);
    EXPECT_EQ(megaflow.tunnel_key.src[15], 1);
    EXPECT_EQ(megaflow.tunnel_key.dst[0], 0xfd);
    EXPECT_EQ(megaflow.tunnel_mask.dst[15], 0xff);
    EXPECT_EQ(megaflow.tunnel_key.flags, OVSDR_TUNNEL_CSUM | OVSDR_TUNNEL_KEY);
}

struct OptionsCase {
    const char* options;
    int size;
    const char *key, *mask;  // the first eight bytes, as hexadecimal digits
    const char* unsupported;
};

const OptionsCase options_cases[] = {
    {"{class=0x102,type=0x80,len=4,0x10003}", 8, "0102800100010003", "ffffff1fffffffff", ""},
    {"{class=0x102,type=0x80,len=4,0x10003/0x7fff0000}", 8, "0102800100010003", "ffffff1f7fff0000", ""},
    {"{class=0x102,type=0x80,len=0}", 4, "0102800000000000", "ffffff1f00000000", ""},
    {"{class=0x102,type=0x80,len=4,0x10003}{class=0x103,type=0,len=0}", 12, "0102800100010003", "ffffff1fffffffff",
     "tun_metadata"},
    {"{class=0x102,type=0x80,len=8,0x1000300040005/0x0}", 12, "0102800200010003", "ffffff1f00000000", ""},
};

std::string hex(const std::uint8_t (&bytes)[8]) {
    std::string digits;
    for (const std::uint8_t byte : bytes) {
        digits += "0123456789abcdef"[byte >> 4];
        digits += "0123456789abcdef"[byte & 15];
    }
    return digits;
}

TEST(MegaflowMatch, CarriesGenevesFirstOptionAndTheSizeOfAll) {
    for (const auto& [options, size, key, mask, names] : options_cases) {
        const auto megaflow = from_match("tunnel(tun_id=1,src=1.1.1.1,dst=2.2.2.2,ttl=64,geneve(" +
                                         std::string(options) + "),flags(+key))" + behind);
        EXPECT_EQ(unsupported(megaflow), names) << options;
        EXPECT_EQ(megaflow.tunnel_key.options_size, size) << options;
        EXPECT_EQ(megaflow.tunnel_mask.options_size, 0xff) << options;
        EXPECT_EQ(hex(megaflow.tunnel_key.option), key) << options;
        EXPECT_EQ(hex(megaflow.tunnel_mask.option), mask) << options;
        EXPECT_EQ(megaflow.tunnel_mask.flags & ~OVSDR_TUNNEL_KEY, 0) << options;
    }
}

TEST(MegaflowMatch, APacketThroughNoTunnelHasNothingOfOne) {
    const auto megaflow = from_match("in_port(7),eth(),eth_type(0x1234)");
    EXPECT_FALSE(any(megaflow.tunnel_key) || any(megaflow.tunnel_mask));
}

}  // namespace
