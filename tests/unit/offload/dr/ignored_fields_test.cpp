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

namespace ovsdr::dr {
namespace {

using test::MegaflowBuilder;

constexpr prm::Field ignored_fields[] = {field::misc(32, 16),    // source_eswitch_owner_vhca_id
                                         field::misc(100, 1),    // outer_emd_tag
                                         field::misc(352, 32),   // inner_esp_spi
                                         field::misc(384, 32)};  // outer_esp_spi

/// Bits of the outer block, misc, misc2 and misc3 that have no name, as first bit and number. They are ignored as well.
constexpr prm::Field reserved_fields[] = {
    field::outer(192, 16), field::misc(1, 1),     field::misc(101, 11),  field::misc(184, 8),   field::misc(216, 6),
    field::misc(224, 12),  field::misc(256, 12),  field::misc(288, 10),  field::misc(320, 8),   field::misc(416, 32),
    field::misc(448, 32),  field::misc(480, 32),  field::misc2(416, 32), field::misc2(448, 32), field::misc2(480, 32),
    field::misc3(128, 8),  field::misc3(176, 16), field::misc3(368, 16), field::misc3(480, 32)};

const std::vector<MegaflowBuilder>& bases() {
    static const std::vector<MegaflowBuilder> all{
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
    Obstacles obstacles;
    const MatchPlan plan = compile_match(flow.key, flow.mask, test::four_ports(), {}, obstacles);
    if (!obstacles.empty()) return false;
    for (const auto& fields :
         {std::span<const prm::Field>(ignored_fields), std::span<const prm::Field>(reserved_fields)}) {
        for (const prm::Field one : fields) {
            EXPECT_EQ(plan.mask.get(one), 0U) << "mask, bit " << one.bit_offset;
            EXPECT_EQ(plan.value.get(one), 0U) << "value, bit " << one.bit_offset;
        }
    }
    constexpr unsigned blocks = criteria_outer | criteria_misc | criteria_misc2 | criteria_misc3;
    EXPECT_EQ(plan.mask.criteria() & ~blocks, 0) << "no inner headers";
    return true;
}

void mask_bit(ovsdr_megaflow& flow, std::size_t bit, bool set) {
    const auto one = static_cast<std::uint8_t>(1U << bit % 8);
    reinterpret_cast<std::uint8_t*>(&flow.mask)[bit / 8] |= one;
    if (set) reinterpret_cast<std::uint8_t*>(&flow.key)[bit / 8] ^= one;
}

TEST(IgnoredFields, NoBitOfAMegaflowBecomesOne) {
    unsigned taken = 0;
    for (const MegaflowBuilder& builder : bases()) {
        const ovsdr_megaflow base = builder;
        ASSERT_TRUE(taken_without_ignored(base));
        for (std::size_t bit = 0; bit < 8 * sizeof(ovsdr_flow_fields); ++bit) {
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
            mask_bit(flow, random() % (8 * sizeof(ovsdr_flow_fields)), random() % 2 != 0);
        }
        taken += taken_without_ignored(flow) ? 1 : 0;
    }
    EXPECT_GT(taken, 2000U);
}

}  // namespace
}  // namespace ovsdr::dr
