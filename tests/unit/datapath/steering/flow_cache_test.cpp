// The lanes' cache by itself: keys that meet in a set or have one hash, which whole lanes see once in years.
#include "datapath/steering/flow_cache.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>
#include <vector>

#include "datapath/steering/lane_impl.hpp"

namespace ovsdr::soft::test {
namespace {

using Words = std::vector<std::uint64_t>;

constexpr std::uint64_t epoch = 2, entrance = 0x5000;

class FlowCacheTest : public ::testing::Test {
protected:
    /// Remembers a trace of one op with that value; lines of other epochs are dead.
    void insert(std::uint32_t hash, const Words& words, std::uint32_t value, std::uint64_t of_epoch = epoch) {
        const Op op{.code = OpCode::drop, .value = value};
        cache.insert({hash, entrance, words}, {of_epoch, 0, 0, false, {&op, 1}},
                     [of_epoch](const FlowCache::Line& line) { return line.epoch != of_epoch; });
    }
    /// The value of the trace that is found, or -1.
    long find(std::uint32_t hash, const Words& words, std::uint64_t of_epoch = epoch, std::uint64_t from = entrance) {
        const FlowCache::Line* const line =
            cache.find({hash, from, words}, [of_epoch](const FlowCache::Line& one) { return one.epoch == of_epoch; });
        return line == nullptr ? -1 : static_cast<long>(line->ops()[0].value);
    }
    FlowCache cache;
};

TEST_F(FlowCacheTest, ALineIsOfItsHashItsEpochItsEntranceAndEachOfItsWords) {
    const Words words{1, 2, 3};
    EXPECT_EQ(cache.candidate(0), nullptr);
    EXPECT_EQ(cache.candidate(0x1230), nullptr);
    insert(0x1230, words, 7);
    EXPECT_EQ(find(0x1230, words), 7);
    ASSERT_NE(cache.candidate(0x1230), nullptr);
    EXPECT_TRUE(cache.candidate(0x1230)->is_of(entrance, words));
    EXPECT_EQ(cache.candidate(0x1230)->epoch, epoch);
    EXPECT_EQ(find(0x1230 | 1 << 20, words), -1) << "the same set";
    EXPECT_EQ(cache.candidate(0x1230 | 1 << 20), nullptr);
    EXPECT_EQ(find(0x1238, words), -1) << "the next set";
    EXPECT_EQ(find(0x1230, words, epoch + 2), -1);
    EXPECT_EQ(find(0x1230, words, epoch, entrance + 1), -1);
    for (std::size_t i = 0; i < words.size(); ++i) {
        Words other = words;
        other[i] ^= std::uint64_t{1} << 63;
        EXPECT_EQ(find(0x1230, other), -1) << i;
    }
}

TEST_F(FlowCacheTest, EightKeysOfOneHashLiveTogetherAndTheNinthReplacesOne) {
    for (std::uint64_t i = 0; i < 8; ++i) insert(0x4448, {i}, static_cast<std::uint32_t>(i));
    for (std::uint64_t i = 0; i < 8; ++i) EXPECT_EQ(find(0x4448, {i}), static_cast<long>(i));
    for (std::uint64_t i = 0; i < 8; ++i) insert(0, {i}, static_cast<std::uint32_t>(i));
    for (std::uint64_t i = 0; i < 8; ++i) EXPECT_EQ(find(0, {i}), static_cast<long>(i)) << "0 is a hash as well";
    insert(0x4450, {99}, 99);
    insert(0x4448, {8}, 8);
    unsigned left = 0;
    for (std::uint64_t i = 0; i < 8; ++i) left += find(0x4448, {i}) == static_cast<long>(i);
    EXPECT_EQ(left, 7U);
    EXPECT_EQ(find(0x4448, {8}), 8);
    EXPECT_EQ(find(0x4450, {99}), 99) << "in the next set";
    insert(0x4448, {9}, 9);
    EXPECT_EQ(find(0x4448, {8}), 8) << "another one has to go each time";
}

TEST_F(FlowCacheTest, LinesOfAnEarlierEpochGoFirst) {
    for (std::uint64_t i = 0; i < 8; ++i) insert(0x4448, {i}, 1);
    for (std::uint64_t i = 0; i < 8; ++i) insert(0x4448, {100 + i}, 2, epoch + 2);
    for (std::uint64_t i = 0; i < 8; ++i) {
        EXPECT_EQ(find(0x4448, {100 + i}, epoch + 2), 2);
        EXPECT_EQ(find(0x4448, {i}), -1);
    }
}

TEST_F(FlowCacheTest, ASubjectTakesTheLineThatItHadBefore) {
    for (std::uint64_t i = 0; i < 3; ++i) insert(0x4448, {i}, 1);
    insert(0x4448, {2}, 2, epoch + 2);
    EXPECT_EQ(find(0x4448, {2}), -1);
    EXPECT_EQ(find(0x4448, {2}, epoch + 2), 2);
    EXPECT_EQ(find(0x4448, {0}), 1) << "dead, and it came first";
}

TEST_F(FlowCacheTest, WhatFitsNoLineIsNotRemembered) {
    const std::vector<Op> ops(FlowCache::max_ops);
    const auto remembered = [&](std::size_t words, std::size_t length) {
        const Words key(words, length);
        const auto none = [](const FlowCache::Line&) { return false; };
        cache.insert({0x8880, entrance, key}, {epoch, 0, 0, false, {ops.data(), length}}, none);
        const FlowCache::Line* const line = cache.find({0x8880, entrance, key}, std::not_fn(none));
        return line != nullptr && line->ops().size() == length;
    };
    constexpr std::size_t word = sizeof(std::uint64_t), most = FlowCache::Line::held_size;
    for (std::size_t words : {std::size_t{1}, std::size_t{21}, std::size_t{FlowCache::max_words}}) {
        const std::size_t fitting = std::min(ops.size(), (most - words * word) / sizeof(Op));
        EXPECT_TRUE(remembered(words, fitting)) << words;
        if (fitting < ops.size()) {
            EXPECT_FALSE(remembered(words, fitting + 1)) << words;
        }
    }
}

TEST_F(FlowCacheTest, EntrancesAreToldApart) {
    std::set<std::uint64_t> packed;
    unsigned all = 0;
    for (const std::uint16_t vport : {0, 1, 2, 0xffff}) {
        for (const std::uint32_t sqn : {0U, 1U, 0xffffffU}) {
            for (const bool from_queue : {false, true}) {
                EXPECT_EQ(Entrance::source_of(Entrance{VportId{vport}, from_queue, sqn}.packed()).value, vport);
                packed.insert(Entrance{VportId{vport}, from_queue, sqn}.packed());
                ++all;
            }
        }
    }
    EXPECT_EQ(packed.size(), all);
}

}  // namespace
}  // namespace ovsdr::soft::test
