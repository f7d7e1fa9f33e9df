// Memory of matchers: what a layout asks for is there at once, what rules leave goes back when it is asked for.
#include <gtest/gtest.h>
#include <malloc.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "tests/unit/datapath/rdma/fake_device.hpp"

namespace ovsdr::soft::test {
namespace {

constexpr std::uint32_t resizable = MLX5DV_DR_MATCHER_LAYOUT_RESIZABLE, hint = MLX5DV_DR_MATCHER_LAYOUT_NUM_RULE;
constexpr std::size_t slot_size = 16;  // two slots of eight bytes for each rule

[[nodiscard]] bool memory_is_measurable() {
#ifdef SANITIZED
    return false;  // the sanitizer keeps what is freed
#else
    return true;
#endif
}

/// Bytes of the process that are in memory.
[[nodiscard]] std::size_t resident() {
    std::size_t total = 0, pages = 0;
    std::ifstream("/proc/self/statm") >> total >> pages;
    return pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

/// A matcher of destination MACs in a table of the FDB, and rules of it that drop.
class DrMemory : public ::testing::Test {
protected:
    DrMemory() {
        Match mask;
        mask.set_mac(0xffffffffu);
        matcher = mlx5dv_dr_matcher_create(table, 0, 1, mask.get());
    }
    ~DrMemory() override {
        remove_rules();
        EXPECT_EQ(mlx5dv_dr_action_destroy(drop), 0);
        EXPECT_EQ(mlx5dv_dr_matcher_destroy(matcher), 0);
        EXPECT_EQ(mlx5dv_dr_table_destroy(table), 0);
        EXPECT_EQ(mlx5dv_dr_domain_destroy(domain), 0);
    }

    struct Match {
        alignas(8) std::array<std::uint8_t, sizeof(mlx5dv_flow_match_parameters) + 64> memory{};
        mlx5dv_flow_match_parameters* get() {
            auto* const match = reinterpret_cast<mlx5dv_flow_match_parameters*>(memory.data());
            match->match_sz = 64;
            return match;
        }
        void set_mac(std::uint32_t value) { std::memcpy(get()->match_buf + 1, &value, sizeof value); }
    };

    void add_rules(std::uint32_t length) {
        for (std::uint32_t i = 0; i < length; ++i) {
            Match value;
            value.set_mac(static_cast<std::uint32_t>(rules.size()));
            mlx5dv_dr_action* actions[] = {drop};
            rules.push_back(mlx5dv_dr_rule_create(matcher, value.get(), 1, actions));
            ASSERT_TRUE(rules.back());
        }
    }
    void remove_rules(std::size_t left = 0) {
        for (; rules.size() > left; rules.pop_back()) EXPECT_EQ(mlx5dv_dr_rule_destroy(rules.back()), 0);
    }
    int set_layout(std::uint32_t flags, std::uint32_t log_rules) {
        mlx5dv_dr_matcher_layout layout{flags, log_rules};
        return mlx5dv_dr_matcher_set_layout(matcher, &layout);
    }
    /// What the dump says.
    [[nodiscard]] std::size_t room() {
        char* text = nullptr;
        std::size_t size = 0;
        FILE* const file = open_memstream(&text, &size);
        EXPECT_EQ(mlx5dv_dump_dr_matcher(file, matcher), 0);
        std::fclose(file);
        const char* const found = std::strstr(text, " room ");
        const std::size_t room = found ? std::strtoull(found + 6, nullptr, 10) : 0;
        std::free(text);
        return room;
    }

    OpenDevice open{connectx_7};  // layouts are of matchers with definers
    mlx5dv_dr_domain* domain = mlx5dv_dr_domain_create(open.context, MLX5DV_DR_DOMAIN_TYPE_FDB);
    mlx5dv_dr_table* table = mlx5dv_dr_table_create(domain, 1);
    mlx5dv_dr_action* drop = mlx5dv_dr_action_create_drop();
    mlx5dv_dr_matcher* matcher = nullptr;
    std::vector<mlx5dv_dr_rule*> rules;
};

TEST_F(DrMemory, AHintTakesTheRoomAtOnce) {
    const std::size_t before = resident();
    ASSERT_EQ(set_layout(hint, 20), 0);
    EXPECT_EQ(room(), 1u << 20);
    if (memory_is_measurable()) {
        EXPECT_GE(resident(), before + (slot_size << 20) - (1u << 20));
    }
    ASSERT_EQ(set_layout(hint, 10), 0);
    EXPECT_EQ(room(), 1u << 10);
    EXPECT_EQ(mlx5dv_dr_domain_sync(domain, MLX5DV_DR_DOMAIN_SYNC_FLAGS_MEM), 0);
    if (memory_is_measurable()) {
        malloc_trim(0);   // what is free may lie below something that is not
        EXPECT_LE(resident(), before + (1u << 20));
    }
}

TEST_F(DrMemory, AHintBelowWhatThereIsKeepsEachRule) {
    add_rules(1000);
    ASSERT_EQ(set_layout(hint, 3), 0);
    EXPECT_EQ(room(), 1024u);
}

TEST_F(DrMemory, AFixedMatcherKeepsItsRoomUntilItIsAlmostFull) {
    ASSERT_EQ(set_layout(hint, 8), 0);
    add_rules(448);
    EXPECT_EQ(room(), 256u) << "seven eighths of 512 slots";
    add_rules(1);
    EXPECT_EQ(room(), 512u) << "what a hint does not foresee is not refused";
}

TEST_F(DrMemory, AResizableMatcherGrowsAtItsHint) {
    ASSERT_EQ(set_layout(hint | resizable, 8), 0);
    add_rules(256);
    EXPECT_EQ(room(), 256u);
    add_rules(1);
    EXPECT_EQ(room(), 512u);
}

TEST_F(DrMemory, AFixedMatcherOfManyComingAndGoingRulesStaysAsItIs) {
    ASSERT_EQ(set_layout(hint, 8), 0);
    mlx5dv_dr_domain_set_reclaim_device_memory(domain, true);
    for (unsigned round = 0; round < 20; ++round) {
        add_rules(256);
        remove_rules();
    }
    EXPECT_EQ(room(), 256u);
}

TEST_F(DrMemory, WhatRulesLeaveIsKeptForOthersUnlessItIsToGoBack) {
    constexpr std::uint32_t many = 200'000;
    add_rules(many);
    const std::size_t full = room();
    remove_rules(10);
    EXPECT_EQ(mlx5dv_dr_domain_sync(domain, MLX5DV_DR_DOMAIN_SYNC_FLAGS_MEM), 0);
    EXPECT_EQ(room(), full);
    const std::size_t kept = resident();
    mlx5dv_dr_domain_set_reclaim_device_memory(domain, true);
    EXPECT_EQ(room(), full) << "nothing happens before it is due";
    EXPECT_EQ(mlx5dv_dr_domain_sync(domain, MLX5DV_DR_DOMAIN_SYNC_FLAGS_MEM), 0);
    EXPECT_EQ(room(), 32u);
    // An array of a million bytes at least, and two hundred thousand rules of more than a hundred bytes.
    if (memory_is_measurable()) {
        EXPECT_LE(resident() + 20'000'000, kept);
    }
    add_rules(1000);
    EXPECT_GE(room(), 1010u);
    EXPECT_LE(room(), 2048u);
    remove_rules(10);
    EXPECT_LE(room(), 128u) << "goes back with the rules";
    mlx5dv_dr_domain_set_reclaim_device_memory(domain, false);
    add_rules(1000);
    const std::size_t again = room();
    remove_rules(10);
    EXPECT_EQ(room(), again);
}

}  // namespace
}  // namespace ovsdr::soft::test
