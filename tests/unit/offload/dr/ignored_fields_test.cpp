// What libmlx5 takes in a mask or a value and then ignores: its steering entries do not depend on it, so that a rule
// would match more packets than it was made for. The compiler must never write it, whatever a megaflow asks for. Found
// by: tests/conformance/libmlx5 (libmlx5_explained.csv).
#include <gtest/gtest.h>

#include <random>
#include <span>
#include <vector>

#include "offload/dr/compile/compile.hpp"
#include "tests/unit/offload/four_ports.hpp"
#include "tests/unit/offload/megaflow_builder.hpp"

namespace ovsdr::dr::ignored_fields {
namespace {

using test::MegaflowBuilder;

constexpr prm::Field ignored_fields[] = {field::misc(32, 16),    // source_eswitch_owner_vhca_id
                                         field::misc(100, 1),    // outer_emd_tag
                                         field::misc(352, 32),   // inner_esp_spi
                                         field::misc(384, 32)};  // outer_esp_spi

/// Bits of the blocks that have no name, as first bit and number. They are ignored as well.
constexpr prm::Field reserved_fields[] = {
    field::inner_of(field::outer(192, 16)),
    field::outer(192, 16), field::misc(1, 1),     field::misc(101, 11),  field::misc(184, 8),   field::misc(216, 6),
    field::misc(224, 12),  field::misc(256, 12),  field::misc(288, 10),  field::misc(320, 8),   field::misc(416, 32),
    field::misc(448, 32),  field::misc(480, 32),  field::misc2(416, 32), field::misc2(448, 32), field::misc2(480, 32),
    field::misc3(128, 8),  field::misc3(176, 16), field::misc3(368, 16), field::misc3(480, 32)};

constexpr std::uint32_t uplink = 9, vxlan = 20, geneve = 21, gre = 22;

const PortMap& ports() {
    static const PortMap all = [] {
        PortMap map = test::four_ports();
        map.set_tunnel({OdpPort{vxlan}, TunnelKind::vxlan, 4789, "vxlan_sys_4789"});
        map.set_tunnel({OdpPort{geneve}, TunnelKind::geneve, 6081, "genev_sys_6081"});
        map.set_tunnel({OdpPort{gre}, TunnelKind::gre, 0, "gre_sys"});
        return map;
    }();
    return all;
}

MegaflowBuilder into(std::uint32_t tunnel, std::uint16_t udp_port) {
    return MegaflowBuilder(uplink).ipv4().proto(17).ports(1, udp_port).tunnel_pop(tunnel);
}

const std::vector<MegaflowBuilder>& bases() {
    static const std::vector<MegaflowBuilder> all{
        into(vxlan, 4789),
        into(geneve, 6081),
        MegaflowBuilder(uplink).ipv6().proto(47).tunnel_pop(gre),
        MegaflowBuilder(vxlan).from_tunnel(5).ipv4().proto(6).ports(1, 2).vlan(7),
        MegaflowBuilder(vxlan).from_tunnel(5).over_ipv6().ipv6().vlan(8, 0x88a8).second_vlan(9),
        MegaflowBuilder(geneve).from_tunnel(5).option(0x102, 0x80, 7).ipv4(),
        MegaflowBuilder(gre).from_tunnel(5).arp(),
        MegaflowBuilder().arp(),
        MegaflowBuilder().eth_type(0x88cc),
        MegaflowBuilder().ipv4(),
        MegaflowBuilder().ipv4().proto(6).ports(1, 2),
        MegaflowBuilder().ipv4().proto(17).ports(1, 2).vlan(7),
        MegaflowBuilder().ipv4().proto(1),
        MegaflowBuilder().ipv6().proto(58),
        MegaflowBuilder().ipv6().proto(6).ports(3, 4).vlan(8, 0x88a8),
        MegaflowBuilder(9).ipv6(),
        MegaflowBuilder(9).ipv6().vlan(8, 0x88a8).second_vlan(9),
        MegaflowBuilder().ipv4().vlan(8).no_second_vlan(),
        MegaflowBuilder().eth_type(0x8100).vlan(8, 0x88a8),
    };
    return all;
}

/// True where the compiler took the megaflow; then nothing ignored is in what it made of it.
[[nodiscard]] bool taken_without_ignored(const ovsdr_megaflow& flow) {
    const auto compiled = compile(flow, ports(), {});
    if (!compiled) return false;
    const MatchPlan& plan = compiled->match;
    for (const auto& fields :
         {std::span<const prm::Field>(ignored_fields), std::span<const prm::Field>(reserved_fields)}) {
        for (const prm::Field one : fields) {
            EXPECT_EQ(plan.mask.get(one), 0U) << "mask, bit " << one.bit_offset;
            EXPECT_EQ(plan.value.get(one), 0U) << "value, bit " << one.bit_offset;
        }
    }
    unsigned blocks = criteria_outer | criteria_misc | criteria_misc2 | criteria_misc3;
    if (plan.in_tunnel()) blocks |= criteria_inner;
    if (flow.n_actions != 0) blocks |= criteria_misc5;   // tnl_pop
    EXPECT_EQ(plan.mask.criteria() & ~blocks, 0U);
    return true;
}

constexpr std::size_t packet_bits = 8 * sizeof(ovsdr_flow_fields),
                      all_bits = packet_bits + 8 * sizeof(ovsdr_tunnel_fields);

/// The tunnel's bits are behind those of the packet.
void mask_bit(ovsdr_megaflow& flow, std::size_t bit, bool set) {
    const bool of_tunnel = bit >= packet_bits;
    auto* const mask = of_tunnel ? static_cast<void*>(&flow.tunnel_mask) : &flow.mask;
    auto* const key = of_tunnel ? static_cast<void*>(&flow.tunnel_key) : &flow.key;
    if (of_tunnel) bit -= packet_bits;
    const auto one = static_cast<std::uint8_t>(1U << bit % 8);
    static_cast<std::uint8_t*>(mask)[bit / 8] |= one;
    if (set) static_cast<std::uint8_t*>(key)[bit / 8] ^= one;
}

TEST(IgnoredFields, NoBitOfAMegaflowBecomesOne) {
    unsigned taken = 0;
    for (const MegaflowBuilder& builder : bases()) {
        const ovsdr_megaflow base = builder;
        ASSERT_TRUE(taken_without_ignored(base));
        for (std::size_t bit = 0; bit < all_bits; ++bit) {
            for (const bool set : {false, true}) {
                ovsdr_megaflow flow = base;
                mask_bit(flow, bit, set);
                taken += taken_without_ignored(flow) ? 1 : 0;
            }
        }
    }
    EXPECT_GT(taken, 2000U);
}

TEST(IgnoredFields, NorDoSeveralTogether) {
    std::mt19937 random(7);
    unsigned taken = 0;
    for (unsigned trial = 0; trial < 50000; ++trial) {
        ovsdr_megaflow flow = bases()[random() % bases().size()];
        for (unsigned bits = 1 + random() % 4; bits > 0; --bits) {
            mask_bit(flow, random() % all_bits, random() % 2 != 0);
        }
        taken += taken_without_ignored(flow) ? 1 : 0;
    }
    EXPECT_GT(taken, 2000U);
}

}  // namespace
}  // namespace ovsdr::dr::ignored_fields
