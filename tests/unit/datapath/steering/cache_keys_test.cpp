// Whose lines a change empties, and whose it leaves: how many packets walk tells. And what keys look at, and when.
#include "datapath/steering/cache_keys.hpp"

#include <array>
#include <functional>
#include <span>
#include <vector>

#include "lane_fixture.hpp"

namespace ovsdr::soft::test {
namespace {

using criteria::misc;
using criteria::outer;

/// The rules of LaneTest name no vport: everything goes to vport 2.
class CacheKeysTest : public LaneTest {
protected:
    CacheKeysTest() { steering.impl().stopped_clock = 1; }

    /// How many of these packets walk.
    std::uint64_t walks(std::uint16_t vport, const Frame& one, unsigned times = 1) {
        const std::uint64_t before = steering.cache_use().misses;
        send(vport, one, times);
        return steering.cache_use().misses - before;
    }
    [[nodiscard]] static Frame to_port(std::uint16_t dport) { return make_frame({.dport = dport}); }
    [[nodiscard]] static Parameters value_of(std::uint16_t vport, std::uint16_t dport) {
        return Parameters{}.set(field::source_port, vport).set(field::ip_version, 4).set(field::udp_dport, dport);
    }
    [[nodiscard]] std::uint32_t looked_at(std::uint16_t vport) const {
        return const_cast<Steering&>(steering).impl().cache_key(VportId{vport}).words.length;
    }
    void pass(std::uint64_t nanoseconds) { steering.impl().stopped_clock += nanoseconds; }

    MadeMatcher by_flow = make_matcher(first, 0, outer | misc, value_of(0xffff, 0xffff));
};

TEST_F(CacheKeysTest, ARuleOfOneVportLeavesTheOthersAlone) {
    const auto of_1 = make_rule(*by_flow, value_of(1, 70), {&to_3});
    for (const std::uint16_t vport : {1, 3, 0xffff}) EXPECT_EQ(walks(vport, to_port(80), 5), 1U);
    const std::uint32_t others = looked_at(3);
    {
        const auto of_2 = make_rule(*by_flow, value_of(2, 80), {&to_3});
        for (const std::uint16_t vport : {1, 3, 0xffff}) EXPECT_EQ(walks(vport, to_port(80)), 0U) << vport;
        send(2, to_port(80), 2);
        EXPECT_EQ(vports[3].taken.size(), 2U);
        EXPECT_EQ(looked_at(3), others);
        EXPECT_GT(looked_at(2), others);
    }
    for (const std::uint16_t vport : {1, 3, 0xffff}) EXPECT_EQ(walks(vport, to_port(80)), 0U) << vport;
    EXPECT_EQ(walks(2, to_port(80)), 1U);
    EXPECT_EQ(vports[3].taken.size(), 2U);
}

TEST_F(CacheKeysTest, ARuleLeavesFlowsAloneThatItCannotMatch) {
    const auto standing = make_rule(*by_flow, value_of(1, 70), {&to_3});
    for (const std::uint16_t port : {80, 81}) EXPECT_EQ(walks(1, to_port(port), 3), 1U);
    vports[3].taken.clear();
    {
        const auto rule = make_rule(*by_flow, value_of(1, 80), {&to_3});
        EXPECT_EQ(walks(1, to_port(81)), 0U);
        EXPECT_EQ(walks(1, to_port(80), 3), 1U);
        EXPECT_EQ(vports[3].taken.size(), 3U);
    }
    EXPECT_EQ(walks(1, to_port(81)), 0U);
    EXPECT_EQ(walks(1, to_port(80), 3), 1U);
    EXPECT_EQ(vports[3].taken.size(), 3U);
}

TEST_F(CacheKeysTest, ARuleThatNamesNoVportConcernsThemAll) {
    const auto of_1 = make_rule(*by_flow, value_of(1, 70), {&to_3});
    const auto anybody = make_matcher(first, 0, outer, Parameters{}.set(field::ip_version, 4).set(field::ttl, 0xff));
    const auto standing = make_rule(*anybody, Parameters{}.set(field::ip_version, 4).set(field::ttl, 3), {&to_3});
    for (const std::uint16_t vport : {1, 3}) EXPECT_EQ(walks(vport, to_port(80), 5), 1U);
    const Frame low = make_frame({.ttl = 9, .dport = 80});
    for (const std::uint16_t vport : {1, 3}) EXPECT_EQ(walks(vport, low, 5), 1U);
    const auto rule = make_rule(*anybody, Parameters{}.set(field::ip_version, 4).set(field::ttl, 9), {&to_3});
    vports[3].taken.clear();
    for (const std::uint16_t vport : {1, 3}) {
        EXPECT_EQ(walks(vport, to_port(80)), 0U);
        EXPECT_EQ(walks(vport, low), 1U);
    }
    EXPECT_EQ(vports[3].taken.size(), 2U);
}

TEST_F(CacheKeysTest, ALineIsRenewedForSoManyChangesAndWalksAfterMore) {
    const auto standing = make_rule(*by_flow, value_of(1, 70), {&to_3});
    static_cast<void>(walks(1, to_port(80)));
    const auto change = [&](unsigned times) {
        for (unsigned i = 0; i < times / 2; ++i) static_cast<void>(make_rule(*by_flow, value_of(1, 81), {&to_3}));
    };
    for (unsigned i = 0; i < 5; ++i) {
        change(ChangeLog::reach);
        EXPECT_EQ(walks(1, to_port(80)), 0U);
    }
    change(ChangeLog::reach + 2);
    EXPECT_EQ(walks(1, to_port(80), 2), 1U);
}

/// Once the key knows what its rules have in common.
TEST_F(CacheKeysTest, ALineOutlivesAnyNumberOfChangesOfOtherFlows) {
    std::vector<MadeRule> standing;
    for (const std::uint16_t port : {70, 71, 72}) standing.push_back(make_rule(*by_flow, value_of(1, port), {&to_3}));
    const auto change = [&](unsigned times) {
        for (unsigned i = 0; i < times; ++i) static_cast<void>(make_rule(*by_flow, value_of(1, 81), {&to_3}));
    };
    change(200);
    pass(CacheKeys::least_age);
    change(1);
    EXPECT_EQ(walks(1, to_port(80), 2), 1U);
    EXPECT_EQ(walks(1, to_port(81), 2), 1U);
    change(500);
    EXPECT_EQ(walks(1, to_port(80), 2), 0U);
    EXPECT_EQ(walks(1, to_port(81), 2), 1U);
    for (unsigned i = 0; i < 10; ++i) {
        change(ChangeLog::reach);
        EXPECT_EQ(walks(1, to_port(80)), 0U);
    }
    const auto rule = make_rule(*by_flow, value_of(1, 80), {&to_2});
    EXPECT_EQ(walks(1, to_port(80), 2), 1U);
}

/// Table 2 sees what table 1 made of the packet: that a rule there does not match the packet as it came says nothing.
class RewrittenTest : public CacheKeysTest {
protected:
    Table second{fdb, 2};
    Action::Created to_second = to_table(second);
};

TEST_F(RewrittenTest, ARuleOfTheAddressThatAFlowWasGivenIsMet) {
    const auto edit = modifying(fdb, {set_command(id::dmac_15_0, 0, 16, 0x1234)});
    const auto mask = Parameters{}.set(field::source_port, 0xffff).set(field::dmac_15_0, 0xffff);
    const auto by_mac = make_matcher(second, 0, outer | misc, mask);
    const auto value = [](unsigned mac) {
        return Parameters{}.set(field::source_port, 1).set(field::dmac_15_0, mac);
    };
    const auto standing = make_rule(*by_mac, value(0x777), {&to_2});
    const auto on = make_rule(*by_flow, value_of(1, 80), {&edit, &to_second});
    ASSERT_EQ(on.error, 0);
    EXPECT_EQ(walks(1, to_port(80), 3), 1U);
    EXPECT_TRUE(vports[3].taken.empty());
    for (unsigned i = 0; i < 2; ++i) {
        const auto rule = make_rule(*by_mac, value(0x1234), {&to_3});
        vports[3].taken.clear();
        EXPECT_EQ(walks(1, to_port(80), 3), 1U);
        EXPECT_EQ(vports[3].taken.size(), 3U);
    }
    vports[3].taken.clear();
    EXPECT_EQ(walks(1, to_port(80), 3), 1U);
    EXPECT_TRUE(vports[3].taken.empty());
}

/// The edit is of word 1; the ports are in word 3 and stay what they were.
TEST_F(RewrittenTest, WhatAFlowKeptStillTellsRulesApart) {
    const auto edit = modifying(fdb, {set_command(id::dmac_15_0, 0, 16, 0x1234)});
    const auto behind = make_matcher(second, 0, outer | misc, value_of(0xffff, 0xffff));
    const auto all_behind = match_all(second, 1);
    const auto on = make_rule(*by_flow, value_of(1, 80), {&edit, &to_second});
    const auto out = make_rule(*all_behind, {}, {&to_2});
    const auto standing = make_rule(*behind, value_of(1, 70), {&to_3});
    EXPECT_EQ(walks(1, to_port(80), 3), 1U);
    const auto other = make_rule(*behind, value_of(1, 81), {&to_3});
    EXPECT_EQ(walks(1, to_port(80)), 0U);
    const auto same = make_rule(*behind, value_of(1, 80), {&to_3});
    EXPECT_EQ(walks(1, to_port(80), 2), 1U);
    EXPECT_EQ(vports[3].taken.size(), 2U);
}

TEST_F(RewrittenTest, ATagThatWasTakenOffLeavesNothingToTellBy) {
    const auto pop = Action::pop_vlan();
    const Frame tagged = make_frame({.tags = {0x81000005}, .dport = 80});
    const auto behind = make_matcher(second, 0, misc | outer,
                                     Parameters{}.set(field::source_port, 0xffff).set(field::cvlan_tag, 1));
    const auto on = make_rule(*by_flow, value_of(0xffff, 80), {&pop, &to_second});
    ASSERT_EQ(on.error, 0);
    EXPECT_EQ(walks(0xffff, tagged, 3), 1U) << "a mask without rules does not count";
    const auto untagged = make_rule(*behind, Parameters{}.set(field::source_port, 0xffff), {&to_3});
    ASSERT_EQ(untagged.error, 0);
    send(0xffff, tagged, 2);
    EXPECT_EQ(vports[3].taken.size(), 2U);
}

TEST_F(CacheKeysTest, AMaskOfOneVportIsOneOfNoOther) {
    const std::uint32_t before = looked_at(1);
    const auto deep = make_matcher(first, 0, misc,
                                   Parameters{}.set(field::source_port, 0xffff).set(field::vxlan_vni, 0xffffff));
    const auto value = Parameters{}.set(field::source_port, 3).set(field::vxlan_vni, 5);
    const auto rule = make_rule(*deep, value, {&to_2});
    ASSERT_EQ(rule.error, 0);
    Steering::Impl& impl = steering.impl();
    EXPECT_TRUE(impl.cache_key(VportId{3}).words.deep);
    EXPECT_FALSE(impl.cache_key(VportId{1}).words.deep);
    EXPECT_FALSE(impl.cache_key(manager_vport).words.deep);
    EXPECT_EQ(looked_at(1), before);
    EXPECT_EQ(looked_at(3), before + 1);
}

TEST_F(CacheKeysTest, AKeyOutlivesAMaskForASecond) {
    const std::uint32_t before = looked_at(1);
    auto rule = make_rule(*by_flow, value_of(1, 80), {&to_3});
    const std::uint32_t with = looked_at(1);
    EXPECT_GT(with, before);
    rule.rule.reset();
    EXPECT_EQ(looked_at(1), with);
    pass(CacheKeys::least_age - 1);
    EXPECT_EQ(walks(1, to_port(81), 2), 1U);
    const CacheKey* const key = &steering.impl().cache_key(VportId{1});
    for (unsigned i = 0; i < 3; ++i) static_cast<void>(make_rule(*by_flow, value_of(1, 80), {&to_3}));
    EXPECT_EQ(&steering.impl().cache_key(VportId{1}), key) << "the mask comes and goes, the key stays";
    EXPECT_EQ(walks(1, to_port(81)), 0U);
    pass(1);
    static_cast<void>(make_rule(*by_flow, value_of(3, 80), {&to_3}));
    EXPECT_EQ(looked_at(1), before) << "with the next change of anybody's";
    EXPECT_EQ(walks(1, to_port(81), 2), 1U) << "lines are of the key that they were made by";
    EXPECT_EQ(looked_at(3), with);
}

TEST_F(CacheKeysTest, RulesOfQueuesConcernTheManagerAlone) {
    const auto by_queue = make_matcher(root, 0, misc, Parameters{}.set(field::source_sqn, 0xffffff));
    EXPECT_EQ(walks(1, frame, 3), 1U);
    const auto drop = Action::drop();
    const auto rule = make_rule(*by_queue, Parameters{}.set(field::source_sqn, 0x77), {&drop});
    ASSERT_EQ(rule.error, 0);
    Domain tx{steering, DomainType::nic_tx, nullptr};
    Table tx_root{tx, 0}, tx_first{tx, 1};
    const auto all_tx = match_all(tx_root);
    const auto to_tx_first = to_table(tx_first);
    const auto sending = make_rule(*all_tx, {}, {&to_tx_first});
    ASSERT_EQ(sending.error, 0);
    steering.cotenant_send_rule(0x78, VportId{2});
    steering.cotenant_send_rule(0x78, VportId{3});
    steering.remove_cotenant_send_rule(0x78);
    steering.set_lag_port(0x78, 1);
    steering.set_lag_port(0x78, 0);
    steering.forget_cached(manager_vport);
    EXPECT_EQ(walks(1, frame, 3), 0U);
    const std::uint64_t before = steering.drops().by_rule;
    send_from_queue(0x77, frame, 2);
    send_from_queue(0x76, frame, 2);
    EXPECT_EQ(steering.drops().by_rule, before + 2);
}

/// Numbers that differ by SourceScope::groups share a key, and nothing else.
TEST_F(CacheKeysTest, VportsOfOneGroupStayApart) {
    constexpr std::uint16_t far = 1 + SourceScope::groups;
    attach({far});
    const auto near = make_rule(*by_flow, value_of(1, 80), {&to_3});
    const auto other = make_rule(*by_flow, value_of(far, 81), {&to_3});
    for (unsigned i = 0; i < 2; ++i) {
        for (const std::uint16_t vport : {std::uint16_t{1}, far}) {
            for (const std::uint16_t port : {80, 81}) send(vport, to_port(port));
        }
    }
    EXPECT_EQ(vports[3].taken.size(), 4U);
    EXPECT_EQ(vports[2].taken.size(), 4U);
}

TEST_F(CacheKeysTest, ARuleThatIsRefusedLeavesNothing) {
    const auto in_root = make_matcher(root, 0, outer, Parameters{}.set(field::ip_version, 0xf).set(field::ttl, 0xff));
    const auto value = Parameters{}.set(field::ip_version, 4).set(field::ttl, 7);
    const auto rule = make_rule(*in_root, value, {&to_first});
    ASSERT_EQ(make_rule(*in_root, value, {&to_first}).error, EEXIST);
    send(1, make_frame({.ttl = 7}));
    const std::uint32_t with = looked_at(1);
    ASSERT_EQ(make_rule(*in_root, value, {&to_first}).error, EEXIST);
    steering.forget_cached();
    EXPECT_EQ(looked_at(1), with);
}

/// Places between two steps of a change at which a worker may send: by RCU's callbacks, which a change's own thread
/// runs, and by a sink in the middle of a batch.
class MeanwhileTest : public CacheKeysTest {
protected:
    [[nodiscard]] static Frame of_ttl(std::uint8_t ttl, std::uint16_t dport = 7) {
        return make_frame({.ttl = ttl, .dport = dport});
    }
    [[nodiscard]] static Parameters ttl(std::uint32_t value) {
        return Parameters{}.set(field::ip_version, 4).set(field::ttl, value);
    }
    /// All that is to be freed later is freed now.
    void settle() {
        lane.offline();
        steering.impl().rcu.drain();
        lane.online();
    }
    void push(std::span<const Frame> frames) {
        std::vector<rte_mbuf*> packets;
        for (const Frame& frame : frames) packets.push_back(packet_of(frame));
        lane.from_vport(VportId{1}, packets.data(), static_cast<unsigned>(packets.size()));
        lane.flush();
    }
    void push(const Frame& frame) { push(std::span(&frame, 1)); }
};

/// Has a worker send while a new key is in force whose first change is not over.
struct InTheChange {
    std::function<bool()> is_the_moment;
    std::function<void()> act;
    bool done = false;

    static void retired(void* self) {
        auto& me = *static_cast<InTheChange*>(self);
        if (!me.done && me.is_the_moment()) {
            me.done = true;
            me.act();
        }
    }
};

/// The old key's words told the TTL's low bits, the new one's do not.
TEST_F(MeanwhileTest, ANewKeysFirstChangeBelievesNoLineOfTheOldKey) {
    const auto coarse = make_matcher(first, 0, outer, ttl(0xf0));
    const auto fine = make_matcher(first, 0, outer, ttl(0xff));
    const auto standing = make_rule(*coarse, ttl(0x10), {&to_2});
    auto rule = make_rule(*fine, ttl(0x40), {&to_3});
    settle();
    push(of_ttl(0x40));
    ASSERT_EQ(vports[3].taken.size(), 1U);
    const CacheKey* const old = &steering.impl().cache_key(VportId{1});
    InTheChange meanwhile{.is_the_moment =
                              [&] {
                                  const CacheKey& key = steering.impl().cache_key(VportId{1});
                                  return &key != old && (key.epoch.load() & 1) != 0;
                              },
                          .act = [&] { push(of_ttl(0x47)); }};
    for (unsigned i = 0; i < 200; ++i) steering.impl().rcu.retire(&meanwhile, InTheChange::retired);
    ASSERT_FALSE(meanwhile.done);
    lane.quiescent();
    pass(CacheKeys::least_age);
    rule.rule.reset();
    ASSERT_TRUE(meanwhile.done);
    EXPECT_EQ(vports[3].taken.size(), 1U) << "no rule was for this TTL";
    EXPECT_EQ(vports[2].taken.size(), 1U);
    settle();
}

/// The common key's epoch tells nothing of a rule whose source has just got a key of its own.
TEST_F(MeanwhileTest, ASourcesFirstRuleComesInTheMiddleOfABatch) {
    InTheChange meanwhile{.is_the_moment = [] { return true; }, .act = {}};
    const Sink sink{.deliver =
                        [](void* self, unsigned, rte_mbuf** packets, unsigned length) noexcept {
                            InTheChange::retired(self);
                            rte_pktmbuf_free_bulk(packets, length);
                        },
                    .self = &meanwhile};
    ASSERT_EQ(steering.attach(VportId{4}, sink), 0);
    const auto by_ttl = make_matcher(first, 0, outer, ttl(0xff));
    const auto to_4 = to_vport(fdb, 4);
    const auto nine = make_rule(*by_ttl, ttl(9), {&to_4});
    MadeRule made;
    meanwhile.act = [&] { made = make_rule(*by_flow, value_of(1, 80), {&to_3}); };
    std::vector<rte_mbuf*> packets;
    for (unsigned i = 0; i < batch_length; ++i) packets.push_back(packet_of(of_ttl(9)));
    lane.online();
    lane.from_vport(VportId{1}, packets.data(), batch_length);
    ASSERT_FALSE(meanwhile.done) << "they wait for the next one, which makes the sink's batch full";
    push(std::array{of_ttl(9), of_ttl(20, 80), of_ttl(20, 81)});
    ASSERT_TRUE(meanwhile.done);
    ASSERT_EQ(made.error, 0);
    EXPECT_EQ(vports[3].taken.size(), 1U) << "the rule is for port 80";
    EXPECT_EQ(vports[2].taken.size(), 1U);
    lane.offline();
    steering.detach(VportId{4});
}

}  // namespace
}  // namespace ovsdr::soft::test
