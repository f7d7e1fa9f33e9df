// The hash table of a matcher by itself, against a map: values of one hash, of one place, duplicates, graves, growth.
// And what is freed when.
#include "datapath/steering/rule_table.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <map>
#include <random>
#include <thread>
#include <unordered_map>
#include <vector>

#include "allocations.hpp"

namespace ovsdr::soft::test {
namespace {

[[nodiscard]] Key key_of(std::uint64_t value, std::uint64_t other = 0) {
    Key key{};
    key.words[1] = value;
    key.words[5] = other;
    return key;
}

class RuleTableTest : public ::testing::Test {
protected:
    RuleNode* insert(std::uint64_t value, std::uint32_t number = 0) {
        std::unique_ptr<RuleNode> node = table.make_node(key_of(value), 0);
        node->program.end.rank = number;
        RuleNode* const made = node.get();
        table.insert(node, rcu);
        return made;
    }
    /// The number of the rule that is found, or -1.
    long find(std::uint64_t value, std::uint64_t other = 0) {
        const RuleNode* const node = table.find(key_of(value, other));
        return node == nullptr ? -1 : static_cast<long>(node->program.end.rank);
    }
    std::uint32_t hash(std::uint64_t value) { return table.make_node(key_of(value), 0)->hash; }

    Rcu rcu;
    RuleTable table{key_of(~0ULL)};
};

TEST_F(RuleTableTest, GrowsWhenHalfOfItIsUsedAndIsAQuarterFullThen) {
    EXPECT_EQ(table.room(), 4U);
    for (std::uint64_t i = 1; i <= 300; ++i) {
        insert(i, static_cast<std::uint32_t>(i));
        const std::size_t expected = i <= 4 ? 4 : i <= 16 ? 16 : i <= 64 ? 64 : i <= 256 ? 256 : 1024;
        ASSERT_EQ(table.room(), expected) << i;
        ASSERT_EQ(table.length(), i);
    }
    for (std::uint64_t i = 1; i <= 300; ++i) EXPECT_EQ(find(i), static_cast<long>(i));
    EXPECT_EQ(find(301), -1);
    EXPECT_EQ(find(300, 77), 300) << "a word that the mask does not look at";
}

TEST_F(RuleTableTest, GivesBackWhatIsMoreThanFourTimesItsRules) {
    std::vector<RuleNode*> nodes;
    for (std::uint64_t i = 0; i < 64; ++i) nodes.push_back(insert(i));
    table.reserve(128, rcu);
    EXPECT_EQ(table.room(), 128U);
    EXPECT_FALSE(table.sparse());
    table.shrink(rcu);
    EXPECT_EQ(table.room(), 128U) << "as it is";
    while (nodes.size() > 16) {
        table.remove(nodes.back(), rcu);
        nodes.pop_back();
    }
    EXPECT_FALSE(table.sparse()) << "an eighth";
    table.remove(nodes.back(), rcu);
    nodes.pop_back();
    EXPECT_TRUE(table.sparse());
    table.fix_size(true);
    table.shrink(rcu);
    EXPECT_EQ(table.room(), 128U) << "fixed";
    table.fix_size(false);
    table.shrink(rcu);
    EXPECT_EQ(table.room(), 32U);
    table.reserve(3, rcu);
    EXPECT_EQ(table.room(), 16U) << "for those that there are";
    for (std::uint64_t i = 0; i < nodes.size(); ++i) EXPECT_EQ(find(i), 0);
    for (RuleNode* node : nodes) table.remove(node, rcu);
    table.shrink(rcu);
    EXPECT_EQ(table.room(), 4U) << "the shortest";
}

TEST_F(RuleTableTest, GravesAreUsedAgainAndDoNotMakeItGrowForEver) {
    for (std::uint64_t i = 0; i < 10'000; ++i) table.remove(insert(i), rcu);
    EXPECT_LE(table.room(), 16U);
    EXPECT_EQ(table.length(), 0U);
    EXPECT_EQ(find(9'999), -1);
    table.reserve(64, rcu);
    table.fix_size(true);
    for (std::uint64_t i = 0; i < 10'000; ++i) table.remove(insert(i), rcu);
    EXPECT_EQ(table.room(), 64U);
    table.reserve(64, rcu);  // no graves
    // Seven eighths of 128 slots; then there is more.
    for (std::uint64_t i = 0; i < 112; ++i) insert(i);
    EXPECT_EQ(table.room(), 64U);
    insert(112);
    EXPECT_EQ(table.room(), 256U);
}

TEST_F(RuleTableTest, AGraveHidesNobodyWhoseHashBeginsWithZeros) {
    std::vector<std::uint64_t> values;
    for (std::uint64_t value = 1; values.size() < 2; ++value) {
        const std::uint32_t of = table.mask().hash(key_of(value), 0x5bd1e995);
        if (of >> 16 == 0 && (values.empty() || (of & 7) == (hash(values[0]) & 7))) values.push_back(value);
    }
    RuleNode* const first = insert(values[0], 1);
    insert(values[1], 2);
    table.remove(first, rcu);
    EXPECT_EQ(find(values[1]), 2);
    EXPECT_EQ(find(values[0]), -1);
    const std::unique_ptr<RuleNode> node = table.make_node(key_of(values[0]), 0);
    const std::unique_ptr<RuleNode> other = table.make_node(key_of(values[1]), 0);
    EXPECT_FALSE(table.contains(*node));
    EXPECT_TRUE(table.contains(*other));
}

/// Values in pairs of one hash, and many of a few slots: rules come and go as in a map of queues.
TEST_F(RuleTableTest, IsAMap) {
    std::vector<std::uint64_t> values;
    std::unordered_map<std::uint32_t, std::uint64_t> seen;
    for (std::uint64_t i = 1; values.size() < 40; ++i) {
        const std::uint64_t value = i * 0x9e3779b97f4a7c15ULL;
        const auto [found, fresh] = seen.try_emplace(table.mask().hash(key_of(value), 1), value);
        if (!fresh) values.insert(values.end(), {found->second, value});
    }
    for (std::size_t i = 0; i < values.size(); i += 2) ASSERT_EQ(hash(values[i]), hash(values[i + 1]));
    for (std::uint64_t i = 0; i < 40; ++i) values.push_back(i);
    std::mt19937 random(5);
    std::map<std::uint64_t, std::deque<std::pair<std::uint32_t, RuleNode*>>> model;
    std::size_t length = 0;
    for (std::uint32_t step = 0; step < 20'000; ++step) {
        const std::uint64_t value = values[random() % values.size()];
        auto& queue = model[value];
        if (random() % 2 == 0) {
            queue.emplace_back(step, insert(value, step));
            ++length;
        } else if (!queue.empty()) {
            const auto victim = queue.begin() + random() % queue.size();
            table.remove(victim->second, rcu);
            queue.erase(victim);
            --length;
        }
        ASSERT_EQ(table.length(), length);
        const std::uint64_t asked = values[random() % values.size()];
        ASSERT_EQ(find(asked), model[asked].empty() ? -1 : static_cast<long>(model[asked].front().first)) << step;
        const std::unique_ptr<RuleNode> node = table.make_node(key_of(asked), 0);
        ASSERT_EQ(table.contains(*node), !model[asked].empty());
    }
}

TEST(RuleTableMemory, RulesGoWithTheirTable) {
    const long before = blocks_in_use();
    {
        Rcu rcu;
        RuleTable table(key_of(~0ULL));
        for (std::uint64_t i = 0; i < 20; ++i) {
            for (unsigned twice = 0; twice < 2; ++twice) {
                std::unique_ptr<RuleNode> node = table.make_node(key_of(i), 3);
                RuleNode* const made = node.get();
                table.insert(node, rcu);
                if (i % 5 == 0) table.remove(made, rcu);
            }
        }
    }
    EXPECT_EQ(blocks_in_use(), before);
}

TEST(RuleTableMemory, ATableThatCannotGrowKeepsWhatItHas) {
    Rcu rcu;
    RuleTable table(key_of(~0ULL));
    for (std::uint64_t i = 0; i < 4; ++i) {
        std::unique_ptr<RuleNode> node = table.make_node(key_of(i), 0);
        table.insert(node, rcu);
    }
    std::unique_ptr<RuleNode> fifth = table.make_node(key_of(5), 0);
    {
        const NoMemory none;
        EXPECT_THROW(table.insert(fifth, rcu), std::bad_alloc);
        EXPECT_THROW(table.reserve(100, rcu), std::bad_alloc);
    }
    EXPECT_NE(fifth, nullptr);
    EXPECT_EQ(table.length(), 4U);
    EXPECT_EQ(table.room(), 4U);
    EXPECT_NE(table.find(key_of(3)), nullptr);
    table.reserve(100, rcu);
    {
        const NoMemory none;
        table.shrink(rcu);
    }
    EXPECT_EQ(table.room(), 128U);
    table.insert(fifth, rcu);
    EXPECT_EQ(table.length(), 5U);
}

class RcuTest : public ::testing::Test {
protected:
    void retire(unsigned times) {
        for (unsigned i = 0; i < times; ++i) {
            rcu->retire(&freed, [](void* count) { ++*static_cast<std::atomic<unsigned>*>(count); });
        }
    }
    std::atomic<unsigned> freed{0};
    std::unique_ptr<Rcu> rcu = std::make_unique<Rcu>();
};

TEST_F(RcuTest, WithoutLanesOnlineNothingWaits) {
    rcu->add_lane(3);
    retire(5);
    EXPECT_EQ(freed, 5U);
    rcu->remove_lane(3);
}

TEST_F(RcuTest, WhatLanesMayHoldIsFreedAfterEachWasQuiescent) {
    for (const unsigned lane : {0U, max_workers - 1}) {
        rcu->add_lane(lane);
        rcu->online(lane);
    }
    retire(200);
    rcu->quiescent(0);
    retire(1);
    EXPECT_EQ(freed, 0U) << "the other one was not";
    rcu->offline(max_workers - 1);
    retire(1);
    EXPECT_EQ(freed, 64U) << "some at a time";
    rcu->quiescent(0);
    rcu->offline(0);
    rcu->synchronize();
    EXPECT_EQ(freed, 128U);
    rcu->drain();
    EXPECT_EQ(freed, 202U);
    for (const unsigned lane : {0U, max_workers - 1}) rcu->remove_lane(lane);
}

TEST_F(RcuTest, DrainWaits) {
    rcu->add_lane(0);
    rcu->online(0);
    retire(100);
    std::thread drainer([&] { rcu->drain(); });
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_EQ(freed, 0U);
    rcu->offline(0);
    drainer.join();
    EXPECT_EQ(freed, 100U);
    rcu->remove_lane(0);
}

TEST_F(RcuTest, TheRestGoesInTheEnd) {
    rcu->add_lane(0);
    rcu->online(0);
    retire(100);
    EXPECT_EQ(freed, 0U);
    rcu.reset();
    EXPECT_EQ(freed, 100U);
}

TEST_F(RcuTest, WhatIsFreedMayRetireInTurn) {
    struct Chain {
        Rcu& rcu;
        std::atomic<unsigned>& freed;
        unsigned left;
        ~Chain() {
            ++freed;
            if (left != 0) rcu.retire(new Chain{rcu, freed, left - 1});
        }
    };
    rcu->retire(new Chain{*rcu, freed, 3});
    EXPECT_EQ(freed, 4U);
}

}  // namespace
}  // namespace ovsdr::soft::test
