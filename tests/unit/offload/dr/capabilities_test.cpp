// What a device lacks keeps those megaflows in software that need it, and no others.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "offload/dr/compile/compile.hpp"
#include "tests/unit/offload/four_ports.hpp"
#include "tests/unit/offload/megaflow_builder.hpp"
#include "tests/unit/offload/tunnel_headers.hpp"

namespace ovsdr::dr::capabilities {
namespace {

using test::MegaflowBuilder;

constexpr std::uint32_t uplink = 9, vxlan = 20, geneve = 21;

PortMap ports() {
    PortMap map = test::four_ports();
    map.set_tunnel({OdpPort{vxlan}, TunnelKind::vxlan, 4789, "vxlan_sys_4789"});
    map.set_tunnel({OdpPort{geneve}, TunnelKind::geneve, 6081, "genev_sys_6081"});
    map.set_meter(1, {.serial = 11});
    return map;
}

/// Flow and the names of what it needs of a device.
struct Case {
    MegaflowBuilder flow;
    std::set<std::string> needs;
};

MegaflowBuilder to_tunnel(std::uint32_t tunnel, std::uint16_t udp_port) {
    MegaflowBuilder flow(uplink);
    flow.ipv4().proto(17).ports(0, udp_port).raw().mask.be_tp_src = 0;
    return flow.tunnel_pop(tunnel);
}

MegaflowBuilder from(std::uint32_t tunnel) { return MegaflowBuilder(tunnel).from_tunnel(5).ipv4(); }

MegaflowBuilder with_tos(MegaflowBuilder flow, std::uint8_t mask) {
    return flow.set(OVSDR_HEADER_IP_TOS, {mask}).under({mask}).output(2);
}

const test::HeaderBytes& gre_header() {
    static const test::HeaderBytes header = test::gre(test::outer_ipv4(47));
    return header;
}

std::vector<Case> cases() {
    return {
        {MegaflowBuilder().ipv4().output(2).output(3), {}},
        {MegaflowBuilder().ipv4().proto(1).output(2), {}},
        {MegaflowBuilder().ipv4().proto(1).ports(8, 0).output(2), {"icmp_v4"}},
        {MegaflowBuilder().ipv6().proto(58).output(2), {}},
        {MegaflowBuilder().ipv6().proto(58).ports(128, 0).output(2), {"icmp_v6"}},
        {MegaflowBuilder().ipv4().push(5).output(2).output(3), {}},
        {MegaflowBuilder().ipv4().output(2).push(5).output(3), {"copies_to_table"}},
        {MegaflowBuilder().ipv4().recirc(7), {"recirculates"}},
        {MegaflowBuilder().ipv4().behind(7).output(2), {"recirculates"}},
        {MegaflowBuilder().ipv4().output(2).recirc(7), {"recirculates", "copies_to_table"}},
        {with_tos(MegaflowBuilder().ipv4(), 0xFC), {}},
        {with_tos(MegaflowBuilder().ipv6(), 0x04), {}},
        {with_tos(MegaflowBuilder().ipv4(), 0xFF), {"writes_ecn"}},
        {with_tos(MegaflowBuilder().ipv4(), 0x01), {"writes_ecn"}},
        {with_tos(MegaflowBuilder().ipv6(), 0x02), {"writes_ecn"}},
        {MegaflowBuilder().ipv4().tunnel(gre_header()).output(uplink), {"max_tunnel_header"}},
        {to_tunnel(vxlan, 4789), {"recirculates"}},
        {to_tunnel(geneve, 6081), {"recirculates", "geneve"}},
        {from(vxlan).output(2), {"recirculates", "decapsulates"}},
        {from(vxlan), {"recirculates", "decapsulates"}},   // to be counted without the tunnel's headers
        {from(vxlan).recirc(7), {"recirculates"}},
        {from(geneve).option(0x102, 0x80, 7).output(2), {"recirculates", "decapsulates", "geneve_option"}},
        {from(geneve).option(0x102, 0x80, 0).output(2),
         {"recirculates", "decapsulates", "geneve_option", "tells_geneve_option"}},
        {MegaflowBuilder().ipv4().meter(1).output(2), {"meters"}},
    };
}

/// Devices that lack one thing each.
const std::map<std::string, std::function<void(DeviceCaps&)>> lacking{
    {"icmp_v4", [](DeviceCaps& caps) { caps.icmp_v4 = false; }},
    {"icmp_v6", [](DeviceCaps& caps) { caps.icmp_v6 = false; }},
    {"copies_to_table", [](DeviceCaps& caps) { caps.copies_to_table = false; }},
    {"recirculates", [](DeviceCaps& caps) { caps.recirculates = false; }},
    {"writes_ecn", [](DeviceCaps& caps) { caps.writes_ecn = false; }},
    {"max_tunnel_header",
     [](DeviceCaps& caps) { caps.max_tunnel_header = static_cast<std::uint16_t>(gre_header().size() - 1); }},
    {"decapsulates", [](DeviceCaps& caps) { caps.decapsulates = false; }},
    {"geneve", [](DeviceCaps& caps) { caps.geneve = false; }},
    {"geneve_option", [](DeviceCaps& caps) { caps.geneve_option = false; }},
    {"tells_geneve_option", [](DeviceCaps& caps) { caps.tells_geneve_option = false; }},
    {"tunnel_header", [](DeviceCaps& caps) { caps.tunnel_header = false; }},
    {"meters", [](DeviceCaps& caps) { caps.meters = false; }},
};

TEST(Capabilities, AreAskedForWhereTheyAreNeeded) {
    for (const Case& each : cases()) {
        const auto whole = compile(each.flow, ports(), {});
        ASSERT_TRUE(whole) << text_of(whole.error());
        for (const auto& [name, take_away] : lacking) {
            DeviceCaps caps;
            take_away(caps);
            const auto plan = compile(each.flow, ports(), caps);
            EXPECT_EQ(bool(plan), !each.needs.contains(name))
                << text_of(whole->path) << " without " << name << (plan ? "" : ": " + text_of(plan.error()));
            if (plan) {
                EXPECT_EQ(text_of(plan->path), text_of(whole->path)) << "without " << name;
            } else {
                EXPECT_TRUE(text_of(plan.error()).starts_with("device limit: ")) << text_of(plan.error());
            }
        }
    }
}

/// How actions that a device has not would be arranged is not asked.
TEST(Capabilities, OneThatIsMissingIsReasonEnough) {
    DeviceCaps caps;
    caps.copies_to_table = caps.decapsulates = false;
    const auto outcome = [&](const ovsdr_megaflow& flow) {
        const auto plan = compile(flow, ports(), caps);
        return plan ? text_of(plan->path) : text_of(plan.error());
    };
    EXPECT_EQ(outcome(from(vxlan).output(2).set(OVSDR_HEADER_IP_TTL, {9}).output(3)), "device limit: decapsulation");
    caps.steering_format = 0;
    EXPECT_EQ(outcome(MegaflowBuilder().ipv4().vlan(5).output(2).pop().output(3)),
              "device limit: pop_vlan of packets from a vport");
    EXPECT_EQ(outcome(MegaflowBuilder(uplink).ipv4().output(2).push(5).output(3)),
              "device limit: push_vlan onto packets from the wire");
    EXPECT_EQ(outcome(MegaflowBuilder(uplink).ipv4().output(2).tunnel(gre_header()).output(3)),
              "device limit: tnl_push of packets from the wire");
}

TEST(Capabilities, AHeaderMayBeAsLongAsTheDevicesReformat) {
    DeviceCaps caps;
    caps.max_tunnel_header = static_cast<std::uint16_t>(gre_header().size());
    EXPECT_TRUE(compile(MegaflowBuilder().ipv4().tunnel(gre_header()).output(uplink), ports(), caps));
}

}  // namespace
}  // namespace ovsdr::dr::capabilities
