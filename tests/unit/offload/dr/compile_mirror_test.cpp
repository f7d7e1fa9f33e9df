// Outputs to storage mirrors as the compiler arranges them, and what it refuses of them.
#include <gtest/gtest.h>

#include "offload/dr/compile/compile.hpp"
#include "tests/unit/offload/four_ports.hpp"
#include "tests/unit/offload/megaflow_builder.hpp"
#include "tests/unit/offload/software_actions.hpp"
#include "tests/unit/offload/tunnel_headers.hpp"

namespace ovsdr::dr {
namespace {

using test::MegaflowBuilder;
using test::bytes, test::stor0, test::stor1, test::tap;

const std::string to_stor0 = "copy to software: output to mirror 0, datapath port 60, from datapath port 1";
const std::string to_stor1 = "copy to software: output to mirror 3, datapath port 61, from datapath port 1";
const std::string to_tap = "copy to software: output to datapath port 77, from datapath port 1";

PortMap ports_with_mirrors(std::uint32_t one_of = 1) {
    PortMap map = test::four_ports();
    map.set_meter(1, {.serial = 11});
    map.set_tunnel({.odp_port = OdpPort{20}, .kind = TunnelKind::vxlan, .udp_port = 4789, .name = "vxlan"});
    for (const CopyKind kind : all_copy_kinds) map.lead_copies(kind, true);
    map.set_mirror(OdpPort{stor0}, {mirror_kind(0), one_of});
    map.set_mirror(OdpPort{stor1}, {mirror_kind(3), 1});
    return map;
}

std::string path_of(const ovsdr_megaflow& megaflow, const PortMap& map = ports_with_mirrors(),
                    const DeviceCaps& caps = {}) {
    const auto plan = compile(megaflow, map, caps);
    return plan ? text_of(plan->path) : text_of(plan.error());
}

MegaflowBuilder flow(std::uint32_t in_port = 1) { return MegaflowBuilder(in_port).ipv4(); }

TEST(CompileMirror, ACopyLeavesBesideThePacketAsItIsThere) {
    EXPECT_EQ(path_of(flow().output(stor0).output(2)), "dest_array [dest_vport 2, dest_table (" + to_stor0 + ")]");
    EXPECT_EQ(path_of(flow().output(2).push(5).output(stor0)),
              "dest_array [dest_vport 2, dest_table (push_vlan 0x8100 vid 5 pcp 0, dest_table (" + to_stor0 + "))]");
    EXPECT_EQ(path_of(flow().output(stor0).set(OVSDR_HEADER_IP_TTL, {63}).output(2)),
              "dest_array [dest_table (" + to_stor0 + "), dest_table (set ip_ttl=0x3f, dest_vport 2)]");
    EXPECT_EQ(path_of(flow().output(stor0).recirc(7)),
              "dest_array [dest_table recirc_id 0x7, dest_table (" + to_stor0 + ")]");
}

/// What one mirror takes is no other's, and no tap's.
TEST(CompileMirror, EachMirrorHasACopyOfItsOwn) {
    EXPECT_EQ(path_of(flow().output(stor0).output(2).output(stor1).output(tap)),
              "dest_array [dest_vport 2, dest_table (" + to_stor0 + "), dest_table (" + to_stor1 + "), dest_table (" +
                  to_tap + ")]");
    EXPECT_EQ(path_of(flow().output(stor0).output(stor0).output(2)), "unsupported action: two outputs to one port");
    EXPECT_EQ(path_of(flow().output(stor0).push(5).output(stor0)),
              "dest_array [dest_table (" + to_stor0 + "), dest_table (push_vlan 0x8100 vid 5 pcp 0, dest_table (" +
                  to_stor0 + "))]") << "two frames that differ";
}

/// Nothing is left to be done in software.
TEST(CompileMirror, AMirrorAloneTakesPacketsInTheDevice) {
    EXPECT_EQ(path_of(flow().output(stor0)), "dest_table (" + to_stor0 + ")");
    EXPECT_EQ(path_of(flow().output(stor0).output(stor1)),
              "dest_array [dest_table (" + to_stor0 + "), dest_table (" + to_stor1 + ")]");
    EXPECT_EQ(path_of(flow().output(stor0).output(tap)),
              "output not offloaded: output to a port that is no dr port of this device: datapath port 77")
        << "software has to see each packet as before";
    EXPECT_EQ(path_of(flow().output(stor0).software(bytes)), "unsupported action: userspace");
}

TEST(CompileMirror, OneOfSeveralIsTakenByASampler) {
    const std::string sampled =
        "copy to software (1 of 16): output to mirror 0, datapath port 60, from datapath port 1; ";
    EXPECT_EQ(path_of(flow().output(stor0).output(2), ports_with_mirrors(16)), sampled + "dest_table (dest_vport 2)");
    EXPECT_EQ(path_of(flow().output(stor0), ports_with_mirrors(16)), sampled + "dest_table (drop)");
    DeviceCaps caps;
    caps.samples = false;
    EXPECT_EQ(path_of(flow().output(stor0).output(2), ports_with_mirrors(16), caps),
              "device limit: output to a storage mirror of one in several packets (the device has no sampler)");
    EXPECT_EQ(path_of(flow().output(stor0).output(2), ports_with_mirrors(), caps),
              "dest_array [dest_vport 2, dest_table (" + to_stor0 + ")]");
}

TEST(CompileMirror, ACutOutputSaysHowMuchTheMirrorTakes) {
    const std::string cut =
        "copy to software: output to mirror 0, datapath port 60 (the first 128 bytes), from datapath port 1";
    EXPECT_EQ(path_of(flow().cut_output(bytes, 128, stor0).output(2)),
              "dest_array [dest_vport 2, dest_table (" + cut + ")]");
    const auto plan = compile(flow().cut_output(bytes, 128, stor0), ports_with_mirrors(), {});
    ASSERT_TRUE(plan) << text_of(plan.error());
    EXPECT_EQ(plan->path.branches.at(0).software->work.cut_at, 128U);
    EXPECT_EQ(path_of(flow().cut_output(bytes, 128, tap).output(2)),
              "dest_array [dest_vport 2, dest_table (copy to software: trunc 0c01, from datapath port 1)]")
        << "of another port it is software's as before";
}

TEST(CompileMirror, MetersAndTunnelsAreAsWithOtherCopies) {
    EXPECT_EQ(path_of(flow().output(stor0).meter(1).output(2)),
              "dest_array [dest_table (" + to_stor0 + "), dest_table (meter 1 (11), dest_table (exceeding: drop; "
              "dest_vport 2))]");
    EXPECT_EQ(path_of(flow().meter(1).output(stor0)),
              "meter 1 (11), dest_table (exceeding: drop; dest_table (" + to_stor0 + "))");
    const test::HeaderBytes header = test::vxlan();
    const std::string encapsulated = path_of(flow().tunnel(header, 55).output(9).output(stor0));
    EXPECT_TRUE(encapsulated.ends_with("output to mirror 0, datapath port 60, from datapath port 55)]"))
        << encapsulated;
    const std::string inner = path_of(MegaflowBuilder(20).from_tunnel(5).ipv4().output(stor0).output(2));
    EXPECT_TRUE(inner.starts_with("decapsulate, dest_array [dest_vport 2, dest_table (copy to software: output to "
                                  "mirror 0, datapath port 60, from datapath port 20 with tunnel ")) << inner;
}

TEST(CompileMirror, WithoutAQueueItSaysSo) {
    PortMap map = ports_with_mirrors();
    map.lead_copies(mirror_kind(0), false);
    EXPECT_EQ(path_of(flow().output(stor0).output(2), map),
              "output not offloaded: output to a storage mirror whose copies have no queue: datapath port 60");
    EXPECT_EQ(path_of(flow().output(stor1).output(2), map), "dest_array [dest_vport 2, dest_table (" + to_stor1 + ")]");
    DeviceCaps caps;
    caps.recirculates = false;
    EXPECT_EQ(path_of(flow().output(stor1).output(2), map, caps),
              "device limit: output to a storage mirror (NIC_RX has no table but its root)");
    caps = {};
    caps.copies_to_table = false;
    EXPECT_EQ(path_of(flow().output(stor1).output(2), map, caps),
              "device limit: copy to software (no copies to tables)");
}

TEST(CompileMirror, APortIsOneThingAtATime) {
    PortMap map = ports_with_mirrors();
    map.set_host(OdpPort{80});
    map.set_mirror(OdpPort{80}, {mirror_kind(7)});
    EXPECT_FALSE(map.is_host(OdpPort{80}));
    map.set_mirror(OdpPort{20}, {mirror_kind(6)});
    EXPECT_EQ(map.find_tunnel(OdpPort{20}), nullptr);
    map.erase_mirror(OdpPort{stor0});
    EXPECT_EQ(path_of(flow().output(stor0).output(2), map),
              "dest_array [dest_vport 2, dest_table (copy to software: output to datapath port 60, from datapath port "
              "1)]");
}

}  // namespace
}  // namespace ovsdr::dr
