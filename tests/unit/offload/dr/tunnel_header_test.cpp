// The compiler's encapsulations: which headers a device can send as OVS does, what becomes part of them, and where in a
// path they stand.
#include "offload/dr/compile/tunnel_header.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>

#include "offload/dr/compile/compile.hpp"
#include "tests/unit/offload/four_ports.hpp"
#include "tests/unit/offload/megaflow_builder.hpp"
#include "tests/unit/offload/tunnel_headers.hpp"

namespace ovsdr::dr::tunnel_header {
namespace {

using test::four_ports;
using test::HeaderBytes;
using test::MegaflowBuilder;

constexpr std::size_t udp_at = 34;

Compiled<RulePlan> compile_here(const ovsdr_megaflow& megaflow, std::uint8_t steering_format = 1) {
    DeviceCaps caps;
    caps.steering_format = steering_format;
    return compile(megaflow, four_ports(), caps);
}

std::string text_of_compiled(const ovsdr_megaflow& megaflow, std::uint8_t steering_format = 1) {
    const auto plan = compile_here(megaflow, steering_format);
    return plan ? text_of(plan->path) : text_of(plan.error());
}

std::string hex(const HeaderBytes& bytes) { return fmt::format("{:02x}", fmt::join(bytes, "")); }

/// "encapsulate …", with the UDP source port that the compiler has chosen in `plan`.
std::string encapsulation(const HeaderBytes& bytes) { return "encapsulate " + hex(bytes); }

/// Without a UDP header nothing is chosen.
const HeaderBytes gre = test::gre(test::outer_ipv4(47));

HeaderBytes tunnel_of(const ovsdr_megaflow& megaflow) {
    const auto plan = compile_here(megaflow);
    return plan ? plan->path.changes.tunnel : HeaderBytes{};
}

std::uint16_t source_port_of(const HeaderBytes& bytes) {
    return static_cast<std::uint16_t>(bytes.at(udp_at) << 8 | bytes.at(udp_at + 1));
}

std::string refusal_of(const HeaderBytes& header) {
    const auto plan = compile_here(MegaflowBuilder().ipv4().tunnel(header).output(9));
    return plan ? "" : text_of(plan.error());
}

TEST(TunnelHeader, IsTheMegaflowsButForTheSourcePort) {
    for (const HeaderBytes& header : {test::vxlan(), test::geneve(), test::vxlan_over(test::outer_ipv6(17))}) {
        HeaderBytes tunnel = tunnel_of(MegaflowBuilder().ipv4().tunnel(header).output(9));
        ASSERT_EQ(tunnel.size(), header.size());
        const std::size_t udp = header[12] == 0x08 ? 34 : 54;
        EXPECT_NE(tunnel[udp], 0);
        tunnel[udp] = tunnel[udp + 1] = 0;
        EXPECT_EQ(tunnel, header);
    }
    EXPECT_EQ(text_of_compiled(MegaflowBuilder().ipv4().tunnel(gre).output(9)),
              encapsulation(gre) + ", dest_vport 65535");
    const HeaderBytes over_ipv6 = test::gre(test::outer_ipv6(47), 0);
    EXPECT_EQ(tunnel_of(MegaflowBuilder().ipv4().tunnel(over_ipv6).output(9)), over_ipv6);
}

/// OVS leaves an IPv6 header's length and UDP's undefined, and fills them in for each packet.
TEST(TunnelHeader, LengthsThatOvsLeavesUndefinedAreZero) {
    struct Case {
        HeaderBytes header;
        std::vector<std::size_t> lengths;
    };
    for (const auto& [header, lengths] : {Case{test::vxlan_over(test::outer_ipv6(17)), {18, 58}},
                                          {test::gre(test::outer_ipv6(47)), {18}}, {test::vxlan(), {38}}}) {
        HeaderBytes undefined = header;
        for (const std::size_t at : lengths) undefined[at] = 0xAB, undefined[at + 1] = 0xCD;
        const auto tunnel = tunnel_of(MegaflowBuilder().ipv4().tunnel(undefined).output(9));
        EXPECT_EQ(tunnel, tunnel_of(MegaflowBuilder().ipv4().tunnel(header).output(9)));
        for (const std::size_t at : lengths) EXPECT_EQ(tunnel.at(at) | tunnel.at(at + 1), 0) << at;
        const ovsdr_megaflow twice = MegaflowBuilder()
                                         .ipv4()
                                         .copy()
                                         .tunnel(header)
                                         .output(9)
                                         .end_copy()
                                         .copy()
                                         .tunnel(undefined)
                                         .output(2)
                                         .end_copy();
        EXPECT_EQ(text_of_compiled(twice),
                  encapsulation(tunnel_of(twice)) + ", dest_array [dest_vport 2, dest_vport 65535]")
            << "one encapsulation, two copies";
    }
    HeaderBytes ipv4 = test::vxlan();
    ipv4[16] = 1;
    EXPECT_EQ(refusal_of(ipv4), "unsupported action: tnl_push with a broken header") << "IPv4's is 0";
}

/// A device takes no two equal destinations, nor does the kernel ever give it any.
TEST(TunnelHeader, OneHeaderTwiceToOnePortIsRefused) {
    for (const HeaderBytes& header : {gre, test::vxlan(), test::vxlan_over(test::outer_ipv6(17))}) {
        HeaderBytes other = header;
        if (header.size() > 54 && header[12] == 0x86) other[19] = 7;
        EXPECT_EQ(text_of_compiled(MegaflowBuilder()
                                       .ipv4()
                                       .copy()
                                       .tunnel(header)
                                       .output(9)
                                       .end_copy()
                                       .tunnel(other)
                                       .output(9)),
                  "unsupported action: two outputs to one port: uplink");
    }
}

TEST(TunnelHeader, TheSourcePortIsTheMegaflowsOwnOfAFew) {
    const HeaderBytes header = test::vxlan();
    std::set<std::uint16_t> ports;
    for (std::uint16_t l4 = 1; l4 < 2000; ++l4) {
        MegaflowBuilder flow;
        flow.ipv4().proto(17).ports(l4, 53).tunnel(header).output(9);
        const std::uint16_t port = source_port_of(tunnel_of(flow));
        EXPECT_EQ(port, source_port_of(tunnel_of(flow))) << "chosen again";
        EXPECT_GE(port, 32768);
        EXPECT_LT(port, 61000);
        ports.insert(port);
    }
    EXPECT_EQ(ports.size(), TunnelHeader::source_ports);
}

TEST(TunnelHeader, TheSourcePortIsOneOfThoseThatOvsMayTake) {
    const HeaderBytes header = test::vxlan();
    for (const auto& [first, end] : {std::pair<std::uint16_t, std::uint16_t>{1000, 1003}, {5, 5}, {65535, 65535}}) {
        for (std::uint16_t l4 = 1; l4 < 100; ++l4) {
            MegaflowBuilder flow;
            flow.ipv4().proto(17).ports(l4, 53).tunnel(header).output(9);
            flow.raw().actions[0].tunnel_push.udp_source_first = first;
            flow.raw().actions[0].tunnel_push.udp_source_end = end;
            const std::uint16_t port = source_port_of(tunnel_of(flow));
            EXPECT_TRUE(port >= first && (port < end || port == first)) << port;
        }
    }
}

TEST(TunnelHeader, IsRefusedWhereOvsComputesWhatTheDeviceCannot) {
    EXPECT_EQ(refusal_of(test::vxlan(5, 0xFFFF)),
              "unsupported action: tnl_push with an outer UDP checksum "
              "(set options:csum=false, or OVN's external_ids:ovn-encap-csum=false)");
    EXPECT_EQ(refusal_of(test::vxlan_over(test::outer_ipv6(17), 5, 0xFFFF)),
              "unsupported action: tnl_push with an outer UDP checksum (OVS sets one in every UDP tunnel over IPv6)");
    EXPECT_EQ(refusal_of(test::gre(test::outer_ipv4(47), 0xA000)),
              "unsupported action: tnl_push with a GRE checksum (set options:csum=false)");
    EXPECT_EQ(refusal_of(test::gre(test::outer_ipv4(47), 0x1000)),
              "unsupported action: tnl_push with a GRE sequence number (set options:seq=false)");
    EXPECT_EQ(refusal_of(test::outer_ipv4(6)), "unsupported action: tnl_push of another protocol: 6");
    EXPECT_EQ(refusal_of(test::outer_ipv6(6)), "unsupported action: tnl_push of another protocol: 6");
}

TEST(TunnelHeader, IsRefusedWhereEachPacketMustHaveTheSourcePortOfOvs) {
    const HeaderBytes header = test::vxlan();
    const auto exact = [](const ovsdr_megaflow& flow) {
        const auto plan = compile(flow, test::four_ports(), {}, {.exact_tunnel_source_port = true});
        return plan ? text_of(plan->path) : text_of(plan.error());
    };
    EXPECT_EQ(exact(MegaflowBuilder().ipv4().tunnel(header).output(9)),
              "unsupported action: tnl_push in UDP (other_config:dr-tunnel-source-port=exact)");
    EXPECT_EQ(exact(MegaflowBuilder().ipv4().tunnel(gre).output(9)), encapsulation(gre) + ", dest_vport 65535")
        << "has none";
}

TEST(TunnelHeader, IsRefusedWhenItIsNoneOfOvss) {
    const std::string broken = "unsupported action: tnl_push with a broken header";
    for (const HeaderBytes& whole : {test::vxlan(), test::vxlan_over(test::outer_ipv6(17))}) {
        const std::size_t l4 = whole[12] == 0x08 ? 34 : 54;
        for (std::size_t size = 0; size < l4 + 8; ++size) {
            EXPECT_EQ(refusal_of({whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size)}), broken) << size;
        }
        const HeaderBytes nothing_in_udp(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(l4 + 8));
        EXPECT_EQ(tunnel_of(MegaflowBuilder().ipv4().tunnel(nothing_in_udp).output(9)).size(), l4 + 8);
    }
    const auto damaged = [](HeaderBytes bytes, std::size_t at, std::uint8_t value) {
        bytes[at] = value;
        return bytes;
    };
    for (const auto& [at, value] : {std::pair<std::size_t, std::uint8_t>{12, 0x81}, {14, 0x46}, {17, 1}, {15, 1},
                                    {20, 0x20}, {21, 1}, {25, 9}}) {
        EXPECT_EQ(refusal_of(damaged(test::vxlan(), at, value)), broken) << at;
    }
    EXPECT_EQ(refusal_of(damaged(test::vxlan_over(test::outer_ipv6(17)), 14, 0x40)), broken);
    EXPECT_EQ(refusal_of(damaged(gre, 34, 0x24)), broken) << "a flag of no release";
    EXPECT_EQ(refusal_of({gre.begin(), gre.end() - 4}), broken) << "the key is missing";
    ovsdr_megaflow none = MegaflowBuilder().ipv4().tunnel({}).output(9);
    none.actions[0].tunnel_push.header = nullptr;
    EXPECT_EQ(text_of_compiled(none), broken);
}

/// What comes behind one that is refused is not looked at as if it were there.
TEST(TunnelHeader, OneThatIsRefusedHasOneReason) {
    const auto outcome = [](const HeaderBytes& header, const Choices& choices = {}) {
        const auto plan = compile(
            MegaflowBuilder().ipv4().tunnel(header).set(OVSDR_HEADER_IP_TTL, {63}).output(9), four_ports(), {},
            choices);
        return plan ? text_of(plan->path) : text_of(plan.error());
    };
    const std::string broken = "unsupported action: tnl_push with a broken header";
    const HeaderBytes vxlan = test::vxlan(), over_ipv6 = test::vxlan_over(test::outer_ipv6(17));
    EXPECT_EQ(outcome({vxlan.begin(), vxlan.begin() + 40}), broken);
    EXPECT_EQ(outcome({over_ipv6.begin(), over_ipv6.begin() + 60}), broken);
    EXPECT_EQ(outcome({vxlan.begin(), vxlan.begin() + 20}), broken);
    EXPECT_EQ(outcome({gre.begin(), gre.begin() + 36}), broken);
    EXPECT_EQ(outcome(test::gre(test::outer_ipv4(47), 0xA000)),
              "unsupported action: tnl_push with a GRE checksum (set options:csum=false)");
    EXPECT_EQ(outcome(test::gre(test::outer_ipv4(47), 0x1000)),
              "unsupported action: tnl_push with a GRE sequence number (set options:seq=false)");
    EXPECT_EQ(outcome(test::vxlan(5, 0xFFFF)),
              "unsupported action: tnl_push with an outer UDP checksum "
              "(set options:csum=false, or OVN's external_ids:ovn-encap-csum=false)");
    EXPECT_EQ(outcome(test::vxlan_over(test::outer_ipv6(17), 5, 0xFFFF)),
              "unsupported action: tnl_push with an outer UDP checksum (OVS sets one in every UDP tunnel over IPv6)");
    EXPECT_EQ(outcome(test::outer_ipv4(6)), "unsupported action: tnl_push of another protocol: 6");
    EXPECT_EQ(outcome(vxlan, {.exact_tunnel_source_port = true}),
              "unsupported action: tnl_push in UDP (other_config:dr-tunnel-source-port=exact)");
}

TEST(TunnelHeader, IsNoLongerThanTheDevicesReformat) {
    const HeaderBytes most = test::geneve(19), more = test::geneve(20);   // 126 and 130 bytes
    EXPECT_EQ(refusal_of(most), "");
    EXPECT_EQ(refusal_of(more),
              "device limit: tnl_push with a header longer than the device's: 130 bytes, the most is 128");
    EXPECT_EQ(text_of_compiled(MegaflowBuilder().ipv4().tunnel(most).push(5).output(9)),
              "device limit: tnl_push with a header longer than the device's: 130 bytes, the most is 128");
    DeviceCaps caps;
    caps.max_tunnel_header = 200;
    EXPECT_TRUE(compile(MegaflowBuilder().ipv4().tunnel(more).output(9), four_ports(), caps));
}

TEST(TunnelHeader, TagsOfTheUnderlayAreInIt) {
    const auto with = [](std::initializer_list<unsigned> tags) {
        HeaderBytes bytes = gre, inserted;
        test::append_be16(inserted, tags);
        bytes.insert(bytes.begin() + 12, inserted.begin(), inserted.end());
        return bytes;
    };
    EXPECT_EQ(tunnel_of(MegaflowBuilder().ipv4().tunnel(gre).push(5).output(9)), with({0x8100, 5}));
    EXPECT_EQ(tunnel_of(MegaflowBuilder().ipv4().tunnel(gre).push(5).push(7, 0x88a8).output(9)),
              with({0x88a8, 7, 0x8100, 5}));
    EXPECT_EQ(tunnel_of(MegaflowBuilder().ipv4().tunnel(gre).push(5).push(7).pop().output(9)), with({0x8100, 5}));
    EXPECT_EQ(tunnel_of(MegaflowBuilder().ipv4().tunnel(gre).push(5).pop().pop().output(9)), gre)
        << "OVS leaves a packet without a tag as it is";
    EXPECT_EQ(text_of_compiled(MegaflowBuilder().ipv4().vlan(3).tunnel(gre).pop().output(9)),
              encapsulation(gre) + ", dest_vport 65535") << "the tag inside is out of reach";
    EXPECT_EQ(text_of_compiled(MegaflowBuilder().ipv4().tunnel(gre).push(1).push(2).push(3).output(9)),
              "too many actions: more than two push_vlan");
    EXPECT_EQ(text_of_compiled(MegaflowBuilder().ipv4().tunnel(gre).push(1, 0x9100).output(9)),
              "unsupported action: push_vlan(tpid=0x9100)");
}

TEST(TunnelHeader, ComesAfterAllThatIsInside) {
    const std::string outer = encapsulation(gre);
    EXPECT_EQ(text_of_compiled(MegaflowBuilder()
                                   .ipv4()
                                   .vlan(3)
                                   .pop()
                                   .set(OVSDR_HEADER_IP_TTL, {63})
                                   .push(4)
                                   .tunnel(gre)
                                   .output(9)),
              "pop_vlan, set ip_ttl=0x3f, push_vlan 0x8100 vid 4 pcp 0, " + outer + ", dest_vport 65535");
    EXPECT_EQ(text_of_compiled(MegaflowBuilder().ipv4().tunnel(gre).set(OVSDR_HEADER_IP_TTL, {63}).output(9)),
              "unsupported order of actions: set behind tnl_push");
    EXPECT_EQ(text_of_compiled(MegaflowBuilder().ipv4().tunnel(gre).recirc(7)),
              "unsupported order of actions: recirc behind tnl_push");
    EXPECT_EQ(text_of_compiled(MegaflowBuilder().ipv4().tunnel(gre).tunnel(gre).output(9)),
              "unsupported order of actions: tnl_push behind tnl_push");
    EXPECT_EQ(text_of_compiled(MegaflowBuilder().ipv4().tunnel(gre)), "drop");
    EXPECT_EQ(text_of_compiled(MegaflowBuilder().ipv4().output(2).tunnel(gre)), "dest_vport 2");
}

TEST(TunnelHeader, EachCopyHasItsOwn) {
    const HeaderBytes other = test::gre(test::outer_ipv4(47), 0);
    EXPECT_EQ(text_of_compiled(MegaflowBuilder()
                                   .ipv4()
                                   .copy()
                                   .tunnel(gre)
                                   .output(9)
                                   .end_copy()
                                   .output(2)
                                   .copy()
                                   .tunnel(other)
                                   .output(9)
                                   .end_copy()),
              "dest_array [dest_vport 2, dest_table (" + encapsulation(other) + ", dest_vport 65535), dest_table (" +
                  encapsulation(gre) + ", dest_vport 65535)]");
    EXPECT_EQ(text_of_compiled(MegaflowBuilder()
                                   .ipv4()
                                   .set(OVSDR_HEADER_IP_TTL, {63})
                                   .copy()
                                   .tunnel(gre)
                                   .output(9)
                                   .end_copy()
                                   .push(4)
                                   .tunnel(gre)
                                   .output(9)),
              "set ip_ttl=0x3f, dest_array [dest_table (" + encapsulation(gre) + ", dest_vport 65535), dest_table (" +
                  "push_vlan 0x8100 vid 4 pcp 0, " + encapsulation(gre) + ", dest_vport 65535)]")
        << "the same headers around different packets";
}

TEST(TunnelHeader, GoesIntoASecondTableWhereATagWouldBeCounted) {
    const ovsdr_megaflow tagged = MegaflowBuilder().ipv4().push(4).tunnel(gre).output(9);
    const std::string both = "push_vlan 0x8100 vid 4 pcp 0, " + encapsulation(gre) + ", dest_vport 65535";
    EXPECT_EQ(text_of_compiled(tagged, 1), both);
    EXPECT_EQ(text_of_compiled(tagged, 0), "dest_table (" + both + ")");
    EXPECT_EQ(text_of_compiled(MegaflowBuilder().ipv4().tunnel(gre).output(9), 0),
              encapsulation(gre) + ", dest_vport 65535");
    EXPECT_EQ(text_of_compiled(MegaflowBuilder(9).ipv4().push(4).tunnel(gre).output(2), 1),
              "push_vlan 0x8100 vid 4 pcp 0, " + encapsulation(gre) + ", dest_vport 2");
}

TEST(TunnelHeader, ConnectX5PutsNoneAroundWhatTheWireBrings) {
    const ovsdr_megaflow from_wire = MegaflowBuilder(9).ipv4().tunnel(gre).output(2);
    EXPECT_EQ(text_of_compiled(from_wire, 0), "device limit: tnl_push of packets from the wire");
    EXPECT_EQ(text_of_compiled(from_wire, 1), encapsulation(gre) + ", dest_vport 2");
}

TEST(TunnelHeader, ARangeOfOneOrNoSourcePortIsItsFirst) {
    const HeaderBytes header = test::vxlan();
    for (const std::uint16_t end : {5000, 5001, 4000}) {
        MegaflowBuilder megaflow;
        megaflow.ipv4().tunnel(header).output(9).raw().actions[0].tunnel_push.udp_source_first = 5000;
        megaflow.raw().actions[0].tunnel_push.udp_source_end = end;
        EXPECT_EQ(source_port_of(tunnel_of(megaflow)), 5000) << end;
    }
}

/// From the wire a device pushes no tag right behind a pop: the headers wait for the tag.
TEST(TunnelHeader, ComesInFrontOfEachTagThatIsPushedBefore) {
    EXPECT_EQ(text_of_compiled(MegaflowBuilder(9).ipv4().vlan(5).pop().push(6).tunnel(gre).output(2)),
              "pop_vlan, dest_table (push_vlan 0x8100 vid 6 pcp 0, " + encapsulation(gre) + ", dest_vport 2)");
    EXPECT_EQ(text_of_compiled(MegaflowBuilder(9).ipv4().vlan(5).pop().tunnel(gre).output(2)),
              "pop_vlan, " + encapsulation(gre) + ", dest_vport 2");
}

}  // namespace
}  // namespace ovsdr::dr::tunnel_header
