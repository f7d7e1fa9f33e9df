// Ids that packets come up with: none twice while packets may be under way with it.
#include "offload/dr/install/landing_ids.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace ovsdr::dr {
namespace {

constexpr TableKey table{7}, other{8};

TEST(LandingIds, StandForWhatTheyWereGivenFor) {
    LandingIds ids;
    const std::uint32_t first = ids.give(table), second = ids.give(other);
    EXPECT_NE(first, second);
    EXPECT_GT(std::min(first, second), Landing::entry_id);
    EXPECT_EQ(std::get<TableKey>(*ids.find(first)), table);
    EXPECT_EQ(std::get<TableKey>(*ids.find(second)), other);
    EXPECT_FALSE(ids.find(second + 1));
    ids.take_back(first);
    EXPECT_FALSE(ids.find(first));
}

TEST(LandingIds, AreRememberedForAWhileWhenTheyHaveGone) {
    LandingIds ids;
    const std::uint32_t first = ids.give(table);
    ids.gone(first);
    constexpr unsigned remembered = 4096;
    for (unsigned i = 1; i < remembered; ++i) ids.gone(ids.give(other));
    EXPECT_TRUE(ids.find(first));
    const std::uint32_t second = first + 1;
    ids.gone(ids.give(other));
    EXPECT_FALSE(ids.find(first)) << "no packet is under way as long as that";
    EXPECT_TRUE(ids.find(second));
}

/// There are as many as a register of the device has bits for.
TEST(LandingIds, ComeRoundAndPassThoseInUse) {
    constexpr std::uint32_t last = 0xFFFFFF;
    LandingIds ids;
    const std::uint32_t kept = ids.give(table), also = ids.give(table);
    std::uint32_t id = also;
    while (id < last) {
        const std::uint32_t next = ids.give(other);
        ASSERT_EQ(next, id + 1);
        ids.take_back(id = next);
    }
    EXPECT_EQ(ids.give(other), also + 1) << "the lowest that is free";
    EXPECT_EQ(std::get<TableKey>(*ids.find(kept)), table);
    EXPECT_EQ(std::get<TableKey>(*ids.find(also)), table);
}

}  // namespace
}  // namespace ovsdr::dr
