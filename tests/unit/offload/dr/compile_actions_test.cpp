// The compiler's actions: legs, orders per side, and what each device generation refuses.
#include <gtest/gtest.h>

#include "offload/dr/compile/compile.hpp"
#include "tests/unit/offload/four_ports.hpp"
#include "tests/unit/offload/megaflow_builder.hpp"

namespace ovsdr::dr {
namespace {

using test::four_ports;
using test::MegaflowBuilder;

Compiled<RulePlan> compile_here(const ovsdr_megaflow& megaflow, std::uint8_t steering_format = 1) {
    DeviceCaps caps;
    caps.steering_format = steering_format;
    return compile(megaflow, four_ports(), caps);
}

std::string text_of_compiled(const ovsdr_megaflow& megaflow, std::uint8_t steering_format = 1) {
    const auto plan = compile_here(megaflow, steering_format);
    if (plan) return text_of(plan->path);
    return text_of(plan.error());
}

TEST(CompileActions, DropsWhenNothingIsAsked) { EXPECT_EQ(text_of_compiled(MegaflowBuilder().ipv4()), "drop"); }

TEST(CompileActions, DropsWhenOperationsReachNobody) {
    EXPECT_EQ(text_of_compiled(MegaflowBuilder().ipv4().push(5)), "drop");
}

TEST(CompileActions, SendsToOneVport) {
    EXPECT_EQ(text_of_compiled(MegaflowBuilder().ipv4().output(2)), "dest_vport 2");
}

TEST(CompileActions, CopiesToSeveralInOneArrayWhateverTheOrder) {
    EXPECT_EQ(text_of_compiled(MegaflowBuilder().ipv4().output(9).output(3).output(2)),
              "dest_array [dest_vport 2, dest_vport 3, dest_vport 65535]");
}

TEST(CompileActions, NamesThePortThatIsNoVport) {
    EXPECT_EQ(text_of_compiled(MegaflowBuilder().ipv4().output(2).output(77)),
              "output not offloaded: output to a port that is no dr port of this device: datapath port 77");
}

TEST(CompileActions, RefusesToSendBack) {
    EXPECT_EQ(text_of_compiled(MegaflowBuilder(9).ipv4().output(9)),
              "output not offloaded: output to the in_port: uplink");
    EXPECT_EQ(text_of_compiled(MegaflowBuilder(1).ipv4().output(1)),
              "output not offloaded: output to the in_port: vf1");
}

TEST(CompileActions, RefusesTheSameCopyTwice) {
    EXPECT_EQ(text_of_compiled(MegaflowBuilder().ipv4().output(2).output(2)),
              "unsupported action: two outputs to one port: vf2");
}

TEST(CompileActions, PushesWithoutOvssPresenceBit) {
    const auto plan = compile_here(MegaflowBuilder().ipv4().push(0x123).output(2));
    ASSERT_TRUE(plan);
    EXPECT_EQ(plan->path.changes.pushes, (std::vector<VlanTag>{{0x8100, 0x123}}));
}

TEST(CompileActions, RefusesTagTypesThatDevicesDoNotPush) {
    EXPECT_EQ(text_of_compiled(MegaflowBuilder().ipv4().push(1, 0x9100).output(2)),
              "unsupported action: push_vlan(tpid=0x9100)");
}

TEST(CompileActions, PopsTheTagThatTheMatchHas) {
    EXPECT_EQ(text_of_compiled(MegaflowBuilder().ipv4().vlan(5).pop().output(2)), "pop_vlan, dest_vport 2");
}

TEST(CompileActions, LeavesAnUntaggedPacketAsItIs) {
    EXPECT_EQ(text_of_compiled(MegaflowBuilder().ipv4().pop().output(2)), "dest_vport 2");
    EXPECT_EQ(text_of_compiled(MegaflowBuilder().ipv4().vlan(5).pop().pop().output(2)), "pop_vlan, dest_vport 2");
}

TEST(CompileActions, PopsAndReplacesTwoTags) {
    const auto two_tags = [](std::uint32_t port) {
        return MegaflowBuilder(port).ipv4().vlan(5, 0x88a8).second_vlan(6);
    };
    for (const std::uint32_t port : {1, 9}) {
        EXPECT_EQ(text_of_compiled(two_tags(port).pop().output(2)), "pop_vlan, dest_vport 2");
        EXPECT_EQ(text_of_compiled(two_tags(port).pop().pop().output(2)), "pop_vlan, pop_vlan, dest_vport 2");
        EXPECT_EQ(text_of_compiled(two_tags(port).pop().pop().pop().output(2)), "pop_vlan, pop_vlan, dest_vport 2");
        EXPECT_EQ(text_of_compiled(two_tags(port).set(OVSDR_HEADER_IP_TTL, {63}).pop().pop().output(2)),
                  "pop_vlan, pop_vlan, set ip_ttl=0x3f, dest_vport 2");
        EXPECT_EQ(text_of_compiled(two_tags(port).pop().output(2).pop().output(3)),
                  "pop_vlan, dest_array [dest_vport 2, dest_table (pop_vlan, dest_vport 3)]");
    }
    const std::string both = "push_vlan 0x88a8 vid 7 pcp 0, push_vlan 0x8100 vid 8 pcp 0, dest_vport 2";
    EXPECT_EQ(text_of_compiled(two_tags(1).pop().pop().push(7, 0x88a8).push(8).output(2)),
              "pop_vlan, pop_vlan, " + both);
    EXPECT_EQ(text_of_compiled(two_tags(9).pop().pop().push(7, 0x88a8).push(8).output(2)),
              "pop_vlan, pop_vlan, dest_table (" + both + ")");
    EXPECT_EQ(text_of_compiled(two_tags(1).pop().pop().output(2), 0), "device limit: pop_vlan of packets from a vport");
    EXPECT_EQ(text_of_compiled(two_tags(9).pop().pop().output(2), 0), "pop_vlan, pop_vlan, dest_vport 2");
}

TEST(CompileActions, PopsAsManyTagsAsThereSurelyAre) {
    const auto perhaps_two = [] { return MegaflowBuilder().ipv4().vlan(5).vlan_limit(2); };
    const auto at_least_two = [] { return MegaflowBuilder().eth_type(0x8100).vlan(5, 0x88a8); };
    const std::string refused = "unsupported order of actions: pop_vlan of packets that may have no tag";
    EXPECT_EQ(text_of_compiled(perhaps_two().pop().output(2)), "pop_vlan, dest_vport 2");
    EXPECT_EQ(text_of_compiled(perhaps_two().pop().pop().output(2)), refused);
    EXPECT_EQ(text_of_compiled(at_least_two().pop().pop().output(2)), "pop_vlan, pop_vlan, dest_vport 2");
    EXPECT_EQ(text_of_compiled(at_least_two().pop().pop().pop().output(2)), refused) << "there may be a third";
}

TEST(CompileActions, CancelsAPushByThePopBehindIt) {
    EXPECT_EQ(text_of_compiled(MegaflowBuilder().ipv4().push(5).pop().output(2)), "dest_vport 2");
}

TEST(CompileActions, RefusesToPopWhatMayNotBeThere) {
    MegaflowBuilder flow;
    flow.ipv4().pop().output(2).raw().mask.be_vlan_tci[0] = 0;
    EXPECT_EQ(text_of_compiled(flow), "unsupported order of actions: pop_vlan of packets that may have no tag");
}

TEST(CompileActions, RetagsFromTheWireInASecondTable) {
    EXPECT_EQ(text_of_compiled(MegaflowBuilder(1).ipv4().vlan(5).pop().push(6).output(2)),
              "pop_vlan, push_vlan 0x8100 vid 6 pcp 0, dest_vport 2");
    EXPECT_EQ(text_of_compiled(MegaflowBuilder(9).ipv4().vlan(5).pop().push(6).output(2)),
              "pop_vlan, dest_table (push_vlan 0x8100 vid 6 pcp 0, dest_vport 2)");
}

TEST(CompileActions, BranchesWhereOutputsSeeDifferentPackets) {
    EXPECT_EQ(text_of_compiled(MegaflowBuilder().ipv4().output(2).push(5).output(9).output(3)),
              "dest_array [dest_vport 2, dest_table (push_vlan 0x8100 vid 5 pcp 0, dest_array [dest_vport 3, "
              "dest_vport 65535])]");
    EXPECT_EQ(text_of_compiled(MegaflowBuilder().ipv4().push(5).output(9).pop().output(2)),
              "dest_array [dest_vport 2, dest_table (push_vlan 0x8100 vid 5 pcp 0, dest_vport 65535)]");
    DeviceCaps caps;
    caps.copies_to_table = false;
    const auto plan = compile(MegaflowBuilder().ipv4().output(2).push(5).output(9), four_ports(), caps);
    ASSERT_FALSE(plan);
    EXPECT_EQ(plan.error().obstacles[0].reason, RejectReason::device_limit);
}

TEST(CompileActions, KnowsWhatConnectX5Lacks) {
    EXPECT_EQ(text_of_compiled(MegaflowBuilder(1).ipv4().vlan(5).pop().output(2), 0),
              "device limit: pop_vlan of packets from a vport");
    EXPECT_EQ(text_of_compiled(MegaflowBuilder(9).ipv4().push(5).output(2), 0),
              "device limit: push_vlan onto packets from the wire");
    EXPECT_EQ(text_of_compiled(MegaflowBuilder(9).ipv4().vlan(5).pop().output(2), 0), "pop_vlan, dest_vport 2");
    EXPECT_EQ(text_of_compiled(MegaflowBuilder(1).ipv4().push(5).output(9), 0),
              "push_vlan 0x8100 vid 5 pcp 0, dest_vport 65535");
}

TEST(CompileActions, CorrectsBytesCountedAfterAPop) {
    const ovsdr_megaflow wire = MegaflowBuilder(9).ipv4().vlan(5).pop().output(2);
    EXPECT_EQ(compile_here(wire, 1)->bytes_uncounted, 4);
    EXPECT_EQ(compile_here(wire, 0)->bytes_uncounted, 0);
    EXPECT_EQ(compile_here(MegaflowBuilder(1).ipv4().vlan(5).pop().output(2), 1)->bytes_uncounted, 0);
    const ovsdr_megaflow two_tags = MegaflowBuilder(9).ipv4().vlan(5).second_vlan(6).pop().pop().output(2);
    EXPECT_EQ(compile_here(two_tags, 1)->bytes_uncounted, 8);
    EXPECT_EQ(compile_here(two_tags, 0)->bytes_uncounted, 0);
}

TEST(CompileActions, PushesTwiceInASecondTableWhereTheFirstWouldBeCounted) {
    const ovsdr_megaflow vport = MegaflowBuilder(1).ipv4().push(1).push(2).output(2);
    const ovsdr_megaflow wire = MegaflowBuilder(9).ipv4().push(1).push(2).output(2);
    const std::string both = "push_vlan 0x8100 vid 1 pcp 0, push_vlan 0x8100 vid 2 pcp 0, dest_vport 2";
    EXPECT_EQ(text_of_compiled(vport, 1), both);
    EXPECT_EQ(text_of_compiled(vport, 0), "dest_table (" + both + ")");
    EXPECT_EQ(text_of_compiled(wire, 1), "dest_table (" + both + ")");
    // A copy's tags are pushed behind the counter anyway.
    EXPECT_EQ(text_of_compiled(MegaflowBuilder(9).ipv4().output(1).push(1).push(2).output(2), 1),
              "dest_array [dest_vport 1, dest_table (" + both + ")]");
}

MegaflowBuilder routed(std::uint32_t in_port = 1) {
    return MegaflowBuilder(in_port).ipv4().set(OVSDR_HEADER_ETH_DST, {0, 1, 2, 3, 4, 5}).set(OVSDR_HEADER_IP_TTL, {63});
}
const std::string routing = "set dmac_47_16=0x10203, set dmac_15_0=0x405, set ip_ttl=0x3f";

TEST(CompileActions, RewritesBeforeItSends) {
    EXPECT_EQ(text_of_compiled(routed().output(2)), routing + ", dest_vport 2");
    EXPECT_EQ(text_of_compiled(MegaflowBuilder().ipv6().set(OVSDR_HEADER_IP_TTL, {63}).output(2)),
              "set ipv6_hoplimit=0x3f, dest_vport 2");
    EXPECT_EQ(text_of_compiled(MegaflowBuilder().ipv4().set(OVSDR_HEADER_IP_TOS, {0x2b}).under({0xfc}).output(2)),
              "set ip_dscp=0xa, dest_vport 2");
    EXPECT_EQ(text_of_compiled(MegaflowBuilder().ipv4().set(OVSDR_HEADER_IP_SRC, {10, 0, 0, 1}).under({0, 0, 0xff, 0xf})
                                   .output(2)),
              "set src_ipv4=0x1/0xff0f, dest_vport 2");
}

TEST(CompileActions, TheLastOfTwoWritesStays) {
    EXPECT_EQ(text_of_compiled(routed().set(OVSDR_HEADER_IP_TTL, {7}).output(2)),
              "set dmac_47_16=0x10203, set dmac_15_0=0x405, set ip_ttl=0x7, dest_vport 2");
    EXPECT_EQ(text_of_compiled(MegaflowBuilder().ipv4().set(OVSDR_HEADER_IP_TTL, {0xf0}).under({0xf0})
                                   .set(OVSDR_HEADER_IP_TTL, {0x18}).under({0x18}).output(2)),
              "set ip_ttl=0xf8/0xf8, dest_vport 2");
}

TEST(CompileActions, RewritesInOneOrderWhateverTheMegaflows) {
    const std::string text = "pop_vlan, set ip_ttl=0x3f, push_vlan 0x8100 vid 6 pcp 0, dest_vport 2";
    EXPECT_EQ(text_of_compiled(
                  MegaflowBuilder().ipv4().vlan(5).set(OVSDR_HEADER_IP_TTL, {63}).pop().push(6).output(2)), text);
    EXPECT_EQ(text_of_compiled(
                  MegaflowBuilder(9).ipv4().vlan(5).pop().push(6).set(OVSDR_HEADER_IP_TTL, {63}).output(2)), text)
        << "from the wire too: a rewriting stands between the two";
}

TEST(CompileActions, DoesOnceWhatAllCopiesNeed) {
    EXPECT_EQ(text_of_compiled(routed().output(2).output(3)), routing + ", dest_array [dest_vport 2, dest_vport 3]");
    EXPECT_EQ(text_of_compiled(routed().output(2).push(5).output(9)),
              routing + ", dest_array [dest_vport 2, dest_table (push_vlan 0x8100 vid 5 pcp 0, dest_vport 65535)]");
    EXPECT_EQ(text_of_compiled(MegaflowBuilder().ipv4().output(2).set(OVSDR_HEADER_IP_TTL, {63}).output(3)),
              "dest_array [dest_vport 2, dest_table (set ip_ttl=0x3f, dest_vport 3)]");
    EXPECT_EQ(text_of_compiled(MegaflowBuilder().ipv4().vlan(5).push(6).output(2).pop().pop().push(6).output(3)),
              "dest_array [dest_table (push_vlan 0x8100 vid 6 pcp 0, dest_vport 2), "
              "dest_table (pop_vlan, push_vlan 0x8100 vid 6 pcp 0, dest_vport 3)]")
        << "one tag lies behind the other only in one of them";
    EXPECT_EQ(text_of_compiled(MegaflowBuilder().ipv4().push(6).output(2).push(7).output(3)),
              "push_vlan 0x8100 vid 6 pcp 0, "
              "dest_array [dest_vport 2, dest_table (push_vlan 0x8100 vid 7 pcp 0, dest_vport 3)]");
}

TEST(CompileActions, ACopyLeavesThePacketAsItWas) {
    EXPECT_EQ(text_of_compiled(
                  MegaflowBuilder().ipv4().copy().set(OVSDR_HEADER_IP_TTL, {63}).output(2).end_copy().output(3)),
              "dest_array [dest_vport 3, dest_table (set ip_ttl=0x3f, dest_vport 2)]");
    EXPECT_EQ(text_of_compiled(MegaflowBuilder().ipv4().copy().output(2).end_copy()), "dest_vport 2");
    EXPECT_EQ(text_of_compiled(MegaflowBuilder().ipv4().copy().set(OVSDR_HEADER_IP_TTL, {63}).end_copy().output(2)),
              "dest_vport 2");
    EXPECT_EQ(text_of_compiled(MegaflowBuilder().ipv4().end_copy().output(2)),
              "unsupported action: the end of a copy that never began");
}

TEST(CompileActions, GoesOnBehindARecirculation) {
    EXPECT_EQ(text_of_compiled(routed().recirc(7)), routing + ", dest_table recirc_id 0x7");
    EXPECT_EQ(text_of_compiled(MegaflowBuilder().ipv4().output(2).recirc(7)),
              "dest_array [dest_vport 2, dest_table recirc_id 0x7]");
    EXPECT_EQ(text_of_compiled(MegaflowBuilder().ipv4().behind(7).recirc(7)),
              "recirculation: recirc to the table that it comes from: 0x7");
    EXPECT_EQ(text_of_compiled(MegaflowBuilder().ipv4().recirc(7).recirc(7)),
              "unsupported action: recirc twice to one recirc_id: 0x7");
}

/// OVS hashes a packet as it came, and one that misses behind a recirculation as it is then.
TEST(CompileActions, RecirculatesNoOtherHashWhereSourcePortsMustBeExact) {
    const auto exact = [](const ovsdr_megaflow& flow) {
        const auto plan = compile(flow, four_ports(), {}, {.exact_tunnel_source_port = true});
        return plan ? text_of(plan->path) : text_of(plan.error());
    };
    const std::string refused = "unsupported action: recirc behind a change of what OVS hashes "
                                "(other_config:dr-tunnel-source-port=exact): ";
    const auto ipv4 = [] { return MegaflowBuilder().ipv4(); };
    const auto rewritten = [&] { return ipv4().set(OVSDR_HEADER_IP_DST, {10, 0, 0, 1}); };
    EXPECT_EQ(exact(rewritten().recirc(7)), refused + "set(ipv4)");
    EXPECT_EQ(exact(ipv4().proto(17).set(OVSDR_HEADER_UDP_SRC, {0, 7}).recirc(7)), refused + "set(udp)");
    EXPECT_EQ(exact(ipv4().vlan(5).push(6).recirc(7)), refused + "push_vlan") << "OVS parses one tag";
    EXPECT_EQ(exact(ipv4().copy().set(OVSDR_HEADER_IP_DST, {10, 0, 0, 1}).recirc(7).end_copy().output(2)),
              refused + "set(ipv4)");
    EXPECT_EQ(text_of_compiled(rewritten().recirc(7)), "set dst_ipv4=0xa000001, dest_table recirc_id 0x7");
    EXPECT_EQ(exact(rewritten().output(2)), "set dst_ipv4=0xa000001, dest_vport 2");
    EXPECT_EQ(exact(routed().recirc(7)), routing + ", dest_table recirc_id 0x7") << "no change of what is hashed";
    EXPECT_EQ(exact(ipv4().push(6).recirc(7)), "push_vlan 0x8100 vid 6 pcp 0, dest_table recirc_id 0x7");
    EXPECT_EQ(exact(ipv4().recirc(7).set(OVSDR_HEADER_IP_DST, {10, 0, 0, 1}).output(2)),
              "dest_array [dest_table recirc_id 0x7, dest_table (set dst_ipv4=0xa000001, dest_vport 2)]");
    EXPECT_EQ(exact(ipv4().copy().set(OVSDR_HEADER_IP_DST, {10, 0, 0, 1}).output(2).end_copy().recirc(7)),
              "dest_array [dest_table recirc_id 0x7, dest_table (set dst_ipv4=0xa000001, dest_vport 2)]");
}

/// One list of destinations is made of them.
TEST(CompileActions, TheOrderOfRecirculationsAndBranchesIsNoDifference) {
    EXPECT_EQ(text_of_compiled(MegaflowBuilder().ipv4().recirc(8).recirc(7).recirc(9)),
              "dest_array [dest_table recirc_id 0x7, dest_table recirc_id 0x8, dest_table recirc_id 0x9]");
    const auto copies = [](unsigned first, unsigned second) {
        MegaflowBuilder flow;
        flow.ipv4().output(3);
        for (const unsigned vid : {first, second}) {
            flow.copy().push(static_cast<std::uint16_t>(vid)).output(2).end_copy();
        }
        return text_of_compiled(flow);
    };
    EXPECT_EQ(copies(5, 6), copies(6, 5));
}

TEST(CompileActions, RewritesOnlyHeadersThatAreThere) {
    EXPECT_EQ(text_of_compiled(MegaflowBuilder().arp().set(OVSDR_HEADER_IP_TTL, {63}).output(2)),
              "unsupported action: set(ipv4) or set(ipv6) of packets that may have no such header");
    EXPECT_EQ(text_of_compiled(MegaflowBuilder().ipv6().set(OVSDR_HEADER_IP_SRC, {1, 2, 3, 4}).output(2)),
              "unsupported action: set(ipv4) of packets that may have no such header");
    EXPECT_EQ(text_of_compiled(MegaflowBuilder().ipv4().proto(17).set(OVSDR_HEADER_TCP_SRC, {1, 2}).output(2)),
              "unsupported action: set(tcp) of packets that may have no such header");
    EXPECT_EQ(text_of_compiled(MegaflowBuilder().ipv4().proto(6).set(OVSDR_HEADER_TCP_SRC, {1, 2}).output(2)),
              "set tcp_sport=0x102, dest_vport 2");
}

TEST(CompileActions, RefusesMasksOfTooManyParts) {
    const auto stripes = [](std::uint8_t mask) {
        MegaflowBuilder flow;
        flow.ipv6().proto(17).set(OVSDR_HEADER_IPV6_SRC, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
        ovsdr_set& set = flow.raw().actions[0].set;
        std::fill(std::begin(set.mask), std::end(set.mask), mask);
        return text_of_compiled(flow.output(2));
    };
    EXPECT_TRUE(stripes(0x66).ends_with("dest_vport 2")) << "32 parts";
    EXPECT_EQ(stripes(0x6a), "too many actions: set actions whose masks have too many parts");
}

TEST(CompileActions, CopiesThatAreRewrittenDifferentlyGetTheirTagsAfterIt) {
    EXPECT_EQ(text_of_compiled(MegaflowBuilder().ipv4().push(6).output(2).set(OVSDR_HEADER_IP_TTL, {63}).output(3)),
              "dest_array [dest_table (push_vlan 0x8100 vid 6 pcp 0, dest_vport 2), "
              "dest_table (set ip_ttl=0x3f, push_vlan 0x8100 vid 6 pcp 0, dest_vport 3)]");
}

TEST(CompileActions, RewritesNoAddressOfWhatMayBeIcmpv6) {
    const auto moved = [](MegaflowBuilder flow) {
        return text_of_compiled(
            flow.set(OVSDR_HEADER_IPV6_SRC, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}).under(
                {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff}).output(2));
    };
    const std::string refusal = "unsupported action: set(ipv6) of addresses of packets that may be ICMPv6, "
                                "whose checksum covers them";
    EXPECT_EQ(moved(MegaflowBuilder().ipv6().proto(17)), "set src_ipv6_31_0=0x1/0xff, dest_vport 2");
    EXPECT_EQ(moved(MegaflowBuilder().ipv6().proto(58)), refusal);
    EXPECT_EQ(moved(MegaflowBuilder().ipv6()), refusal);
}

TEST(CompileActions, RewritesNoHeaderThatPacketsMayNotHave) {
    const auto expect_refused = [](MegaflowBuilder megaflow, const char* name) {
        EXPECT_EQ(text_of_compiled(megaflow.output(2)),
                  std::string("unsupported action: ") + name + " of packets that may have no such header");
    };
    const auto tcp = [] { return MegaflowBuilder().ipv4().proto(6); };
    const auto tcp6 = [] { return MegaflowBuilder().ipv6().proto(6); };
    for (const auto field : {OVSDR_HEADER_IPV6_SRC, OVSDR_HEADER_IPV6_DST}) {
        expect_refused(tcp().set(field, {1, 2}), "set(ipv6)");
    }
    for (const auto field : {OVSDR_HEADER_IP_SRC, OVSDR_HEADER_IP_DST}) {
        expect_refused(tcp6().set(field, {1, 2, 3, 4}), "set(ipv4)");
    }
    for (const auto field : {OVSDR_HEADER_IP_TTL, OVSDR_HEADER_IP_TOS}) {
        expect_refused(MegaflowBuilder().eth_type(0x9000).set(field, {4}), "set(ipv4) or set(ipv6)");
    }
    for (const auto field : {OVSDR_HEADER_UDP_SRC, OVSDR_HEADER_UDP_DST}) {
        expect_refused(tcp().set(field, {1, 2}), "set(udp)");
    }
    for (const auto field : {OVSDR_HEADER_TCP_SRC, OVSDR_HEADER_TCP_DST}) {
        expect_refused(MegaflowBuilder().ipv4().proto(17).set(field, {1, 2}), "set(tcp)");
    }
}

/// Nor an address, which the transport's checksum covers.
TEST(CompileActions, RewritesNoTransportHeaderOfAFragment) {
    const auto tcp = [] { return MegaflowBuilder().ipv4().proto(6); };
    const auto tcp6 = [] { return MegaflowBuilder().ipv6().proto(6); };
    const auto udp = [] { return MegaflowBuilder().ipv4().proto(17); };
    const struct {
        MegaflowBuilder megaflow;
        const char* name;
    } sets[] = {{tcp().set(OVSDR_HEADER_TCP_SRC, {1, 2}), "set(tcp)"},
                {tcp().set(OVSDR_HEADER_TCP_DST, {1, 2}), "set(tcp)"},
                {udp().set(OVSDR_HEADER_UDP_SRC, {1, 2}), "set(udp)"},
                {udp().set(OVSDR_HEADER_UDP_DST, {1, 2}), "set(udp)"},
                {tcp().set(OVSDR_HEADER_IP_SRC, {1, 2, 3, 4}), "set(ipv4) of addresses"},
                {tcp().set(OVSDR_HEADER_IP_DST, {1, 2, 3, 4}), "set(ipv4) of addresses"},
                {tcp6().set(OVSDR_HEADER_IPV6_SRC, {1, 2}), "set(ipv6) of addresses"},
                {tcp6().set(OVSDR_HEADER_IPV6_DST, {1, 2}), "set(ipv6) of addresses"}};
    for (const auto& [megaflow, name] : sets) {
        SCOPED_TRACE(name);
        MegaflowBuilder any = megaflow, first = megaflow;
        any.output(2).raw().mask.ip_frag = 0;
        const auto plan = compile_here(any);
        ASSERT_TRUE(plan);
        EXPECT_EQ(plan->match.mask.get(field::frag), 1U) << "fragments go on in software";
        EXPECT_EQ(plan->match.value.get(field::frag), 0U);
        first.output(2).raw().key.ip_frag = 1;
        first.raw().mask.ip_frag = 1;
        EXPECT_NE(text_of_compiled(first).find(std::string(name) + " of a fragment"), std::string::npos)
            << text_of_compiled(first);
    }
}

TEST(CompileActions, RefusesMoreThanTwoPushes) {
    EXPECT_EQ(text_of_compiled(MegaflowBuilder().ipv4().push(1).push(2).output(2)),
              "push_vlan 0x8100 vid 1 pcp 0, push_vlan 0x8100 vid 2 pcp 0, dest_vport 2");
    EXPECT_EQ(text_of_compiled(MegaflowBuilder().ipv4().push(1).push(2).push(3).output(2)),
              "too many actions: more than two push_vlan");
}

TEST(CompileActions, NamesTheActionThatHasNoWord) {
    EXPECT_EQ(text_of_compiled(MegaflowBuilder().ipv4().unsupported("ct").output(2)), "unsupported action: ct");
    // No reformat of the device's puts a label behind the Ethernet header (docs/tunnels.md).
    EXPECT_EQ(text_of_compiled(MegaflowBuilder().ipv4().unsupported("push_mpls").unsupported("pop_mpls").output(2)),
              "unsupported action: push_mpls; unsupported action: pop_mpls");
}

TEST(CompileActions, RefusesAListThatWasTooLong) {
    MegaflowBuilder flow;
    flow.ipv4();
    while (flow.raw().n_actions < OVSDR_MAX_ACTIONS) flow.push(5).pop();
    flow.raw().n_actions = OVSDR_MAX_ACTIONS + 1;
    EXPECT_EQ(text_of_compiled(flow), "too many actions: more than a megaflow may have: 33, the most is 32");
}

TEST(CompileActions, PassesOnTheMatchThatTheShimCouldNotCarry) {
    MegaflowBuilder flow;
    static const char* const names[] = {"tun_id", "ct_state", "ct_mark"};
    flow.ipv4().raw().unsupported_match = {0b110, names};
    EXPECT_EQ(text_of_compiled(flow), "unsupported match: ct_state; unsupported match: ct_mark");
    flow.raw().unsupported_match.bits = 1;
    EXPECT_EQ(text_of_compiled(flow), "unsupported match: tun_id");
}

TEST(CompileActions, NamesEveryObstacleOnce) {
    MegaflowBuilder flow(1);
    flow.ipv6().unsupported("ct").output(77).output(1).output(2).output(2).output(78).unsupported("ct").push(1, 0x9100);
    flow.raw().mask.be_tp_src = 1;
    EXPECT_EQ(text_of_compiled(flow),
              "unsupported match: tp_src; unsupported action: ct; "
              "output not offloaded: output to a port that is no dr port of this device: datapath port 77; "
              "output not offloaded: output to the in_port: vf1; unsupported action: two outputs to one port: vf2; "
              "output not offloaded: output to a port that is no dr port of this device: datapath port 78; "
              "unsupported action: push_vlan(tpid=0x9100)");
}

TEST(CompileActions, WhatNobodyHasANameForIsUnknown) {
    MegaflowBuilder flow;
    flow.ipv4().output(2);
    flow.raw().actions[0].type = OVSDR_ACTION_UNSUPPORTED;
    flow.raw().actions[0].unsupported = nullptr;
    EXPECT_EQ(text_of_compiled(flow), "unsupported action: unknown");
}

TEST(CompileActions, NamesWhatDoesNotDependOnAnUnknownInPort) {
    EXPECT_EQ(text_of_compiled(MegaflowBuilder(77).ipv4().vlan(5).unsupported("ct").pop().output(2)),
              "in_port not offloaded: in_port is no dr port of this device: datapath port 77; unsupported action: ct");
}

TEST(CompileActions, GivesPortsTheNamesThatItIsTold) {
    const auto plan = compile_here(MegaflowBuilder(1).ipv4().output(77).output(78));
    ASSERT_FALSE(plan);
    EXPECT_EQ(text_of(plan.error(), {{OdpPort{77}, "br0"}}),
              "output not offloaded: output to a port that is no dr port of this device: br0; "
              "output not offloaded: output to a port that is no dr port of this device: datapath port 78");
}

/// As branches lie in a path, and equal paths share what the device has for them.
TEST(CompileActions, PathsThatDifferInAnythingAreInAnOrder) {
    std::vector<Path> paths(11);
    paths[1].vports = {VportId{2}};
    paths[2].vports = {VportId{3}};
    paths[3].tables = {TableKey{7, 0}};
    paths[4].tables = {TableKey{8, 0}};
    paths[5].changes.pops = 1;
    paths[6].branches = {paths[1]};
    paths[7].branches = {paths[2]};
    paths[8].meter = MeterUse{1, 1};
    paths[9].meter = MeterUse{1, 2};
    paths[10].software = SoftwareCopy{};
    for (const Path& one : paths) {
        for (const Path& other : paths) {
            const auto order = one <=> other;
            EXPECT_EQ(order == 0, &one == &other) << text_of(one) << " against " << text_of(other);
            EXPECT_TRUE(order == 0 || (order < 0) != ((other <=> one) < 0));
            EXPECT_EQ(one == other, &one == &other);
        }
    }
    std::ranges::sort(paths);
    EXPECT_TRUE(std::ranges::is_sorted(paths));
    EXPECT_LT(Path{.vports = {VportId{2}}}, Path{.vports = {VportId{3}}});
}

}  // namespace
}  // namespace ovsdr::dr
