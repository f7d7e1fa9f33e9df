// The hash table of a matcher by itself, against a map: values of one hash, of one place, duplicates, graves, growth.
// And what is freed when.
#include "datapath/steering/rule_table.hpp"

#include <gtest/gtest.h>
#include <nmmintrin.h>

#include <atomic>
#include <deque>
#include <map>
#include <random>
#include <set>
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

struct FreeBlock {
    void operator()(RuleNode* node) const noexcept { ::operator delete(node); }
};
using Node = std::unique_ptr<RuleNode, FreeBlock>;

/// With the words of `value` under the table's mask and a number to tell it by.
[[nodiscard]] Node make_node(const RuleTable& table, const Key& value, std::uint32_t number = 0) {
    const RuleNode::Lengths lengths{.ops = 2, .words = static_cast<std::uint8_t>(table.mask().length), .actions = 1};
    Node node(new (::operator new(sizeof(RuleNode) + RuleNode::size_behind(lengths))) RuleNode(lengths));
    node->end.rank = number;
    table.set_value(*node, value);
    return node;
}

class RuleTableTest : public ::testing::Test {
protected:
    RuleNode* insert(std::uint64_t value, std::uint32_t number = 0) {
        nodes.push_back(make_node(table, key_of(value), number));
        table.make_room(nodes.back()->hash, rcu);
        table.insert(*nodes.back());
        return nodes.back().get();
    }
    /// The number of the rule that is found, or -1.
    long find(std::uint64_t value, std::uint64_t other = 0) {
        const RuleNode* const node = table.find(key_of(value, other));
        return node == nullptr ? -1 : static_cast<long>(node->end.rank);
    }
    std::uint32_t hash(std::uint64_t value) { return make_node(table, key_of(value))->hash; }
    /// Each of the numbers 0 and up is found, and each node once.
    void expect_all(std::size_t length) {
        ASSERT_EQ(table.length(), length);
        for (std::uint64_t i = 0; i < length; ++i) ASSERT_EQ(find(i), static_cast<long>(i));
        std::set<const RuleNode*> seen;
        table.for_each([&seen](const RuleNode& node) { EXPECT_TRUE(seen.insert(&node).second); });
        EXPECT_EQ(seen.size(), length);
    }

    static constexpr std::size_t longest = std::size_t{1} << RuleTable::log_longest;
    Rcu rcu;
    std::vector<Node> nodes;  // gone ones, too
    RuleTable table{key_of(~0ULL)};
};

TEST_F(RuleTableTest, GrowsWhenHalfOfItIsUsedAndIsAQuarterFullThen) {
    EXPECT_EQ(table.room(), 4U);
    for (std::uint64_t i = 1; i <= 300; ++i) {
        insert(i, static_cast<std::uint32_t>(i));
        const std::size_t expected = i <= 4 ? 4 : i <= 16 ? 16 : i <= 64 ? 64 : i <= 256 ? 256 : longest / 2;
        ASSERT_EQ(table.room(), expected) << i;
        ASSERT_EQ(table.length(), i);
    }
    for (std::uint64_t i = 1; i <= 300; ++i) EXPECT_EQ(find(i), static_cast<long>(i));
    EXPECT_EQ(find(301), -1);
    EXPECT_EQ(find(300, 77), 300) << "a word that the mask does not look at";
}

/// However large it is, one rule more makes one segment into two.
TEST_F(RuleTableTest, GrowsSegmentBySegment) {
    constexpr std::uint32_t many = 40'000;
    while (nodes.size() < longest / 2) insert(nodes.size(), static_cast<std::uint32_t>(nodes.size()));
    EXPECT_EQ(table.room(), longest / 2);
    for (auto i = static_cast<std::uint32_t>(nodes.size()); i < many; ++i) {
        const std::size_t before = table.room();
        insert(i, i);
        ASSERT_LE(table.room(), before + longest / 2) << i;
        ASSERT_EQ(find(i), i);
    }
    EXPECT_GE(table.room(), many);
    EXPECT_LE(table.room(), 4 * many);
    expect_all(many);
    EXPECT_EQ(find(many), -1);
    for (std::uint32_t i = many; i-- > 100;) table.remove(*nodes[i]);
    const std::size_t before = table.room();
    EXPECT_GE(before, many) << "kept";
    table.shrink(rcu);
    EXPECT_EQ(table.room(), 256U);
    expect_all(100);
    nodes.resize(100);
    for (std::uint32_t i = 100; i < 5000; ++i) insert(i, i);  // in a directory that is longer than it has to be
    expect_all(5000);
}

TEST_F(RuleTableTest, GivesBackAroundWhatGoes) {
    constexpr std::uint32_t many = 20'000;
    for (std::uint32_t i = 0; i < many; ++i) insert(i, i);
    const std::size_t full = table.room();
    std::size_t before = full;
    for (std::uint32_t i = many; i-- > 0;) {
        table.remove(*nodes[i]);
        table.shrink_around(nodes[i]->hash, rcu);
        ASSERT_LE(table.room(), before);
        before = table.room();
        if (i == many / 2) {
            ASSERT_EQ(before, full) << "not for so few";
        } else if (i == many / 32) {
            ASSERT_LE(before, full / 4);
        }
        if (i % 997 == 0) expect_all(i);
    }
    EXPECT_EQ(table.room(), 4U);
    table.reserve(many, rcu);
    const std::size_t reserved = table.room();
    table.fix_size(true);
    table.shrink_around(0, rcu);
    table.shrink(rcu);
    EXPECT_EQ(table.room(), reserved) << "fixed";
}

TEST_F(RuleTableTest, ReservesAndGivesBackWhatIsTooMuch) {
    for (std::uint32_t i = 0; i < 3000; ++i) insert(i, i);
    for (const std::size_t rules : {std::size_t{1} << 16, std::size_t{1} << 13, std::size_t{1} << 17}) {
        table.reserve(rules, rcu);
        EXPECT_EQ(table.room(), rules);
        expect_all(3000);
    }
    table.reserve(1, rcu);
    EXPECT_GE(table.room(), 3000U);
    EXPECT_LE(table.room(), 12U * longest / 2) << "segments are not all as full";
    expect_all(3000);
    table.reserve(1 << 15, rcu);
    for (std::uint32_t i = 3000; i < 20'000; ++i) insert(i, i);
    EXPECT_EQ(table.room(), std::size_t{1} << 15);
    expect_all(20'000);
}

/// The hash is linear: a second word can undo what the first one does to it.
TEST(RuleTables, RulesOfOneHashShareASegmentThatGrows) {
    constexpr std::uint64_t many = 3000, longest = std::uint64_t{1} << RuleTable::log_longest;
    Rcu rcu;
    std::vector<Node> nodes;
    RuleTable table(key_of(~0ULL, ~0ULL));
    const auto key = [](std::uint64_t i) { return key_of(i, _mm_crc32_u64(0x5bd1e995, i)); };
    const auto add = [&](const Key& value) {
        nodes.push_back(make_node(table, value, static_cast<std::uint32_t>(nodes.size())));
        table.make_room(nodes.back()->hash, rcu);
        table.insert(*nodes.back());
    };
    for (std::uint64_t i = 0; i < many; ++i) {
        add(key(i));
        ASSERT_EQ(nodes.back()->hash, nodes.front()->hash);
    }
    EXPECT_LE(table.room(), 8 * longest) << "no segment for each bit that they have in common";
    const auto expect_all = [&] {
        for (std::uint64_t i = 0; i < many; i += 7) ASSERT_EQ(table.find(key(i)), nodes[i].get());
    };
    expect_all();
    for (std::uint64_t i = 0; i < 200'000; ++i) add(key_of(i, 1));  // and the directory has room for more bits
    expect_all();
    table.reserve(1, rcu);
    table.shrink(rcu);
    expect_all();
    for (std::uint64_t i = nodes.size(); i-- > many;) table.remove(*nodes[i]);
    table.reserve(1, rcu);
    expect_all();
    for (std::uint64_t i = many; i-- > 0;) table.remove(*nodes[i]);
    table.shrink(rcu);
    EXPECT_EQ(table.room(), 4U);
}

/// Every third rule stays, and a lane asks for one after the other while the table splits, grows, shrinks and merges.
TEST(RuleTables, ALaneFindsWhatStaysWhileAllElseComesAndGoes) {
    constexpr std::uint32_t many = 6000, turns = 12;
    Rcu rcu;
    std::vector<Node> staying;
    RuleTable table(key_of(~0ULL));
    const auto add = [&](Node node) {
        table.make_room(node->hash, rcu);
        table.insert(*node);
        return node;
    };
    rcu.add_lane(0);
    rcu.online(0);
    std::atomic<std::uint32_t> length{0};
    std::atomic<bool> stop{false};
    std::uint64_t missed = 0, strangers = 0, rounds = 0;
    std::thread lane([&] {
        for (; !stop || rounds == 0; ++rounds) {
            const std::uint32_t there = length.load(std::memory_order_acquire);
            for (std::uint32_t i = 0; i < there; ++i) {
                const RuleNode* const node = table.find(key_of(3 * i));
                missed += node == nullptr;
                strangers += node != nullptr && node->end.rank != 3 * i;
                const RuleNode* const other = table.find(key_of(3 * i + 1));
                strangers += other != nullptr && other->end.rank != 3 * i + 1;
                if (i % 32 == 0) rcu.quiescent(0);
            }
            rcu.quiescent(0);
        }
        rcu.offline(0);
    });
    for (std::uint32_t i = 0; i < many; ++i) {
        staying.push_back(add(make_node(table, key_of(3 * i), 3 * i)));
        length.store(i + 1, std::memory_order_release);
    }
    for (std::uint32_t turn = 0; turn < turns; ++turn) {
        std::vector<Node> coming;
        for (std::uint32_t i = 0; i < 2 * many; ++i) {
            const std::uint32_t value = 3 * (i / 2) + 1 + i % 2;
            coming.push_back(add(make_node(table, key_of(value), value)));
        }
        if (turn % 3 == 1) table.reserve(4 * many, rcu);
        for (Node& node : coming) {
            table.remove(*node);
            if (turn % 2 == 0) table.shrink_around(node->hash, rcu);
            rcu.retire(node.release(), [](void* block) { ::operator delete(block); });
        }
        table.shrink(rcu);
        if (turn % 4 == 3) table.reserve(1, rcu);
    }
    stop = true;
    lane.join();
    rcu.remove_lane(0);
    EXPECT_EQ(missed, 0U);
    EXPECT_EQ(strangers, 0U);
    EXPECT_EQ(table.length(), many);
}

TEST_F(RuleTableTest, GivesBackWhatIsMoreThanFourTimesItsRules) {
    for (std::uint64_t i = 0; i < 64; ++i) insert(i);
    const auto remove_last = [this] {
        table.remove(*nodes.back());
        table.shrink_around(nodes.back()->hash, rcu);
        nodes.pop_back();
    };
    table.reserve(128, rcu);
    EXPECT_EQ(table.room(), 128U);
    table.shrink(rcu);
    EXPECT_EQ(table.room(), 128U) << "as it is";
    while (nodes.size() > 16) remove_last();
    EXPECT_EQ(table.room(), 128U) << "a sixteenth of the slots";
    table.fix_size(true);
    table.shrink(rcu);
    remove_last();
    EXPECT_EQ(table.room(), 128U) << "fixed";
    table.fix_size(false);
    remove_last();
    EXPECT_EQ(table.room(), 32U);
    table.reserve(3, rcu);
    EXPECT_EQ(table.room(), 16U) << "for those that there are";
    for (std::uint64_t i = 0; i < nodes.size(); ++i) EXPECT_EQ(find(i), 0);
    for (const auto& node : nodes) table.remove(*node);
    table.shrink(rcu);
    EXPECT_EQ(table.room(), 4U) << "the shortest";
}

TEST_F(RuleTableTest, GravesAreUsedAgainAndDoNotMakeItGrowForEver) {
    for (std::uint64_t i = 0; i < 10'000; ++i) table.remove(*insert(i));
    EXPECT_LE(table.room(), 16U);
    EXPECT_EQ(table.length(), 0U);
    EXPECT_EQ(find(9'999), -1);
    table.reserve(64, rcu);
    table.fix_size(true);
    for (std::uint64_t i = 0; i < 10'000; ++i) table.remove(*insert(i));
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
        if ((of >> 8 & 0xffff) == 0 && (values.empty() || (of & 7) == (hash(values[0]) & 7))) values.push_back(value);
    }
    RuleNode* const first = insert(values[0], 1);
    insert(values[1], 2);
    table.remove(*first);
    EXPECT_EQ(find(values[1]), 2);
    EXPECT_EQ(find(values[0]), -1);
    const Node node = make_node(table, key_of(values[0]));
    const Node other = make_node(table, key_of(values[1]));
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
            table.remove(*victim->second);
            queue.erase(victim);
            --length;
        }
        ASSERT_EQ(table.length(), length);
        const std::uint64_t asked = values[random() % values.size()];
        ASSERT_EQ(find(asked), model[asked].empty() ? -1 : static_cast<long>(model[asked].front().first)) << step;
        const Node node = make_node(table, key_of(asked));
        ASSERT_EQ(table.contains(*node), !model[asked].empty());
    }
}

TEST(RuleTableMemory, NothingIsLeftOfATable) {
    const long before = blocks_in_use();
    {
        Rcu rcu;
        std::vector<Node> nodes;
        RuleTable table(key_of(~0ULL));
        for (std::uint64_t i = 0; i < 10'000; ++i) {
            nodes.push_back(make_node(table, key_of(i / 2)));
            table.make_room(nodes.back()->hash, rcu);
            table.insert(*nodes.back());
            if (i % 5 == 0) table.remove(*nodes.back());
        }
    }
    EXPECT_EQ(blocks_in_use(), before);
}

TEST(RuleTableMemory, ATableThatCannotGrowKeepsWhatItHas) {
    Rcu rcu;
    std::vector<Node> nodes;
    RuleTable table(key_of(~0ULL));
    const auto add = [&](std::uint64_t value) {
        nodes.push_back(make_node(table, key_of(value)));
        table.make_room(nodes.back()->hash, rcu);
        table.insert(*nodes.back());
    };
    for (std::uint64_t i = 0; i < 4; ++i) add(i);
    {
        const NoMemory none;
        EXPECT_THROW(table.make_room(0, rcu), std::bad_alloc);
        EXPECT_THROW(table.reserve(100, rcu), std::bad_alloc);
    }
    const Node again = make_node(table, key_of(3));
    {
        const NoMemory none;
        EXPECT_THROW(table.insert(*again), std::bad_alloc) << "one of that value is there";
    }
    EXPECT_EQ(table.length(), 4U);
    EXPECT_EQ(table.room(), 4U);
    EXPECT_NE(table.find(key_of(3)), nullptr);
    table.reserve(100, rcu);
    {
        const NoMemory none;
        table.shrink(rcu);
    }
    EXPECT_EQ(table.room(), 128U);
    add(5);
    EXPECT_EQ(table.length(), 5U);
}

/// Wherever in a split the memory ends: the directory, either segment, none.
TEST(RuleTableMemory, ASegmentThatCannotBeSplitStaysWhole) {
    const long before = blocks_in_use();
    {
        Rcu rcu;
        std::vector<Node> nodes;
        RuleTable table(key_of(~0ULL));
        unsigned failed = 0;
        for (std::uint64_t i = 0; i < 3000; ++i) {
            nodes.push_back(make_node(table, key_of(i)));
            bool made = false;
            for (unsigned left = 0; !made; ++left) {
                const NoMemory none(left, 1);
                try {
                    table.make_room(nodes.back()->hash, rcu);
                    made = true;
                } catch (const std::bad_alloc&) {
                    ++failed;
                    ASSERT_EQ(table.length(), i);
                    ASSERT_EQ(table.find(key_of(i)), nullptr);
                    ASSERT_NE(table.find(key_of(i / 2)), i == 0 ? table.find(key_of(0)) : nullptr);
                }
            }
            table.insert(*nodes.back());
        }
        EXPECT_GE(failed, 12U);
        for (std::uint64_t i = 0; i < 3000; ++i) ASSERT_NE(table.find(key_of(i)), nullptr);
    }
    EXPECT_EQ(blocks_in_use(), before);
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

TEST_F(RcuTest, WhatCannotBeRememberedGoesAtOnce) {
    const auto share = std::make_shared<int>(0);
    for (unsigned i = 0; i < 200; ++i) {
        const NoMemory none;
        rcu->retire(&freed, [](void* count) { ++*static_cast<std::atomic<unsigned>*>(count); });
        rcu->retire(share);
    }
    EXPECT_EQ(freed, 200U);
    EXPECT_EQ(share.use_count(), 1);
    rcu->add_lane(0);
    rcu->online(0);
    rcu->retire(share);
    EXPECT_EQ(share.use_count(), 2);
    rcu->offline(0);
    rcu->drain();
    EXPECT_EQ(share.use_count(), 1);
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
