// Meters as the compiler arranges them, and what it refuses of them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "offload/dr/compile/compile.hpp"
#include "offload/dr/megaflow_store.hpp"
#include "tests/unit/offload/four_ports.hpp"
#include "tests/unit/offload/megaflow_builder.hpp"
#include "tests/unit/offload/tunnel_headers.hpp"

namespace ovsdr::dr {
namespace {

using test::MegaflowBuilder;

/// Meters 1 to 4, and 9, which is refused.
PortMap metered_ports() {
    PortMap map = test::four_ports();
    for (std::uint32_t number = 1; number < 5; ++number) map.set_meter(number, {.serial = 10 + number});
    map.set_meter(9, {.serial = 9, .refusal = meter::Refusal{"a meter with several bands", ": 2"}});
    map.set_tunnel({.odp_port = OdpPort{20}, .kind = TunnelKind::vxlan, .udp_port = 4789, .name = "vxlan"});
    return map;
}

std::string metered(const ovsdr_megaflow& megaflow, std::uint8_t steering_format = 1) {
    DeviceCaps caps;
    caps.steering_format = steering_format;
    caps.meters_end_rules = steering_format == 0;
    const auto plan = compile(megaflow, metered_ports(), caps);
    return plan ? text_of(plan->path) : text_of(plan.error());
}

TEST(CompileMeter, ColoursBeforeAllElseAndDropsWhatExceeds) {
    EXPECT_EQ(metered(MegaflowBuilder().ipv4().meter(1).output(2)),
              "meter 1 (11), dest_table (exceeding: drop; dest_vport 2)");
    EXPECT_EQ(metered(MegaflowBuilder().ipv4().meter(1)), "meter 1 (11), dest_table (exceeding: drop; drop)");
}

TEST(CompileMeter, ARewriteOnEitherSideOfItIsMadeBehindIt) {
    const std::string expected = "meter 1 (11), dest_table (exceeding: drop; set ip_ttl=0x3f, dest_vport 2)";
    EXPECT_EQ(metered(MegaflowBuilder().ipv4().set(OVSDR_HEADER_IP_TTL, {63}).meter(1).output(2)), expected);
    EXPECT_EQ(metered(MegaflowBuilder().ipv4().meter(1).set(OVSDR_HEADER_IP_TTL, {63}).output(2)), expected);
}

TEST(CompileMeter, SeveralAreMetOneAfterTheOther) {
    EXPECT_EQ(metered(MegaflowBuilder().ipv4().meter(2).meter(1).push(5).output(2)),
              "meter 2 (12), dest_table (exceeding: drop; meter 1 (11), dest_table (exceeding: drop; "
              "push_vlan 0x8100 vid 5 pcp 0, dest_vport 2))");
    // Three, and behind them as many tables as a path may need.
    EXPECT_EQ(metered(MegaflowBuilder(9).ipv4().vlan(5).meter(1).meter(2).meter(3).output(1).pop().push(6).output(2)),
              "meter 1 (11), dest_table (exceeding: drop; meter 2 (12), dest_table (exceeding: drop; "
              "meter 3 (13), dest_table (exceeding: drop; dest_array [dest_vport 1, dest_table ("
              "pop_vlan, dest_table (push_vlan 0x8100 vid 6 pcp 0, dest_vport 2))])))");
    EXPECT_EQ(metered(MegaflowBuilder().ipv4().meter(1).meter(2).meter(3).meter(4).output(2)),
              "too many actions: meters, with the copies in front of them");
}

/// A device of this generation counts packets from the wire when their tags are off.
TEST(CompileMeter, WhatPassedIsCountedBeforeATagIsTakenOff) {
    const MegaflowBuilder from_wire = MegaflowBuilder(9).ipv4().vlan(5).meter(1).pop().output(2);
    EXPECT_EQ(metered(from_wire), "meter 1 (11), dest_table (exceeding: drop; dest_table (pop_vlan, dest_vport 2))");
    EXPECT_EQ(metered(MegaflowBuilder(1).ipv4().vlan(5).meter(1).pop().output(2)),
              "meter 1 (11), dest_table (exceeding: drop; pop_vlan, dest_vport 2)");
    const auto plan = compile(from_wire, metered_ports(), {});
    ASSERT_TRUE(plan);
    EXPECT_EQ(plan->bytes_uncounted, 0) << "the megaflow's own rule takes nothing off";
}

TEST(CompileMeter, LeadsOnBehindARecirculation) {
    const auto plan = compile(MegaflowBuilder().ipv4().meter(1).recirc(7), metered_ports(), {});
    ASSERT_TRUE(plan);
    unsigned visited = 0;
    plan->path.for_each_table([&](TableKey table, unsigned depth) {
        EXPECT_EQ(table, (TableKey{7, 0}));
        EXPECT_EQ(depth, 1U);
        ++visited;
    });
    EXPECT_EQ(visited, 1U);
}

TEST(CompileMeter, WhatCannotBeExactIsRefusedByName) {
    EXPECT_EQ(metered(MegaflowBuilder().ipv4().meter(7).output(2)),
              "unsupported action: meter: nobody has set number 7");
    EXPECT_EQ(metered(MegaflowBuilder().ipv4().meter(9).output(2)), "device limit: a meter with several bands: 2");
    EXPECT_EQ(text_of(compile(MegaflowBuilder().ipv4().meter(1).output(2), metered_ports(), {.meters = false}).error()),
              "device limit: meter (the device has none)");
    EXPECT_EQ(metered(MegaflowBuilder().ipv4().output(2).meter(1).output(3)),
              "unsupported order of actions: meter behind an output");
    EXPECT_EQ(metered(MegaflowBuilder().ipv4().copy().meter(1).output(2).end_copy().output(3)),
              "unsupported order of actions: meter in a copy");
    const char* const length = "unsupported order of actions: meter behind a change of the packet's length";
    EXPECT_EQ(metered(MegaflowBuilder().ipv4().push(5).meter(1).output(2)), length);
    EXPECT_EQ(metered(MegaflowBuilder().ipv4().vlan(5).pop().meter(1).output(2)), length);
    EXPECT_EQ(metered(MegaflowBuilder(20).from_tunnel(5).ipv4().meter(1).output(2), 0),
              "device limit: meter of packets from a tunnel (a meter of the device has a table at one level)");
    EXPECT_EQ(metered(MegaflowBuilder(20).from_tunnel(5).ipv4().meter(1).recirc(4)),
              "unsupported order of actions: recirc behind a change of packets from a tunnel");
}

TEST(CompileMeter, TakesPacketsOutOfTheirTunnelBefore) {
    const auto from_tunnel = [] { return MegaflowBuilder(20).from_tunnel(5).ipv4(); };
    EXPECT_EQ(metered(from_tunnel().meter(1).output(2)),
              "decapsulate, dest_table (meter 1 (11), dest_table (exceeding: drop; dest_vport 2))");
    EXPECT_EQ(metered(from_tunnel().meter(1)),
              "decapsulate, dest_table (meter 1 (11), dest_table (exceeding: drop; dest_table (drop)))");
    EXPECT_EQ(metered(from_tunnel().set(OVSDR_HEADER_IP_TTL, {63}).meter(2).meter(1).output(2)),
              "decapsulate, dest_table (meter 2 (12), dest_table (exceeding: drop; meter 1 (11), dest_table "
              "(exceeding: drop; set ip_ttl=0x3f, dest_vport 2)))");
    const auto plan = compile(from_tunnel().meter(1).output(2), metered_ports(), {});
    ASSERT_TRUE(plan);
    EXPECT_EQ(plan->bytes_uncounted, 0) << "the megaflow's own counter has the frames inside";
}

/// What is done behind a meter, as it is without one.
std::string behind_meters(const std::string& path, const std::string& meters = "meter 1 (11)") {
    return meters + ", dest_table (exceeding: drop; " + path + ")";
}

/// The length that a meter takes is that of the packet before.
TEST(CompileMeter, IsInFrontOfATunnelsHeader) {
    const test::HeaderBytes vxlan = test::vxlan(), gre = test::gre(test::outer_ipv4(47));
    const auto flow = [](std::uint32_t in_port = 1) { return MegaflowBuilder(in_port).ipv4(); };
    for (const std::uint8_t format : {0, 1, 2}) {
        SCOPED_TRACE(static_cast<unsigned>(format));
        const std::string plain = metered(flow().tunnel(vxlan).output(9), format);
        EXPECT_TRUE(plain.starts_with("encapsulate 02")) << plain;
        EXPECT_EQ(metered(flow().meter(1).tunnel(vxlan).output(9), format), behind_meters(plain));
        EXPECT_EQ(metered(flow().meter(1).set(OVSDR_HEADER_IP_TTL, {63}).tunnel(gre).output(9), format),
                  behind_meters(metered(flow().set(OVSDR_HEADER_IP_TTL, {63}).tunnel(gre).output(9), format)));
        EXPECT_EQ(metered(flow().meter(1).output(2).tunnel(vxlan).output(9), format),
                  behind_meters(metered(flow().output(2).tunnel(vxlan).output(9), format)));
        EXPECT_EQ(metered(flow().tunnel(vxlan).meter(1).output(9), format),
                  "unsupported order of actions: meter behind a change of the packet's length");
        const auto plan =
            compile(flow().meter(1).tunnel(vxlan).output(9), metered_ports(), {.steering_format = format});
        ASSERT_TRUE(plan);
        EXPECT_EQ(plan->bytes_uncounted, 0);
    }
    EXPECT_EQ(metered(flow().meter(2).meter(1).tunnel(vxlan).output(9)),
              behind_meters(behind_meters(metered(flow().tunnel(vxlan).output(9))), "meter 2 (12)"));
}

/// A ConnectX-5 counts a tag in front of packets from a vport when their tunnel's header comes with it: what passed the
/// meter is counted by a rule of its own. Later devices count before both.
TEST(CompileMeter, WhatPassedIsCountedBeforeATagAndATunnelsHeader) {
    const test::HeaderBytes header = test::gre(test::outer_ipv4(47));
    const auto flow = [&] { return MegaflowBuilder().ipv4().meter(1).push(5).tunnel(header).output(9); };
    const std::string both = fmt::format("push_vlan 0x8100 vid 5 pcp 0, encapsulate {:02x}, dest_vport 65535",
                                         fmt::join(header, ""));
    EXPECT_EQ(metered(flow(), 0), behind_meters("dest_table (" + both + ")"));
    EXPECT_EQ(metered(flow()), behind_meters(both));
}

TEST(CompileMeter, InFrontOfATunnelIsWhereTheDevicePutsHeadersOnOnly) {
    const test::HeaderBytes header = test::vxlan();
    const auto from_wire = [&] { return MegaflowBuilder(9).ipv4().meter(1).tunnel(header).output(1); };
    EXPECT_EQ(metered(from_wire(), 0), "device limit: tnl_push of packets from the wire");
    EXPECT_TRUE(metered(from_wire()).starts_with("meter 1 (11), dest_table (exceeding: drop; encapsulate 02"))
        << metered(from_wire());
    const auto tunnel_to_tunnel = [&] {
        return MegaflowBuilder(20).from_tunnel(5).ipv4().meter(1).tunnel(header).output(1);
    };
    EXPECT_EQ(metered(tunnel_to_tunnel(), 0),
              "device limit: meter of packets from a tunnel (a meter of the device has a table at one level); "
              "device limit: tnl_push of packets from the wire");
    EXPECT_TRUE(metered(tunnel_to_tunnel()).starts_with("decapsulate, dest_table (meter 1 (11), dest_table (exceeding: "
                                                        "drop; encapsulate 02")) << metered(tunnel_to_tunnel());
    DeviceCaps short_headers;
    short_headers.max_tunnel_header = 40;
    EXPECT_EQ(text_of(compile(from_wire(), metered_ports(), short_headers).error()),
              "device limit: tnl_push with a header longer than the device's: 50 bytes, the most is 40");
}

/// ConnectX-5: a rule ends in its meter, and that leads to one table.
TEST(CompileMeter, ARuleThatEndsInItsMeterIsOfTheFirstTableAndHasOneOnly) {
    EXPECT_EQ(metered(MegaflowBuilder().ipv4().set(OVSDR_HEADER_IP_TTL, {63}).meter(1).push(5).output(2), 0),
              "meter 1 (11), dest_table (exceeding: drop; set ip_ttl=0x3f, push_vlan 0x8100 vid 5 pcp 0, "
              "dest_vport 2)");
    EXPECT_EQ(metered(MegaflowBuilder().ipv4().meter(1).recirc(7), 0),
              metered(MegaflowBuilder().ipv4().meter(1).recirc(7)));
    EXPECT_EQ(metered(MegaflowBuilder().ipv4().meter(2).meter(1).output(2), 0),
              "device limit: several meters (a rule of the device ends in one)");
    EXPECT_EQ(metered(MegaflowBuilder().behind(7).ipv4().meter(1).output(2), 0),
              "device limit: meter behind a recirculation (a meter of the device has a table at one level)");
    EXPECT_EQ(metered(MegaflowBuilder().behind(7).ipv4().meter(1).output(2)),
              "meter 1 (11), dest_table (exceeding: drop; dest_vport 2)");
    EXPECT_EQ(metered(MegaflowBuilder(9).ipv4().vlan(5).meter(1).pop().output(2), 0),
              "meter 1 (11), dest_table (exceeding: drop; pop_vlan, dest_vport 2)")
        << "it counts packets from the wire with their tags";
}

/// Shared lists of actions and branches must not be another meter's.
TEST(CompileMeter, PathsOfOtherMetersAreOthers) {
    const auto path = [](std::uint32_t meter, std::uint32_t serial) {
        PortMap map = test::four_ports();
        map.set_meter(meter, {.serial = serial});
        return compile(MegaflowBuilder().ipv4().meter(meter).output(2), map, {})->path;
    };
    EXPECT_EQ(path(1, 1), path(1, 1));
    EXPECT_NE(path(1, 1), path(2, 1));
    EXPECT_NE(path(1, 1), path(1, 2));
    EXPECT_NE(path(1, 1) <=> path(1, 2), std::strong_ordering::equal);
    EXPECT_NE(text_of(path(1, 1)), text_of(path(1, 2)));
}

TEST(CompileMeter, AStoredMegaflowKnowsItsMeters) {
    MegaflowParts parts;
    const ovsdr_megaflow megaflow = MegaflowBuilder().ipv4().meter(3).output(2);
    const StoredMegaflow stored(megaflow, parts);
    const StoredMegaflow other(MegaflowBuilder().ipv4().output(3), parts);
    EXPECT_TRUE(stored.has_meter());
    EXPECT_TRUE(stored.meets(3));
    EXPECT_FALSE(stored.meets(2)) << "a port is no meter";
    EXPECT_FALSE(other.has_meter());
    EXPECT_TRUE(stored == StoredMegaflow(megaflow, parts));
    EXPECT_FALSE(stored == StoredMegaflow(MegaflowBuilder().ipv4().meter(4).output(2), parts));
    EXPECT_EQ(stored.restore().actions[0].meter, 3U);
    EXPECT_EQ(stored.ports().size(), 2U);
}

}  // namespace
}  // namespace ovsdr::dr
