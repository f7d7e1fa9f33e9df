// Copies for software as the compiler arranges them, and what it refuses of them.
#include <endian.h>
#include <gtest/gtest.h>

#include <functional>
#include <optional>

#include "offload/dr/compile/compile.hpp"
#include "offload/dr/megaflow_store.hpp"
#include "tests/unit/offload/four_ports.hpp"
#include "tests/unit/offload/megaflow_builder.hpp"
#include "tests/unit/offload/software_actions.hpp"
#include "tests/unit/offload/tunnel_headers.hpp"

namespace ovsdr::dr {
namespace {

using namespace std::string_view_literals;
using test::MegaflowBuilder;

using test::bytes, test::tap;
const std::string each = "copy to software: userspace 0c01, from datapath port 1";
const std::string sampled = "copy to software (1 of 64): userspace 0c01, from datapath port 1; ";
const std::string to_tap = "copy to software: output to datapath port 77, from datapath port 1";

PortMap ports_with_copies() {
    PortMap map = test::four_ports();
    for (const std::uint32_t number : {1U, 2U, 3U}) map.set_meter(number, {.serial = 10 + number});
    map.set_tunnel({.odp_port = OdpPort{20}, .kind = TunnelKind::vxlan, .udp_port = 4789, .name = "vxlan"});
    for (const CopyKind kind : copy_kinds) map.lead_copies(kind, true);
    return map;
}

std::string path_of(const ovsdr_megaflow& megaflow, const DeviceCaps& caps = {}) {
    const auto plan = compile(megaflow, ports_with_copies(), caps);
    return plan ? text_of(plan->path) : text_of(plan.error());
}

MegaflowBuilder flow(std::uint32_t in_port = 1) { return MegaflowBuilder(in_port).ipv4(); }

TEST(CompileSoftware, ACopyLeavesBesideThePacket) {
    EXPECT_EQ(path_of(flow().software(bytes).output(2)), "dest_array [dest_vport 2, dest_table (" + each + ")]");
    EXPECT_EQ(path_of(flow().output(2).software(bytes)), "dest_array [dest_vport 2, dest_table (" + each + ")]");
    EXPECT_EQ(path_of(flow().output(2).output(tap)), "dest_array [dest_vport 2, dest_table (" + to_tap + ")]");
    EXPECT_EQ(path_of(flow().software(bytes).recirc(7)),
              "dest_array [dest_table recirc_id 0x7, dest_table (" + each + ")]");
}

TEST(CompileSoftware, ACopyIsOfThePacketAsItIsThere) {
    EXPECT_EQ(path_of(flow().software(bytes).set(OVSDR_HEADER_IP_TTL, {63}).output(2)),
              "dest_array [dest_table (" + each + "), dest_table (set ip_ttl=0x3f, dest_vport 2)]");
    EXPECT_EQ(path_of(flow().set(OVSDR_HEADER_IP_TTL, {63}).software(bytes).output(2)),
              "set ip_ttl=0x3f, dest_array [dest_vport 2, dest_table (" + each + ")]");
    EXPECT_EQ(path_of(flow().output(2).push(5).software(bytes)),
              "dest_array [dest_vport 2, dest_table (push_vlan 0x8100 vid 5 pcp 0, dest_table (" + each + "))]");
    EXPECT_EQ(path_of(flow().vlan(5).pop().output(tap).output(2)),
              "pop_vlan, dest_array [dest_vport 2, dest_table (" + to_tap + ")]");
    const test::HeaderBytes header = test::vxlan();
    const std::string encapsulated = path_of(flow().tunnel(header, 55).output(9).output(tap));
    EXPECT_TRUE(encapsulated.starts_with("encapsulate ")) << encapsulated;
    EXPECT_TRUE(encapsulated.ends_with("dest_array [dest_vport 65535, dest_table (copy to software: "
                                       "output to datapath port 77, from datapath port 55)]"))
        << encapsulated;
}

/// A copy inside of a clone is of the clone.
TEST(CompileSoftware, ACopyOfACloneHasItsChanges) {
    EXPECT_EQ(path_of(flow().copy().set(OVSDR_HEADER_IP_TTL, {63}).software(bytes).end_copy().output(2)),
              "dest_array [dest_vport 2, dest_table (set ip_ttl=0x3f, dest_table (" + each + "))]");
}

TEST(CompileSoftware, ASamplerIsInFrontOfWhereThePacketGoes) {
    EXPECT_EQ(path_of(flow().software(bytes, 64).output(2)), sampled + "dest_table (dest_vport 2)");
    EXPECT_EQ(path_of(flow().software(bytes, 64).output(2).output(3)),
              sampled + "dest_table (dest_array [dest_vport 2, dest_vport 3])");
    EXPECT_EQ(path_of(flow().set(OVSDR_HEADER_IP_TTL, {63}).software(bytes, 64).output(2)),
              "set ip_ttl=0x3f, dest_table (" + sampled + "dest_table (dest_vport 2))");
    EXPECT_EQ(path_of(flow().software(bytes, 64).set(OVSDR_HEADER_IP_TTL, {63}).output(2)),
              sampled + "dest_table (set ip_ttl=0x3f, dest_vport 2)");
    EXPECT_EQ(path_of(flow().software(bytes, 64)), sampled + "dest_table (drop)") << "most are dropped in the device";
}

TEST(CompileSoftware, SeveralSamplersFollowEachOther) {
    const std::string text = path_of(flow().software(bytes, 64).software("\x0d"sv, 2).output(2));
    EXPECT_EQ(text, "copy to software (1 of 2): userspace 0d, from datapath port 1; dest_table (" + sampled +
                        "dest_table (dest_vport 2))");
}

/// What differs from the rest of the packet has a sampler whose packets end behind it.
TEST(CompileSoftware, ASamplerOfAChangedCopyDropsTheCopy) {
    EXPECT_EQ(path_of(flow().output(2).push(5).software(bytes, 64)),
              "dest_array [dest_vport 2, dest_table (push_vlan 0x8100 vid 5 pcp 0, dest_table (" + sampled +
                  "dest_table (drop)))]");
}

TEST(CompileSoftware, CopiesAreTakenOnEitherSideOfAMeter) {
    const std::string metered = "meter 1 (11), dest_table (exceeding: drop; ";
    EXPECT_EQ(path_of(flow().software(bytes).meter(1).output(2)),
              "dest_array [dest_table (" + each + "), dest_table (" + metered + "dest_vport 2))]");
    EXPECT_EQ(path_of(flow().meter(1).software(bytes).output(2)),
              metered + "dest_array [dest_vport 2, dest_table (" + each + ")])");
    EXPECT_EQ(path_of(flow().software(bytes, 64).meter(1).output(2)),
              sampled + "dest_table (" + metered + "dest_vport 2))");
    EXPECT_EQ(path_of(flow().meter(1).output(tap)), metered + "dest_table (" + to_tap + "))")
        << "the device drops what exceeds";
    EXPECT_EQ(path_of(flow().set(OVSDR_HEADER_IP_TTL, {63}).software(bytes).meter(1).output(2)),
              "unsupported order of actions: meter behind a copy of a packet that has been changed");
}

/// A log's meter: the device drops the copies that exceed it, and the packet goes on.
const std::string logged = "meter 1 (11), dest_table (exceeding: drop; " + each + ")";
/// A meter of two bytes, and what is behind it.
MegaflowBuilder log(MegaflowBuilder flow, std::string_view work = "\x07\x01\x0c\x01"sv, std::uint32_t number = 1) {
    return flow.software(work).behind_meter(number, 2);
}
/// What is left to software if it does the meter too.
const std::string metered_by_software = "copy to software: userspace 07010c01, from datapath port 1";

TEST(CompileSoftware, ACopyHasAMeterOfItsOwn) {
    EXPECT_EQ(path_of(log(flow()).output(2)), "dest_array [dest_vport 2, dest_table (" + logged + ")]");
    EXPECT_EQ(path_of(log(flow().set(OVSDR_HEADER_IP_TTL, {63})).output(2)),
              "set ip_ttl=0x3f, dest_array [dest_vport 2, dest_table (" + logged + ")]");
    EXPECT_EQ(path_of(log(flow()).push(5).output(2)),
              "dest_array [dest_table (" + logged + "), dest_table (push_vlan 0x8100 vid 5 pcp 0, dest_vport 2)]");
    EXPECT_EQ(path_of(log(flow())), "dest_table (" + logged + ")") << "most are dropped in the device";
    EXPECT_EQ(path_of(log(flow()).software(bytes)), "unsupported action: userspace") << "each comes up anyway";
    EXPECT_EQ(path_of(flow().copy().set(OVSDR_HEADER_IP_TTL, {63}).software("\x07\x01\x0c\x01"sv).behind_meter(1, 2)
                          .end_copy().output(2)),
              "dest_array [dest_vport 2, dest_table (set ip_ttl=0x3f, dest_table (" + logged + "))]");
    const ovsdr_megaflow inner = log(MegaflowBuilder(20).from_tunnel(5).ipv4()).output(2);
    EXPECT_TRUE(path_of(inner).starts_with("decapsulate, dest_array [dest_vport 2, dest_table (meter 1 (11)"))
        << path_of(inner);
}

TEST(CompileSoftware, AMeteredCopyIsInFrontOfAMeterOfThePacketItself) {
    PortMap ports = ports_with_copies();
    ports.set_meter(2, {.serial = 12});
    const auto plan = compile(log(flow()).meter(2).output(2), ports, {});
    ASSERT_TRUE(plan) << text_of(plan.error());
    EXPECT_EQ(text_of(plan->path), "dest_array [dest_table (" + logged +
                                       "), dest_table (meter 2 (12), dest_table (exceeding: drop; dest_vport 2))]");
    EXPECT_EQ(text_of(compile(log(flow().meter(2)).output(2), ports, {})->path),
              "meter 2 (12), dest_table (exceeding: drop; dest_array [dest_vport 2, dest_table (" + logged + ")])");
}

/// Each of these comes up unmetered.
TEST(CompileSoftware, SoftwareMetersCopiesWhereTheDeviceWouldNotDoTheSame) {
    const std::string beside = "dest_array [dest_vport 2, dest_table (" + metered_by_software + ")]";
    const auto work = "\x07\x01\x0c\x01"sv;
    EXPECT_EQ(path_of(log(flow(), work, 9).output(2)), beside) << "nobody has set it";
    DeviceCaps none, legacy;
    none.meters = false;
    legacy.meters_end_rules = true;
    EXPECT_EQ(path_of(log(flow()).output(2), none), beside);
    EXPECT_EQ(path_of(log(flow()).output(2), legacy), beside);
    EXPECT_EQ(path_of(log(flow()), legacy), "unsupported action: userspace");
    PortMap ports = ports_with_copies();
    ports.set_meter(1, {12, meter::Refusal{"meter with a burst that is too large", ""}});
    EXPECT_EQ(text_of(compile(log(flow()).output(2), ports, {})->path), beside);
    // One meter that a packet meets twice.
    EXPECT_EQ(path_of(log(log(flow()).output(2), "\x07\x01\x0d"sv)),
              "dest_array [dest_vport 2, dest_table (" + metered_by_software +
                  "), dest_table (copy to software: userspace 07010d, from datapath port 1)]");
    EXPECT_EQ(path_of(log(flow().meter(1)).output(2)), "meter 1 (11), dest_table (exceeding: drop; " + beside + ")");
    // Another length than the packet came with.
    EXPECT_EQ(path_of(log(flow().push(5)).output(2)), "push_vlan 0x8100 vid 5 pcp 0, " + beside);
    EXPECT_EQ(path_of(log(flow().vlan(5).pop()).output(2)), "pop_vlan, " + beside);
    // A sampler's copies go up at once.
    EXPECT_EQ(path_of(flow().software(work, 64).behind_meter(1, 2).output(2)),
              "copy to software (1 of 64): userspace 07010c01, from datapath port 1; dest_table (dest_vport 2)");
}

TEST(CompileSoftware, AStoredMegaflowKnowsTheMetersOfItsCopies) {
    MegaflowParts parts;
    const StoredMegaflow stored(log(flow()).output(2), parts), plain(flow().software(bytes).output(2), parts);
    EXPECT_TRUE(stored.has_meter() && stored.meets(1) && !stored.meets(2));
    EXPECT_EQ(stored.meters(), std::set<std::uint32_t>{1});
    EXPECT_FALSE(plain.has_meter());
    const StoredMegaflow other(flow().software("\x07\x01\x0c\x01"sv).behind_meter(2, 2).output(2), parts);
    EXPECT_FALSE(stored == other);
    const ovsdr_megaflow restored = stored.restore();
    EXPECT_EQ(restored.actions[0].software.metered_from, 2U);
}

TEST(CompileSoftware, ACopyOutOfATunnelHasNoOuterHeadersAndTheMegaflowsMetadata) {
    const ovsdr_megaflow megaflow = MegaflowBuilder(20).from_tunnel(5).ipv4().software(bytes).output(2);
    const auto plan = compile(megaflow, ports_with_copies(), {});
    ASSERT_TRUE(plan) << text_of(plan.error());
    EXPECT_TRUE(plan->path.changes.decapsulates);
    ASSERT_EQ(plan->path.branches.size(), 1U);
    ASSERT_TRUE(plan->path.branches[0].is_copy());
    const SoftwareWork& work = plan->path.branches[0].software->work;
    EXPECT_EQ(work.in_port.value, 20U);
    EXPECT_EQ(work.tunnel.key.be_id, megaflow.tunnel_key.be_id);
    EXPECT_NE(work.tunnel.mask.be_id, 0U);
    const ovsdr_megaflow other = MegaflowBuilder(20).from_tunnel(6).ipv4().software(bytes).output(2);
    EXPECT_NE(compile(other, ports_with_copies(), {})->path.branches[0].software->work, work);
}

/// OVS's netdev_push_header() gives the packet new metadata: the port of the underlay, and no tunnel.
TEST(CompileSoftware, ACopyBehindATunnelsPushIsAPacketOfTheUnderlay) {
    const auto header = test::vxlan();
    const auto works = [](const ovsdr_megaflow& megaflow) {
        const auto plan = compile(megaflow, ports_with_copies(), {});
        std::vector<SoftwareWork> found;
        const std::function<void(const Path&)> collect = [&](const Path& path) {
            if (path.software) found.push_back(path.software->work);
            for (const Path& branch : path.branches) collect(branch);
        };
        if (plan) collect(plan->path);
        return found;
    };
    const auto pushed = works(flow().tunnel(header, 55).output(9).output(tap).software(bytes));
    ASSERT_EQ(pushed.size(), 2U);
    for (const SoftwareWork& work : pushed) EXPECT_EQ(work.in_port.value, 55U) << text_of(work);
    const auto both = works(flow().copy().tunnel(header, 55).output(9).software(bytes).end_copy().software(bytes));
    ASSERT_EQ(both.size(), 2U);
    EXPECT_NE(both[0].in_port, both[1].in_port) << "the packet itself is none of the underlay's";
    const auto two = works(flow().copy().tunnel(header, 55).output(tap).end_copy().tunnel(header, 56).output(9)
                               .output(tap).software(bytes));
    ASSERT_EQ(two.size(), 3U);
    EXPECT_NE(two[0].in_port, two[1].in_port) << "equal headers on two underlays are two copies";
    const auto nested = works(MegaflowBuilder(20).from_tunnel(5).ipv4().tunnel(header, 55).software(bytes).output(1));
    ASSERT_EQ(nested.size(), 1U);
    EXPECT_EQ(nested[0].in_port.value, 55U);
    EXPECT_EQ(nested[0].tunnel, TunnelMetadata{}) << "it came out of one, and is in another";
}

/// For collectors: OVS tells them the port that the tunnel's packets came to, whether a megaflow asks for it or not.
TEST(CompileSoftware, ACopyFromATunnelKnowsTheTunnelsPort) {
    const ovsdr_megaflow megaflow = MegaflowBuilder(20).from_tunnel(5).ipv4().software(bytes).output(1);
    const auto plan = compile(megaflow, ports_with_copies(), {});
    ASSERT_TRUE(plan) << text_of(plan.error());
    std::optional<TunnelMetadata> tunnel;
    const std::function<void(const Path&)> look = [&](const Path& path) {
        if (path.software) tunnel = path.software->work.tunnel;
        for (const Path& branch : path.branches) look(branch);
    };
    look(plan->path);
    ASSERT_TRUE(tunnel);
    EXPECT_EQ(tunnel->key.be_tp_dst, htobe16(4789));
    EXPECT_EQ(tunnel->mask.be_tp_dst, 0xFFFF);
    EXPECT_EQ(tunnel->mask.be_tp_src, 0) << "each packet's own";
}

TEST(CompileSoftware, WorkIsTheBytesAndTheInPort) {
    const auto work = [](const ovsdr_megaflow& megaflow) {
        return compile(megaflow, ports_with_copies(), {})->path.branches.front().software->work;
    };
    const SoftwareWork one = work(flow(1).software(bytes).output(2));
    EXPECT_EQ(std::get<SoftwareWork::Actions>(one.work), (SoftwareWork::Actions{0x0c, 0x01}));
    EXPECT_EQ(one, work(flow(1).proto(17).software(bytes).output(3)));
    EXPECT_NE(one, work(flow(3).software(bytes).output(2)));
    EXPECT_NE(one, work(flow(1).software("\x0c\x02"sv).output(2)));
    EXPECT_NE(text_of(one), text_of(work(flow(3).software(bytes).output(2)))) << "branches are shared by their text";
}

/// Where nothing else is done in the device there is nothing to win.
TEST(CompileSoftware, NothingButCopiesStaysInSoftwareForTheirOwnReasons) {
    const std::string no_port =
        "output not offloaded: output to a port that is no dr port of this device: datapath port 77";
    EXPECT_EQ(path_of(flow().output(tap)), no_port);
    EXPECT_EQ(path_of(flow().push(5).output(tap)), no_port);
    EXPECT_EQ(path_of(flow().software(bytes)), "unsupported action: userspace");
    EXPECT_EQ(path_of(flow().software(bytes).output(tap)), "unsupported action: userspace; " + no_port);
}

TEST(CompileSoftware, WithoutAQueueForCopiesThereAreNone) {
    const auto path = [](const ovsdr_megaflow& megaflow) {
        return text_of(compile(megaflow, test::four_ports(), {}).error());
    };
    EXPECT_EQ(path(flow().software(bytes).output(2)),
              "unsupported action: userspace (copies for software have no queue)");
    EXPECT_EQ(path(flow().output(2).output(tap)),
              "output not offloaded: output to a port that is no dr port of this device: datapath port 77");
}

TEST(CompileSoftware, WhatADeviceLacksIsNamed) {
    DeviceCaps no_tables_up, no_samplers, no_copies_to_table;
    no_tables_up.recirculates = no_samplers.samples = no_copies_to_table.copies_to_table = false;
    const ovsdr_megaflow copied = flow().software(bytes).output(2), sampling = flow().software(bytes, 64).output(2);
    EXPECT_EQ(path_of(copied, no_tables_up), "device limit: userspace (NIC_RX has no table but its root)");
    EXPECT_EQ(path_of(sampling, no_samplers),
              "device limit: userspace of one in several packets (the device has no sampler)");
    EXPECT_EQ(path_of(copied, no_copies_to_table), "device limit: copy to software (no copies to tables)");
    EXPECT_EQ(path_of(sampling, no_copies_to_table), sampled + "dest_table (dest_vport 2)");
}

TEST(CompileSoftware, ASampleBesideCopiesOfEachPacketIsNoReason) {
    EXPECT_EQ(path_of(flow().software(bytes, 64).output(tap)),
              "unsupported action: userspace; output not offloaded: output to a port that is no dr port of this "
              "device: datapath port 77");
}

TEST(CompileSoftware, SeveralOutputsOfSoftwaresAreOneCopy) {
    const std::string to_all = "copy to software: output to datapath ports 77, 78, 79, from datapath port 1";
    EXPECT_EQ(path_of(flow().output(2).output(tap).output(78).output(79)),
              "dest_array [dest_vport 2, dest_table (" + to_all + ")]");
    EXPECT_EQ(path_of(flow().output(79).output(2).output(tap).output(78)),
              "dest_array [dest_vport 2, dest_table (" + to_all + ")]");
    EXPECT_EQ(path_of(flow().output(tap).output(2).push(5).output(78).output(79)),
              "dest_array [dest_vport 2, dest_table (" + to_tap + "), dest_table (push_vlan 0x8100 vid 5 pcp 0, "
              "dest_table (copy to software: output to datapath ports 78, 79, from datapath port 1))]")
        << "each shape is a copy";
}

/// What the host is to receive is not lost with what others look at.
TEST(CompileSoftware, OutputsToTheHostHaveACopyOfTheirOwn) {
    PortMap map = ports_with_copies();
    map.set_host(OdpPort{80});
    map.set_host(OdpPort{81});
    const ovsdr_megaflow megaflow = flow().output(tap).output(81).output(2).output(80).software(bytes);
    const auto plan = compile(megaflow, map, {});
    ASSERT_TRUE(plan) << text_of(plan.error());
    const std::string text = text_of(plan->path);
    EXPECT_NE(text.find("(copy to software: output to the host's datapath ports 80, 81, from datapath port 1)"),
              std::string::npos) << text;
    EXPECT_NE(text.find("(" + to_tap + ")"), std::string::npos) << text;
    for (const Path& branch : plan->path.branches) {
        const SoftwareWork& work = branch.software->work;
        const bool to_host = std::holds_alternative<SoftwareWork::Ports>(work.work) &&
                             std::get<SoftwareWork::Ports>(work.work).front().value >= 80;
        EXPECT_EQ(work.kind, to_host ? CopyKind::host : CopyKind::other) << text_of(work);
    }
    map.erase_host(OdpPort{80});
    EXPECT_NE(text_of(compile(megaflow, map, {})->path).find("output to datapath ports 77, 80,"), std::string::npos);
    map.lead_copies(CopyKind::host, false);
    EXPECT_EQ(text_of(compile(megaflow, map, {}).error()),
              "output not offloaded: output to a port that is no dr port of this device: datapath port 81");
}

TEST(CompileSoftware, OneActionTwiceOnOnePacketIsRefused) {
    EXPECT_EQ(path_of(flow().software(bytes).software(bytes).output(2)),
              "unsupported action: one action of software's twice on the same packet");
    EXPECT_EQ(path_of(flow().output(tap).output(tap).output(2)), "unsupported action: two outputs to one port");
    EXPECT_EQ(path_of(flow().output(tap).output(78).output(76).output(tap).output(2)),
              "unsupported action: two outputs to one port");
    EXPECT_TRUE(path_of(flow().software(bytes).push(5).software(bytes).output(2)).starts_with("dest_array"));
}

TEST(CompileSoftware, MoreSamplersThanTablesInARowAreRefused) {
    MegaflowBuilder many = flow();
    constexpr std::string_view names[] = {"1", "2", "3", "4", "5", "6"};
    for (const std::string_view name : names) many.software(name, 64);
    EXPECT_TRUE(path_of(MegaflowBuilder(many).output(2)).starts_with("copy to software")) << "one for each table";
    EXPECT_EQ(path_of(many.software("7", 64).output(2)),
              "unsupported order of actions: actions that need too many tables in a row");
}

/// A path has room for six behind the megaflow's rule.
TEST(CompileSoftware, TablesOfMetersAndOfATunnelsEndCountAmongThoseInARow) {
    const struct {
        std::uint32_t in_port, meters;
        std::size_t samplers;
    } most[] = {{1, 0, 6}, {1, 1, 5}, {1, 2, 4}, {1, 3, 3}, {20, 1, 3}, {20, 2, 2}};
    constexpr std::string_view names[] = {"1", "2", "3", "4", "5", "6", "7"};
    for (const auto& [in_port, meters, samplers] : most) {
        SCOPED_TRACE(testing::Message() << meters << " meters of port " << in_port);
        MegaflowBuilder megaflow = flow(in_port);
        if (in_port == 20) megaflow.from_tunnel(5);
        for (std::uint32_t number = 1; number <= meters; ++number) megaflow.meter(number);
        for (std::size_t i = 0; i < samplers; ++i) megaflow.software(names[i], 64);
        const std::string text = path_of(MegaflowBuilder(megaflow).output(2));
        EXPECT_NE(text.find("copy to software"), std::string::npos) << text;
        EXPECT_EQ(path_of(megaflow.software(names[samplers], 64).output(2)),
                  "unsupported order of actions: actions that need too many tables in a row");
    }
}

TEST(CompileSoftware, AStoredMegaflowKeepsItsBytes) {
    MegaflowParts parts;
    const std::string_view other_bytes = "\x0c\x02"sv;
    const test::HeaderBytes header = test::vxlan();
    const ovsdr_megaflow megaflow = flow().software(bytes, 64).tunnel(header).software("x"sv).output(9);
    const StoredMegaflow stored(megaflow, parts);
    const ovsdr_megaflow restored = stored.restore();
    EXPECT_EQ(path_of(restored), path_of(megaflow));
    EXPECT_EQ(restored.actions[0].software.one_of, 64U);
    EXPECT_EQ(restored.actions[2].software.actions_size, 1U);
    EXPECT_EQ(*restored.actions[2].software.actions, 'x');
    EXPECT_NE(restored.actions[0].software.actions, megaflow.actions[0].software.actions) << "bytes of its own";
    EXPECT_TRUE(stored.has_software());
    EXPECT_FALSE(StoredMegaflow(flow().output(2), parts).has_software());
    EXPECT_TRUE(stored == StoredMegaflow(megaflow, parts));
    const auto is_other = [&](const ovsdr_megaflow& given) { return !(stored == StoredMegaflow(given, parts)); };
    EXPECT_TRUE(is_other(flow().software(other_bytes, 64).tunnel(header).software("x"sv).output(9)));
    EXPECT_TRUE(is_other(flow().software(bytes, 65).tunnel(header).software("x"sv).output(9)));
    EXPECT_TRUE(is_other(flow().software("\x0c"sv, 64).tunnel(header).software("x"sv).output(9)));
}

/// Megaflows of one shape share a plan, and the in_port is in there.
TEST(CompileSoftware, MegaflowsOfOtherPortsHaveNoPlanInCommon) {
    MegaflowParts parts;
    const StoredMegaflow one(flow(1).software(bytes).output(2), parts), same(flow(1).software(bytes).output(2), parts),
        other(flow(3).software(bytes).output(2), parts);
    EXPECT_TRUE(one.has_shape());
    EXPECT_TRUE(one.has_shape_of(same));
    EXPECT_FALSE(one.has_shape_of(other));
}

}  // namespace
}  // namespace ovsdr::dr
