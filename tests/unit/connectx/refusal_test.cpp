// What the kernel and firmware refuse, and the emulated ConnectX too. Runs under tests/connectx/run, for each profile.
#include <endian.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <initializer_list>
#include <utility>
#include <vector>

#include "tests/unit/connectx/emulated_device.hpp"

namespace ovsdr::connectx {
namespace {

using namespace test;

/// A DEVX command out of 32-bit words at byte offsets.
DevxObj make_object(ibv_context* context, std::size_t size,
                    std::initializer_list<std::pair<std::size_t, std::uint32_t>> words) {
    std::vector<std::uint8_t> in(size), out(16);
    for (const auto& [at, value] : words) {
        const std::uint32_t big = htobe32(value);
        std::memcpy(in.data() + at, &big, sizeof big);
    }
    return DevxObj(mlx5dv_devx_obj_create(context, in.data(), in.size(), out.data(), out.size()));
}

/// A firmware-owned table with its group, and entries of one destination.
struct FirmwareTable {
    static constexpr std::uint32_t fdb = 4U << 24;
    ibv_context* context;
    DevxObj table, group;
    std::uint32_t table_id = 0, group_id = 0;

    explicit FirmwareTable(ibv_context* owner)
        : context(owner), table(make_object(owner, 64, {{0, 0x0930'0000}, {16, fdb}})), table_id(newest(0x930)) {
        group = make_object(owner, 1024, {{0, 0x0933'0000}, {16, fdb}, {20, table_id}});
        group_id = newest(0x933);
    }
    static std::uint32_t newest(std::uint16_t opcode) {
        std::uint32_t id = 0;
        for (const DevxObject& object : device()->devx_objects()) {
            if (object.opcode == opcode) id = std::max(id, object.id);
        }
        return id;
    }
    [[nodiscard]] DevxObj entry(std::uint32_t destination, std::uint32_t action = 4, std::uint32_t edit = 0) const {
        return make_object(context, 832 + 8, {{0, 0x0936'0000},
                                              {16, fdb},
                                              {20, table_id},
                                              {64 + 4, group_id},
                                              {64 + 12, action},
                                              {64 + 16, 1},
                                              {64 + 28, edit},
                                              {832, destination}});
    }
};

/// Firmware's own use counts: a table that an entry of another leads to. The kernel makes an errno of its refusal.
TEST_F(EmulatedDevice, RefusesToDestroyATableThatAnEntryLeadsTo) {
    Rules rules(context_.get(), MLX5DV_DR_DOMAIN_TYPE_FDB);
    const std::uint32_t target = device()->tables().at(0).id;
    const FirmwareTable from(context_.get());
    ASSERT_NE(from.group, nullptr) << strerror(errno);
    EXPECT_NE(from.table_id, target);
    const DevxObj entry = from.entry(1U << 24 | target);
    ASSERT_NE(entry, nullptr) << strerror(errno);
    EXPECT_EQ(device()->table_entries().at(0).destinations.at(0).id, target);
    EXPECT_EQ(mlx5dv_devx_obj_destroy(from.table.get()), EINVAL);
    EXPECT_EQ(mlx5dv_devx_obj_destroy(from.group.get()), EINVAL);
    EXPECT_EQ(device()->alive().at("DEVX:CREATE_FLOW_TABLE"), 2U);
}

TEST_F(EmulatedDevice, TakesNoEntryThatItDoesNotUnderstand) {
    const FirmwareTable table(context_.get());
    ASSERT_NE(table.group, nullptr) << strerror(errno);
    const auto refused_with = [&](std::uint32_t destination, std::uint32_t action, std::uint32_t edit) {
        return table.entry(destination, action, edit) == nullptr ? errno : 0;
    };
    EXPECT_EQ(refused_with(2, 4, 0), 0);                     // vport 2
    EXPECT_EQ(refused_with(9, 4, 0), EREMOTEIO);             // no such vport
    EXPECT_EQ(refused_with(1U << 24 | 1, 4, 0), EREMOTEIO);   // no such table
    EXPECT_EQ(refused_with(2U << 24 | 1, 4, 0), EREMOTEIO);   // no such TIR
    EXPECT_EQ(refused_with(6U << 24 | 1, 4, 0), EOPNOTSUPP);   // a sampler
    EXPECT_EQ(refused_with(2, 4 | 0x40, 0), EOPNOTSUPP);       // modify header
    EXPECT_EQ(refused_with(2, 4, 1), EOPNOTSUPP);              // something behind the counters' number
    EXPECT_TRUE(device()->table_entries().empty());
}

/// mlx5_ib has a list of them; what changes a vport is not in it.
TEST_F(EmulatedDevice, PassesOnlyTheCommandsThatTheKernelPasses) {
    const std::size_t before = device()->not_emulated().size();
    constexpr std::uint8_t changing[] = {0x51, 0x55};   // MODIFY_VPORT_STATE, MODIFY_NIC_VPORT_CONTEXT
    for (const std::uint8_t opcode : changing) {
        std::array<std::uint8_t, 512> in{0x07, opcode}, out{};
        EXPECT_EQ(mlx5dv_devx_general_cmd(context_.get(), in.data(), in.size(), out.data(), out.size()), EINVAL);
    }
    EXPECT_EQ(device()->not_emulated().size(), before);
}

TEST_F(EmulatedDevice, RefusesMemoryThatOnlyOthersMayWrite) {
    const Pd pd(ibv_alloc_pd(context_.get()));
    std::array<char, 64> bytes{};
    EXPECT_EQ(ibv_reg_mr(pd.get(), bytes.data(), bytes.size(), IBV_ACCESS_REMOTE_WRITE), nullptr);
    EXPECT_EQ(errno, EINVAL);
}

/// A root table: the kernel's own rules of what it takes.
TEST_F(EmulatedDevice, RefusesRootRulesThatTheKernelRefuses) {
    const Domain domain(mlx5dv_dr_domain_create(context_.get(), MLX5DV_DR_DOMAIN_TYPE_NIC_RX));
    const DrTable root(mlx5dv_dr_table_create(domain.get(), 0)), next(mlx5dv_dr_table_create(domain.get(), 1));
    MatchParam mask;
    mask.number(smac_at, 0xFFFF, 6);
    const Matcher matcher(mlx5dv_dr_matcher_create(root.get(), 15, outer, mask.get())),
        behind(mlx5dv_dr_matcher_create(root.get(), 16, outer, mask.get()));
    ASSERT_NE(behind, nullptr) << strerror(errno);
    const Action drop(mlx5dv_dr_action_create_drop()), tag(mlx5dv_dr_action_create_tag(7)),
        forward(mlx5dv_dr_action_create_dest_table(next.get()));
    const auto rule = [](const Matcher& by, std::uint64_t smac, std::vector<mlx5dv_dr_action*> list) {
        MatchParam value;
        value.number(smac_at, smac, 6);
        return Rule(mlx5dv_dr_rule_create(by.get(), value.get(), list.size(), list.data()));
    };
    EXPECT_EQ(rule(behind, 1, {drop.get()}), nullptr);
    EXPECT_EQ(errno, ENOMEM);
    EXPECT_EQ(rule(matcher, 0x10001, {drop.get()}), nullptr);   // more than the mask
    EXPECT_EQ(errno, EINVAL);
    const Rule first = rule(matcher, 1, {forward.get()});
    ASSERT_NE(first, nullptr) << strerror(errno);
    const std::uint64_t before = device()->shared_root_entries();
    EXPECT_NE(rule(matcher, 1, {forward.get()}), nullptr) << strerror(errno);   // one entry, twice
    EXPECT_EQ(device()->shared_root_entries(), before + 1);
    EXPECT_EQ(rule(matcher, 1, {drop.get()}), nullptr);
    EXPECT_EQ(errno, EEXIST);
    EXPECT_EQ(rule(matcher, 1, {tag.get(), forward.get()}), nullptr);
    EXPECT_EQ(errno, EEXIST);
    EXPECT_NE(rule(matcher, 2, {drop.get()}), nullptr) << strerror(errno);
    EXPECT_EQ(device()->shared_root_entries(), before + 1);
}

}   // namespace
}   // namespace ovsdr::connectx
