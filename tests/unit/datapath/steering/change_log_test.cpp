// The log of changes by itself: which lines it spares.
#include "datapath/steering/change_log.hpp"

#include <gtest/gtest.h>

#include <initializer_list>
#include <utility>
#include <vector>

#include "datapath/steering/cache_key.hpp"

namespace ovsdr::soft::test {
namespace {

using LineWords = std::vector<std::uint64_t>;

/// A mask by words of the key.
[[nodiscard]] MaskedWords mask_of(std::initializer_list<std::pair<unsigned, std::uint64_t>> words) {
    Key key{};
    for (const auto& [index, mask] : words) key.words[index] = mask;
    return MaskedWords(key);
}

constexpr std::uint64_t all_ones = ~std::uint64_t{0};

class ChangeLogTest : public ::testing::Test {
protected:
    /// Whether a line of these words is spared by the latest change alone.
    [[nodiscard]] bool spared(const LineWords& line, std::uint32_t rewritten = 0) const {
        return log.spares(line.data(), rewritten, number - 1, number);
    }
    void write(const MaskedWords& mask, const LineWords& value) { log.write(++number, mask, value.data()); }
    /// Whether the latest change alone leaves the line's bucket alone.
    [[nodiscard]] bool quiet(const LineWords& line, std::uint32_t rewritten = 0) const {
        return log.quiet_since(number - 1, log.bucket_of(line.data(), rewritten));
    }

    const MaskedWords key = mask_of({{0, all_ones}, {2, all_ones}, {5, 0xffff}, {7, all_ones}});
    const MaskedWords common = mask_of({{2, 0xffffff}, {7, 0xff}});
    std::uint64_t number = 0;
    ChangeLog log{key, common};
};

TEST_F(ChangeLogTest, ALineIsSparedWhereAnyWordOfTheRuleDiffers) {
    write(mask_of({{0, 0xff}, {2, 0xffff}, {7, 0xf}}), {1, 2, 3});
    EXPECT_FALSE(spared({1, 2, 99, 3}));
    EXPECT_FALSE(spared({0x101, 0x10002, 99, 0x13})) << "beside the mask";
    EXPECT_TRUE(spared({2, 2, 99, 3}));
    EXPECT_TRUE(spared({1, 3, 99, 3}));
    EXPECT_TRUE(spared({1, 2, 99, 4}));
}

TEST_F(ChangeLogTest, WhatTheKeyDoesNotHoldTellsNothing) {
    write(mask_of({{1, all_ones}, {5, all_ones}, {8, all_ones}}), {7, 0x990001, 7});
    EXPECT_FALSE(spared({0, 0, 1, 0})) << "only the key's bits of word 5 are compared";
    EXPECT_TRUE(spared({0, 0, 2, 0}));
    write(mask_of({{8, all_ones}, {9, all_ones}}), {7, 7});
    EXPECT_FALSE(spared({0, 0, 0, 0}));
}

TEST_F(ChangeLogTest, RewrittenWordsTellNothing) {
    write(mask_of({{0, 0xff}, {2, 0xffff}}), {1, 2});
    EXPECT_TRUE(spared({1, 3, 0, 0}));
    EXPECT_FALSE(spared({1, 3, 0, 0}, 0b0010));
    EXPECT_TRUE(spared({1, 3, 0, 0}, 0b1101));
    EXPECT_TRUE(spared({2, 2, 0, 0}));
    EXPECT_FALSE(spared({2, 2, 0, 0}, 0b0001));
    EXPECT_FALSE(spared({9, 9, 9, 9}, ~0U));
}

TEST_F(ChangeLogTest, AChangeOfSomethingElseConcernsAll) {
    EXPECT_FALSE(log.spares(LineWords{1, 2, 3, 4}.data(), 0, 0, 1)) << "never written";
    log.write_all(++number);
    EXPECT_FALSE(spared({1, 2, 3, 4}));
    write(mask_of({{0, all_ones}}), {1});
    EXPECT_TRUE(spared({2, 0, 0, 0}));
    EXPECT_FALSE(log.spares(LineWords{2, 0, 0, 0}.data(), 0, number - 2, number));
}

TEST_F(ChangeLogTest, EachChangeSinceCounts) {
    for (std::uint64_t i = 1; i <= 3 * ChangeLog::length; ++i) {
        write(mask_of({{2, all_ones}}), {i});
        const std::uint64_t from = number > ChangeLog::reach ? number - ChangeLog::reach : 0;
        for (const std::uint64_t value : {from, from + 1, number, number + 1}) {
            const bool changed = value > from && value <= number;
            EXPECT_EQ(log.spares(LineWords{0, value, 0, 0}.data(), 0, from, number), !changed) << value << " of " << i;
        }
    }
}

TEST_F(ChangeLogTest, ARuleOfMoreWordsThanAreKeptSeemsWider) {
    Key all{};
    for (unsigned i = 0; i < 12; ++i) all.words[i] = 0xff;
    const MaskedWords mask(all);
    const LineWords value(12, 7);
    ChangeLog wide{mask, {}};
    wide.write(++number, mask, value.data());
    EXPECT_FALSE(wide.spares(value.data(), 0, number - 1, number));
    unsigned told = 0;
    for (unsigned i = 0; i < 12; ++i) {
        LineWords other = value;
        other[i] = 8;
        told += wide.spares(other.data(), 0, number - 1, number);
    }
    EXPECT_EQ(told, 7U);
}

TEST_F(ChangeLogTest, ARuleOfAllThatIsCommonConcernsOneBucket) {
    write(mask_of({{0, 0xff}, {2, 0xffffffff}, {7, 0xff}}), {1, 2, 3});
    EXPECT_FALSE(quiet({1, 2, 99, 3}));
    EXPECT_FALSE(quiet({5, 0x7f000002, 99, 0x103})) << "the same of what is common";
    unsigned others = 0;
    for (std::uint64_t i = 3; i < 103; ++i) others += quiet({1, i, 99, 3}) && quiet({1, 2, 99, i + 1});
    EXPECT_GT(others, 95U);
    EXPECT_FALSE(quiet({1, 77, 99, 3}, 0b0010)) << "rewritten: it may be any bucket's";
    EXPECT_TRUE(quiet({1, 77, 99, 3}, 0b0101)) << "of these nothing is common";
}

TEST_F(ChangeLogTest, OtherChangesConcernEachBucket) {
    const auto quiet_ones = [this] {
        unsigned count = 0;
        for (std::uint64_t i = 0; i < 100; ++i) count += quiet({i, i, i, i});
        return count;
    };
    write(mask_of({{2, 0xffffff}, {7, 0x7f}}), {1, 1});
    EXPECT_EQ(quiet_ones(), 0U) << "a bit of what is common is missing";
    write(mask_of({{0, all_ones}, {7, 0xff}}), {1, 1});
    EXPECT_EQ(quiet_ones(), 0U) << "a word is missing";
    log.write_all(++number);
    EXPECT_EQ(quiet_ones(), 0U);
    write(mask_of({{2, all_ones}, {7, 0xff}}), {1, 1});
    EXPECT_GT(quiet_ones(), 95U);
}

TEST_F(ChangeLogTest, ABucketIsQuietSinceItsLatestChange) {
    const auto mask = mask_of({{2, all_ones}, {7, 0xff}});
    for (unsigned i = 0; i < 3; ++i) write(mask, {5, 5});
    write(mask, {6, 5});
    const std::uint16_t bucket = log.bucket_of(LineWords{0, 5, 0, 5}.data(), 0);
    EXPECT_FALSE(log.quiet_since(2, bucket));
    EXPECT_TRUE(log.quiet_since(3, bucket));
}

TEST_F(ChangeLogTest, AChoiceOfWhatIsCommonIsJudgedByTheChangesThatItDoesNotTellApart) {
    const auto good = mask_of({{2, all_ones}, {7, 0xff}}), bad = mask_of({{0, all_ones}});
    for (unsigned i = 0; i < 1000; ++i) write(good, {i, i});
    EXPECT_FALSE(log.mostly_wide());
    for (unsigned i = 0; i < 300; ++i) write(bad, {i});
    EXPECT_FALSE(log.mostly_wide());
    for (unsigned i = 0; i < 40; ++i) write(bad, {i});
    EXPECT_TRUE(log.mostly_wide());
    log.judge_anew();
    EXPECT_FALSE(log.mostly_wide());
    ChangeLog nothing{key, mask_of({{2, 0x7f}})};
    for (unsigned i = 1; i <= 256; ++i) nothing.write(i, good, LineWords{i, i}.data());
    EXPECT_TRUE(nothing.mostly_wide()) << "too few bits tell nothing apart";
}

class CacheKeyTest : public ChangeLogTest {
protected:
    /// Change `changes` more times, each of word 2 with values that no line has.
    void change(unsigned changes) {
        for (unsigned i = 0; i < changes; ++i) {
            ++one.epoch;
            const LineWords value{1'000'000};
            one.changes.write((one.epoch + 1) / 2, mask_of({{2, all_ones}}), value.data());
            ++one.epoch;
        }
    }
    [[nodiscard]] bool holds(std::uint64_t from, std::uint64_t to) const {
        return one.still_holds(line.data(), 0, from, to);
    }

    const LineWords line{1, 2, 3, 4};
    CacheKey one{100, false, 0, {}, key, common};
};

TEST_F(CacheKeyTest, ALineHoldsForSoManyChanges) {
    change(ChangeLog::reach);
    EXPECT_TRUE(holds(100, one.epoch));
    change(1);
    EXPECT_FALSE(holds(100, one.epoch));
    EXPECT_TRUE(holds(102, one.epoch));
}

TEST_F(CacheKeyTest, ALineOfAKeyBeforeDoesNotHold) {
    change(1);
    EXPECT_TRUE(holds(100, 102));
    EXPECT_FALSE(holds(98, 102));
    EXPECT_FALSE(holds(104, 102)) << "of no epoch that there was";
}

/// The slot of the first change that is asked about is the first that is overwritten.
TEST_F(CacheKeyTest, WhoIsOvertakenByTheWriterKnowsNothing) {
    change(ChangeLog::length);
    EXPECT_TRUE(holds(100, 100 + 2 * ChangeLog::reach));
    ++one.epoch;
    EXPECT_FALSE(holds(100, 100 + 2 * ChangeLog::reach)) << "it may be writing already";
    EXPECT_TRUE(holds(102, 102 + 2 * ChangeLog::reach));
}

}  // namespace
}  // namespace ovsdr::soft::test
