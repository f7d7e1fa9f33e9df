// The compiler's matches: every bit of a mask finds its place or a Reject that names its field.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <set>

#include "offload/dr/compile/compile.hpp"
#include "offload/dr/compile/flow_fields.hpp"
#include "tests/unit/offload/four_ports.hpp"
#include "tests/unit/offload/megaflow_builder.hpp"

namespace ovsdr::dr {
namespace {

using test::four_ports;
using test::MegaflowBuilder;

Compiled<MatchPlan> compile(const ovsdr_megaflow& megaflow, const DeviceCaps& caps = {}) {
    Obstacles obstacles;
    const MatchPlan plan = compile_match(megaflow.key, megaflow.mask, four_ports(), caps, obstacles);
    if (!obstacles.empty()) return tl::unexpected(obstacles.take());
    return plan;
}

void expect_reject(const Compiled<MatchPlan>& compiled, RejectReason reason, const std::string& detail) {
    ASSERT_FALSE(compiled);
    const std::string text = text_of(compiled.error());
    EXPECT_EQ(compiled.error().obstacles.size(), 1U) << text;
    EXPECT_EQ(compiled.error().obstacles[0].reason, reason) << text;
    EXPECT_NE(text.find(detail), std::string::npos) << text;
}

/// Field, value and mask of the compiled plan.
void expect_field(const MatchPlan& plan, prm::Field field, std::uint32_t value, std::uint32_t mask) {
    EXPECT_EQ(plan.mask.get(field), mask);
    EXPECT_EQ(plan.value.get(field), value);
}

TEST(CompileMatch, MatchesTheSourceVportWhole) {
    const auto plan = compile(MegaflowBuilder(9).eth_type(0x88cc));
    ASSERT_TRUE(plan);
    expect_field(*plan, field::source_port, 0xFFFF, 0xFFFF);
    EXPECT_EQ(plan->source, uplink_vport);
}

TEST(CompileMatch, RejectsAnInPortThatIsNoVport) {
    expect_reject(compile(MegaflowBuilder(5).ipv4()), RejectReason::in_port_not_offloaded,
                  "in_port is no dr port of this device: datapath port 5");
}

TEST(CompileMatch, RejectsAnInPortNotMatchedWhole) {
    MegaflowBuilder flow;
    flow.ipv4().raw().mask.in_port = 0xFFFF;
    expect_reject(compile(flow), RejectReason::in_port_not_offloaded, "whole");
}

TEST(CompileMatch, RecirculatedPacketsAreInATableOfTheirOwn) {
    const auto plan = compile(MegaflowBuilder().ipv4().behind(0x17));
    ASSERT_TRUE(plan);
    EXPECT_EQ(plan->table, TableKey{0x17});
    EXPECT_EQ(plan->mask, compile(MegaflowBuilder().ipv4())->mask) << "the rule need not ask again";
    DeviceCaps caps;
    caps.recirculates = false;
    expect_reject(compile(MegaflowBuilder().ipv4().behind(0x17), caps), RejectReason::device_limit, "recirc_id");
    MegaflowBuilder some;
    some.ipv4().behind(0x17).raw().mask.recirc_id = 0xFF;
    expect_reject(compile(some), RejectReason::unsupported_mask, "recirc_id/0xff");
}

TEST(CompileMatch, MatchesMaskedMacs) {
    MegaflowBuilder flow;
    const std::uint8_t key[] = {0x01, 0x23, 0x45, 0x67, 0x89, 0xab}, mask[] = {0x01, 0, 0xff, 0xf0, 0x0f, 0xff};
    std::memcpy(flow.raw().key.eth_dst, key, 6);
    std::memcpy(flow.raw().mask.eth_dst, mask, 6);
    const auto plan = compile(flow.eth_type(0x88cc));
    ASSERT_TRUE(plan);
    expect_field(*plan, field::dmac_47_16, 0x01004560, 0x0100fff0);
    expect_field(*plan, field::dmac_15_0, 0x09ab, 0x0fff);
}

TEST(CompileMatch, AsksForAnUntaggedPacketWithTheOneQualifier) {
    const auto plan = compile(MegaflowBuilder().ipv4());
    ASSERT_TRUE(plan);
    expect_field(*plan, field::cvlan_tag, 0, 1);
    expect_field(*plan, field::svlan_tag, 0, 0);
    EXPECT_EQ(plan->vlan_tags, 0);
    EXPECT_FALSE(plan->more_tags);
}

TEST(CompileMatch, AsksForOneTagAndNoSecond) {
    const auto plan = compile(MegaflowBuilder().ipv4().vlan(0x123));
    ASSERT_TRUE(plan);
    EXPECT_EQ(*plan, *compile(MegaflowBuilder().ipv4().vlan(0x123).no_second_vlan()))
        << "what is behind OVS's limit, and what OVS looks at and does not find";
    expect_field(*plan, field::cvlan_tag, 1, 1);
    expect_field(*plan, field::first_vid, 0x123, 0xFFF);
    expect_field(*plan, field::first_prio, 0, 0);
    expect_field(*plan, field::first_cfi, 0, 0);   // OVS's presence bit is not the wire's DEI
    expect_field(*plan, field::outer_second_cvlan_tag, 0, 1);
    EXPECT_EQ(plan->vlan_tags, 1);
    EXPECT_FALSE(plan->more_tags);
}

TEST(CompileMatch, MatchesASecondTag) {
    MegaflowBuilder flow;
    flow.ipv4().vlan(5, 0x88a8).second_vlan(0x00A).raw().key.be_vlan_tci[1] = htobe16(0xB00A);
    flow.raw().mask.be_vlan_tci[1] = htobe16(0xF00E);
    const auto plan = compile(flow);
    ASSERT_TRUE(plan);
    expect_field(*plan, field::svlan_tag, 1, 1);
    expect_field(*plan, field::first_vid, 5, 0xFFF);
    expect_field(*plan, field::outer_second_cvlan_tag, 1, 1);
    expect_field(*plan, field::outer_second_svlan_tag, 0, 0);
    expect_field(*plan, field::outer_second_vid, 0x00A, 0x00E);
    expect_field(*plan, field::outer_second_prio, 5, 7);
    expect_field(*plan, field::misc(67, 1), 0, 0);   // outer_second_cfi
    expect_field(*plan, field::ethertype, 0x0800, 0xFFFF);
    EXPECT_EQ(plan->vlan_tags, 2);
    EXPECT_FALSE(plan->more_tags);
    const auto service = compile(MegaflowBuilder().ipv4().vlan(5).second_vlan(6, 0x88a8));
    ASSERT_TRUE(service);
    expect_field(*service, field::outer_second_svlan_tag, 1, 1);
    expect_field(*service, field::outer_second_cvlan_tag, 0, 0);
}

TEST(CompileMatch, LooksAtNoSecondTagWhereOvsCouldAndDoesNot) {
    const auto plan = compile(MegaflowBuilder().ipv4().vlan(5).vlan_limit(2));
    ASSERT_TRUE(plan);
    expect_field(*plan, field::outer_second_cvlan_tag, 0, 0);
    expect_field(*plan, field::first_vid, 5, 0xFFF);
    EXPECT_EQ(plan->vlan_tags, 1);
    EXPECT_TRUE(plan->more_tags);
    MegaflowBuilder either;
    either.ipv4().vlan_limit(2).raw().mask.be_vlan_tci[0] = 0;
    const auto any = compile(either);
    ASSERT_TRUE(any);
    expect_field(*any, field::cvlan_tag, 0, 0);
    expect_field(*any, field::outer_second_cvlan_tag, 0, 0);
    EXPECT_EQ(any->vlan_tags, 0);
    EXPECT_TRUE(any->more_tags);
    either.vlan_limit(1);
    const auto at_most_one = compile(either);
    ASSERT_TRUE(at_most_one);
    expect_field(*at_most_one, field::outer_second_cvlan_tag, 0, 1);
    EXPECT_TRUE(at_most_one->more_tags);
}

TEST(CompileMatch, AWholeTpidTellsWhetherThereIsATag) {
    MegaflowBuilder flow;   // as OVS's netlink encoding has a second tag that does not matter
    flow.ipv4().vlan(5, 0x88a8).perhaps_second_vlan().raw().mask.be_vlan_tpid[1] = 0xFFFF;
    const auto plan = compile(flow);
    ASSERT_TRUE(plan);
    expect_field(*plan, field::outer_second_cvlan_tag, 1, 1);
    expect_field(*plan, field::outer_second_vid, 0, 0);
    EXPECT_EQ(plan->vlan_tags, 2);
    flow.raw().key.be_vlan_tpid[1] = 0;
    EXPECT_EQ(*compile(flow), *compile(MegaflowBuilder().ipv4().vlan(5, 0x88a8).no_second_vlan()));
    flow.raw().mask.be_vlan_tpid[1] = htobe16(0xFF00);
    expect_reject(compile(flow), RejectReason::unsupported_mask, "vlan_tpid[1]/0xff00");
}

TEST(CompileMatch, TheTagBehindTheLimitIsTheEthertype) {
    for (const auto& [tpid, field] :
         {std::pair{0x8100, field::outer_second_cvlan_tag}, {0x88a8, field::outer_second_svlan_tag}}) {
        const auto plan = compile(MegaflowBuilder().eth_type(static_cast<std::uint16_t>(tpid)).vlan(5, 0x88a8));
        ASSERT_TRUE(plan);
        expect_field(*plan, field::svlan_tag, 1, 1);
        expect_field(*plan, field, 1, 1);
        expect_field(*plan, field::outer_second_vid, 0, 0);
        expect_field(*plan, field::ethertype, 0, 0);   // the device's is the one behind that tag
        EXPECT_EQ(plan->l3, L3::none);
        EXPECT_EQ(plan->vlan_tags, 2);
        EXPECT_TRUE(plan->more_tags);
    }
    MegaflowBuilder masked;   // OVS parses none: its fields are 0
    masked.eth_type(0x8100).vlan(5).raw().mask.be_vlan_tci[1] = 0xFFFF;
    masked.raw().mask.be_vlan_tpid[1] = 0xFFFF;
    const auto plan = compile(masked);
    ASSERT_TRUE(plan);
    EXPECT_EQ(*plan, *compile(MegaflowBuilder().eth_type(0x8100).vlan(5)));
}

TEST(CompileMatch, TellsServiceTagsFromCustomerTags) {
    const auto plan = compile(MegaflowBuilder().ipv4().vlan(5, 0x88a8));
    ASSERT_TRUE(plan);
    expect_field(*plan, field::svlan_tag, 1, 1);
    expect_field(*plan, field::cvlan_tag, 0, 0);
}

TEST(CompileMatch, MatchesPartOfATci) {
    MegaflowBuilder flow;
    flow.ipv4().vlan(0x00A).raw().key.be_vlan_tci[0] = htobe16(0xB00A);
    flow.raw().mask.be_vlan_tci[0] = htobe16(0xF00E);
    const auto plan = compile(flow);
    ASSERT_TRUE(plan);
    expect_field(*plan, field::first_vid, 0x00A, 0x00E);
    expect_field(*plan, field::first_prio, 5, 7);
}

TEST(CompileMatch, RejectsTagsThatTheDeviceHasNoWordFor) {
    expect_reject(compile(MegaflowBuilder().ipv4().vlan(1, 0x9100)), RejectReason::unsupported_match, "0x9100");
    expect_reject(compile(MegaflowBuilder().ipv4().vlan(1).second_vlan(2, 0x9100)), RejectReason::unsupported_match,
                  "vlan_tpid[1]=0x9100");
    expect_reject(compile(MegaflowBuilder().eth_type(0x8100)), RejectReason::unsupported_match, "eth_type=0x8100");
    expect_reject(compile(MegaflowBuilder().eth_type(0x88a8).vlan(1).vlan_limit(2)), RejectReason::unsupported_match,
                  "eth_type=0x88a8");
    expect_reject(compile(MegaflowBuilder().eth_type(0x8100).vlan(1).second_vlan(2)), RejectReason::unsupported_match,
                  "eth_type=0x8100");
    expect_reject(compile(MegaflowBuilder().ipv4().vlan(1).second_vlan(2).vlan_limit(1)),
                  RejectReason::unsupported_match, "vlan_tci[1]=0x1002");
    expect_reject(compile(MegaflowBuilder().ipv4().second_vlan(2)), RejectReason::unsupported_match,
                  "vlan_tci[1] (a second tag of an untagged packet)");
    MegaflowBuilder second_without_presence;
    second_without_presence.ipv4().vlan(1).vlan_limit(2).raw().mask.be_vlan_tci[1] = htobe16(0x0FFF);
    expect_reject(compile(second_without_presence), RejectReason::unsupported_mask, "vlan_tci[1]/0x0fff");
    MegaflowBuilder without_presence;
    without_presence.ipv4().raw().mask.be_vlan_tci[0] = htobe16(0x0FFF);
    expect_reject(compile(without_presence), RejectReason::unsupported_mask, "vlan_tci");
}

TEST(CompileMatch, RejectsLlcFrames) {
    expect_reject(compile(MegaflowBuilder().eth_type(0x05ff)), RejectReason::unsupported_match, "eth_type=0x05ff");
}

TEST(CompileMatch, RejectsPartOfAnEthType) {
    MegaflowBuilder flow;
    flow.eth_type(0x0800).raw().mask.be_eth_type = htobe16(0xFF00);
    expect_reject(compile(flow), RejectReason::unsupported_mask, "eth_type/0xff00");
}

TEST(CompileMatch, MatchesIpv4) {
    MegaflowBuilder flow;
    flow.ipv4();
    const std::uint8_t source[] = {10, 1, 2, 3}, destination[] = {192, 168, 7, 9};
    std::memcpy(flow.raw().key.src, source, 4);
    std::memset(flow.raw().mask.src, 0xFF, 4);
    std::memcpy(flow.raw().key.dst, destination, 4);
    std::memset(flow.raw().mask.dst, 0xFF, 3);
    flow.raw().key.ip_tos = 0xB9;
    flow.raw().mask.ip_tos = 0xFD;
    flow.raw().key.ip_ttl = 64;
    flow.raw().mask.ip_ttl = 0xFF;
    const auto plan = compile(flow);
    ASSERT_TRUE(plan);
    expect_field(*plan, field::ip_version, 4, 4);
    expect_field(*plan, field::ethertype, 0x0800, 0xFFFF);
    expect_field(*plan, field::src_ip_31_0, 0x0A010203, 0xFFFFFFFF);
    expect_field(*plan, field::dst_ip_31_0, 0xC0A80700, 0xFFFFFF00);
    expect_field(*plan, field::ip_dscp, 0xB9 >> 2, 0x3F);
    expect_field(*plan, field::ip_ecn, 1, 1);
    expect_field(*plan, field::ip_ttl_hoplimit, 64, 0xFF);
    expect_field(*plan, field::frag, 0, 1);
}

TEST(CompileMatch, MatchesIpv6AddressesInNetworkOrder) {
    MegaflowBuilder flow;
    flow.ipv6().proto(17).ports(53, 1024);
    for (std::uint8_t i = 0; i < 16; ++i) {
        flow.raw().key.src[i] = i;
        flow.raw().mask.src[i] = 0xFF;
    }
    flow.raw().key.dst[0] = 0x20;
    flow.raw().mask.dst[0] = 0xF0;
    const auto plan = compile(flow);
    ASSERT_TRUE(plan);
    expect_field(*plan, field::ip_version, 6, 6);
    expect_field(*plan, field::src_ip[0], 0x00010203, 0xFFFFFFFF);
    expect_field(*plan, field::src_ip[3], 0x0C0D0E0F, 0xFFFFFFFF);
    expect_field(*plan, field::dst_ip[0], 0x20000000, 0xF0000000);
    expect_field(*plan, field::udp_sport, 53, 0xFFFF);
    expect_field(*plan, field::udp_dport, 1024, 0xFFFF);
}

TEST(CompileMatch, MatchesTheIpv6FlowLabel) {
    MegaflowBuilder flow;
    flow.ipv6().raw().key.be_ipv6_label = htobe32(0xABCDE);
    const auto with_mask = [&flow](std::uint32_t mask) {
        flow.raw().mask.be_ipv6_label = htobe32(mask);
        return compile(flow);
    };
    ASSERT_TRUE(with_mask(0xFFFFF));
    expect_field(*with_mask(0xFFFFF), field::outer_ipv6_flow_label, 0xABCDE, 0xFFFFF);
    expect_field(*with_mask(0xFF0F0), field::outer_ipv6_flow_label, 0xAB0D0, 0xFF0F0);
    // OVS masks 32 bits where it means the field; no packet has one of the upper.
    EXPECT_EQ(*with_mask(0xFFFFFFFF), *with_mask(0xFFFFF));
    flow.raw().key.be_ipv6_label = htobe32(0x100000);
    expect_reject(with_mask(0xFFFFFFFF), RejectReason::unsupported_match, "ipv6_label=0x100000");
}

TEST(CompileMatch, RejectsIpv6ExtensionHeadersAsProtocols) {
    for (const std::uint8_t header : {0, 43, 44, 51, 60}) {
        expect_reject(compile(MegaflowBuilder().ipv6().proto(header)), RejectReason::unsupported_match,
                      "extension header");
    }
    EXPECT_TRUE(compile(MegaflowBuilder().ipv4().proto(51)));
}

TEST(CompileMatch, MatchesTcpFlagsThatTheDeviceHas) {
    MegaflowBuilder flow;
    flow.ipv4().proto(6).ports(1, 2).raw().key.be_tcp_flags = htobe16(0x112);
    flow.raw().mask.be_tcp_flags = htobe16(0x1FF);
    const auto plan = compile(flow);
    ASSERT_TRUE(plan);
    expect_field(*plan, field::tcp_flags, 0x112, 0x1FF);
    expect_field(*plan, field::tcp_sport, 1, 0xFFFF);
    flow.raw().mask.be_tcp_flags = htobe16(0xFFF);
    expect_reject(compile(flow), RejectReason::unsupported_mask, "tcp_flags/0xfff");
}

TEST(CompileMatch, MatchesIcmpOnlyWithTheParserProfile) {
    const auto plan = compile(MegaflowBuilder().ipv4().proto(1).ports(8, 0));
    ASSERT_TRUE(plan);
    expect_field(*plan, field::icmp_type, 8, 0xFF);
    expect_field(*plan, field::icmp_code, 0, 0xFF);
    const auto six = compile(MegaflowBuilder().ipv6().proto(58).ports(135, 0));
    ASSERT_TRUE(six);
    expect_field(*six, field::icmpv6_type, 135, 0xFF);
    DeviceCaps plain;
    plain.icmp_v4 = plain.icmp_v6 = false;
    expect_reject(compile(MegaflowBuilder().ipv4().proto(1).ports(8, 0), plain), RejectReason::device_limit,
                  "icmp_type");
    expect_reject(compile(MegaflowBuilder().ipv6().proto(58).ports(135, 0), plain), RejectReason::device_limit,
                  "icmpv6_type");
    EXPECT_TRUE(compile(MegaflowBuilder().ipv4().proto(1), plain));
}

TEST(CompileMatch, TellsFragmentsApartOnlyAsTheDeviceCan) {
    MegaflowBuilder any;
    any.ipv4().raw().key.ip_frag = 1;
    any.raw().mask.ip_frag = 1;
    const auto plan = compile(any);
    ASSERT_TRUE(plan);
    expect_field(*plan, field::frag, 1, 1);

    for (const std::uint8_t first_or_later : {1, 3}) {
        MegaflowBuilder flow;
        flow.ipv4().raw().key.ip_frag = first_or_later;
        expect_reject(compile(flow), RejectReason::unsupported_match, "nw_frag");
    }
    MegaflowBuilder not_later;
    not_later.ipv4().raw().mask.ip_frag = 2;
    expect_reject(compile(not_later), RejectReason::unsupported_match, "nw_frag");
}

/// A later fragment's nw_proto is 44 to OVS, and the fragment header's next header to a device.
TEST(CompileMatch, MatchesAProtocolOverIPv6OfWholePacketsOnly) {
    for (const std::uint8_t protocol : {6, 17, 47, 58, 132}) {
        MegaflowBuilder any, either;
        any.ipv6().proto(protocol).raw().key.ip_frag = 1;
        any.raw().mask.ip_frag = 1;
        expect_reject(compile(any), RejectReason::unsupported_match, "nw_frag");
        either.ipv6().proto(protocol).raw().mask.ip_frag = 0;
        const auto plan = compile(either);
        ASSERT_TRUE(plan);
        expect_field(*plan, field::frag, 0, 1);
    }
    MegaflowBuilder over_ipv4, without;
    over_ipv4.ipv4().proto(6).raw().key.ip_frag = 1;
    over_ipv4.raw().mask.ip_frag = 1;
    EXPECT_TRUE(compile(over_ipv4)) << "both read it in the IPv4 header";
    without.ipv6().raw().key.ip_frag = 1;
    without.raw().mask.ip_frag = 1;
    EXPECT_TRUE(compile(without));
    without.raw().mask.ip_frag = 0;
    const auto plan = compile(without);
    ASSERT_TRUE(plan);
    EXPECT_EQ(plan->mask.get(field::frag), 0U);
}

TEST(CompileMatch, MatchesTransportFieldsOfWholePacketsOnly) {
    MegaflowBuilder flow;
    flow.ipv4().proto(6).ports(1, 2).raw().mask.ip_frag = 0;
    const auto plan = compile(flow);
    ASSERT_TRUE(plan);
    expect_field(*plan, field::frag, 0, 1);
    flow.raw().key.ip_frag = flow.raw().mask.ip_frag = 1;
    expect_reject(compile(flow), RejectReason::unsupported_match, "nw_frag");
}

TEST(CompileMatch, NamesWhatIsLeft) {
    const auto left = [](MegaflowBuilder flow, const std::function<void(ovsdr_flow_fields&)>& add, const char* name) {
        add(flow.raw().mask);
        expect_reject(compile(flow), RejectReason::unsupported_match, name);
    };
    left(MegaflowBuilder().arp(), [](auto& mask) { mask.ip_proto = 0xFF; }, "arp_op");
    left(MegaflowBuilder().arp(), [](auto& mask) { mask.src[0] = 0xFF; }, "arp_spa");
    left(MegaflowBuilder().arp(), [](auto& mask) { mask.dst[3] = 0xFF; }, "arp_tpa");
    left(MegaflowBuilder().ipv4(), [](auto& mask) { mask.be_ipv6_label = htobe32(0xFFFFF); }, "ipv6_label");
    left(MegaflowBuilder().ipv4(), [](auto& mask) { mask.vlan_limit = 1; }, "vlan_limit");
    left(MegaflowBuilder().ipv4().proto(132), [](auto& mask) { mask.be_tp_src = 0xFFFF; }, "sctp_src");
    left(MegaflowBuilder().ipv4().proto(132), [](auto& mask) { mask.be_tp_dst = 0xFFFF; }, "sctp_dst");
    left(MegaflowBuilder().ipv4().proto(2), [](auto& mask) { mask.be_tp_src = 0xFFFF; }, "igmp_type");
    left(MegaflowBuilder().ipv4(), [](auto& mask) { mask.be_tp_dst = 0xFFFF; }, "tp_dst");
    left(MegaflowBuilder().ipv4().proto(17), [](auto& mask) { mask.be_tcp_flags = 0xFFFF; }, "tcp_flags");
    left(MegaflowBuilder().ipv4(), [](auto& mask) { mask.src[4] = 1; }, "nw_src");
    left(MegaflowBuilder().eth_type(0x88cc), [](auto& mask) { mask.ip_ttl = 1; }, "nw_ttl");
    left(MegaflowBuilder().eth_type(0x88cc), [](auto& mask) { mask.ip_tos = 1; }, "nw_tos");
    left(MegaflowBuilder().eth_type(0x88cc), [](auto& mask) { mask.ip_frag = 3; }, "nw_frag");
    left(MegaflowBuilder(), [](auto& mask) { mask.ip_proto = 0xFF; }, "nw_proto");
    left(MegaflowBuilder().ipv4(), [](auto& mask) { mask.ip_frag |= 4; }, "nw_frag");
}

/// The property behind all of the above: a mask bit that is accepted decides. With it, two megaflows that differ in
/// that bit of the key have different rules, or one of them is refused; without it, they have the same rule.
class EveryBit : public ::testing::TestWithParam<std::pair<const char*, MegaflowBuilder>> {};

bool is_tpid(std::size_t byte) {
    return byte >= offsetof(ovsdr_flow_fields, be_vlan_tpid) &&
           byte < offsetof(ovsdr_flow_fields, be_vlan_tpid) + sizeof(ovsdr_flow_fields::be_vlan_tpid);
}

/// No field of a packet: how OVS reads it.
bool is_vlan_limit(std::size_t byte) { return byte == offsetof(ovsdr_flow_fields, vlan_limit); }

/// True or false: of these the lowest bit is enough.
bool is_flag(std::size_t byte) {
    return byte == offsetof(ovsdr_flow_fields, ipv6) || byte == offsetof(ovsdr_flow_fields, arp);
}

TEST_P(EveryBit, OfTheMaskDecidesOrIsRefused) {
    const ovsdr_megaflow base = GetParam().second;
    ASSERT_TRUE(compile(base));
    unsigned accepted = 0;
    for (std::size_t bit = 0; bit < 8 * sizeof(ovsdr_flow_fields); ++bit) {
        const std::size_t byte = bit / 8;
        if (is_flag(byte) && bit % 8 != 0) continue;
        const auto one = static_cast<std::uint8_t>(1U << (bit % 8));
        ovsdr_megaflow flow = base, flipped = base;
        reinterpret_cast<std::uint8_t*>(&flow.mask)[byte] |= one;
        reinterpret_cast<std::uint8_t*>(&flipped.mask)[byte] |= one;
        reinterpret_cast<std::uint8_t*>(&flipped.key)[byte] ^= one;
        const auto left = compile(flow), right = compile(flipped);
        if (left && right) {
            EXPECT_FALSE(*left == *right) << "mask bit " << bit << " is accepted and ignored";
            ++accepted;
        }
        const bool in_base = (reinterpret_cast<const std::uint8_t*>(&base.mask)[byte] & one) != 0;
        if (in_base || is_tpid(byte) || is_vlan_limit(byte)) continue;
        ovsdr_megaflow unmasked = base;
        reinterpret_cast<std::uint8_t*>(&unmasked.key)[byte] ^= one;
        const auto other = compile(unmasked);
        EXPECT_TRUE(other && *compile(base) == *other) << "key bit " << bit << " counts without its mask";
    }
    EXPECT_GE(accepted, 96U) << "both MACs at least";
}

TEST_P(EveryBit, ThatIsRefusedHasTheNameOfItsField) {
    const ovsdr_megaflow base = GetParam().second;
    for (std::size_t bit = 0; bit < 8 * sizeof(ovsdr_flow_fields); ++bit) {
        if (is_vlan_limit(bit / 8)) continue;
        const auto one = static_cast<std::uint8_t>(1U << (bit % 8));
        const auto* field = std::ranges::find_if(flow_fields, [bit](const FlowField& candidate) {
            return bit / 8 >= candidate.offset && bit / 8 < candidate.offset + candidate.size;
        });
        ASSERT_NE(field, flow_fields.end()) << "byte " << bit / 8;
        ovsdr_megaflow flow = base;
        reinterpret_cast<std::uint8_t*>(&flow.mask)[bit / 8] |= one;
        reinterpret_cast<std::uint8_t*>(&flow.key)[bit / 8] |= one;
        if (std::memcmp(&flow.mask, &base.mask, sizeof flow.mask) == 0) continue;
        const auto compiled = compile(flow);
        if (compiled) continue;
        ASSERT_EQ(compiled.error().obstacles.size(), 1U) << text_of(compiled.error());
        const std::string name = compiled.error().obstacles[0].name.text();
        const std::set<std::string> names{field->name.text(), field->in_arp.text(), field->in_igmp.text(),
                                          field->in_sctp.text()};
        const bool icmp = name.starts_with("icmp") && field->name.text() == std::string("tp_src");
        EXPECT_TRUE(icmp || std::ranges::any_of(names, [&](const auto& known) {
                        return !known.empty() && name.substr(0, name.find('[')) == known;
                    })) << text_of(compiled.error()) << ", not " << field->name.text();
    }
}

TEST(CompileMatch, AMaskOfAllOnesNamesEachFieldThatItCannotMatch) {
    ovsdr_megaflow megaflow{};
    std::memset(&megaflow.key, 0xFF, sizeof megaflow.key);
    std::memset(&megaflow.mask, 0xFF, sizeof megaflow.mask);
    const auto compiled = compile(megaflow);
    ASSERT_FALSE(compiled);
    std::set<std::string> names;
    for (const Obstacle& obstacle : compiled.error().obstacles) names.insert(obstacle.name.text());
    EXPECT_EQ(names,
              (std::set<std::string>{"in_port is no dr port of this device", "vlan_tpid[1]", "vlan_tpid", "nw_proto",
                                     "nw_tos", "nw_ttl", "nw_frag", "ipv6", "arp", "nw_src", "nw_dst", "ipv6_label",
                                     "tp_src", "tp_dst", "tcp_flags", "vlan_limit", "reserved"}));
}

INSTANTIATE_TEST_SUITE_P(
    CompileMatch, EveryBit,
    ::testing::Values(std::pair{"Untyped", MegaflowBuilder()}, std::pair{"Lldp", MegaflowBuilder().eth_type(0x88cc)},
                      std::pair{"Arp", MegaflowBuilder().arp()}, std::pair{"Ipv4", MegaflowBuilder().ipv4()},
                      std::pair{"Ipv6", MegaflowBuilder().ipv6()},
                      std::pair{"Tcp", MegaflowBuilder().ipv4().proto(6).ports(80, 1025)},
                      std::pair{"Udp6Tagged", MegaflowBuilder().ipv6().proto(17).ports(1, 2).vlan(7)},
                      std::pair{"Icmp", MegaflowBuilder().ipv4().proto(1).ports(8, 0)},
                      std::pair{"Icmp6", MegaflowBuilder().ipv6().proto(58).ports(128, 0)},
                      std::pair{"Sctp", MegaflowBuilder().ipv4().proto(132)},
                      std::pair{"ServiceTagged", MegaflowBuilder().ipv4().vlan(100, 0x88a8)},
                      std::pair{"PerhapsASecondTag", MegaflowBuilder().ipv4().vlan(100).perhaps_second_vlan()},
                      std::pair{"NoSecondTag", MegaflowBuilder().ipv6().vlan(100).no_second_vlan()},
                      std::pair{"TwoTags", MegaflowBuilder().ipv6().vlan(100, 0x88a8).second_vlan(200)},
                      std::pair{"TagBehindTheLimit", MegaflowBuilder().eth_type(0x8100).vlan(100, 0x88a8)}),
    [](const auto& flow) { return std::string(flow.param.first); });

TEST(CompileMatch, NeverPutsAValueOutsideItsMask) {
    MegaflowBuilder flow;
    flow.ipv4().proto(6).ports(0xFFFF, 0xFFFF);
    std::memset(&flow.raw().key.eth_dst, 0xFF, 12);
    std::memset(flow.raw().key.src, 0xFF, 8);
    flow.raw().key.ip_ttl = flow.raw().key.ip_tos = 0xFF;
    const auto plan = compile(flow);
    ASSERT_TRUE(plan);
    for (std::size_t i = 0; i < plan->mask.bytes.size(); ++i) {
        EXPECT_EQ(plan->value.bytes[i] & ~plan->mask.bytes[i], 0) << "byte " << i;
    }
}

}  // namespace
}  // namespace ovsdr::dr
