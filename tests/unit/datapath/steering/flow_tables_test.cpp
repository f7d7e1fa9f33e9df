// What verbs flows add to the root tables: sharing of one match, going on, ranks, leftovers, the way back.
#include "datapath/steering/flow_tables.hpp"

#include <cerrno>

#include "allocations.hpp"
#include "datapath/steering/steering_impl.hpp"
#include "datapath/steering/vport_metadata.hpp"
#include "frames.hpp"
#include "objects.hpp"
#include "packet_pool.hpp"

namespace ovsdr::soft::test {
namespace {

using Fate = FlowRequest::Fate;

class FlowTablesTest : public SteeringTest {
protected:
    FlowTablesTest() { attach({1, 2, 0xffff}); }

    /// A queue that counts who holds it.
    struct Queue {
        Collector collector;
        int holders = 0;
        [[nodiscard]] Receiver receiver() {
            return {.sink = collector.sink(),
                    .object = this,
                    .hold = [](void* self) noexcept { ++static_cast<Queue*>(self)->holders; },
                    .release = [](void* self) noexcept { --static_cast<Queue*>(self)->holders; }};
        }
        [[nodiscard]] std::size_t got() const { return collector.taken.size(); }
    };

    struct Made {
        std::unique_ptr<FlowTables::Flow> flow;
        int error = 0;
    };
    /// A flow for a destination MAC address.
    Made for_mac(std::uint64_t mac, FlowRequest request) {
        const Parameters mask = Parameters{}.set(field::dmac_47_16, 0xffffffff).set(field::dmac_15_0, 0xffff);
        const Parameters value = Parameters{}.set(field::dmac_47_16, mac >> 16).set(field::dmac_15_0, mac & 0xffff);
        request.criteria = criteria::outer;
        return make(request, mask, value);
    }
    Made for_all(FlowRequest request) { return make(request, {}, {}); }
    Made make(FlowRequest& request, const Parameters& mask, const Parameters& value) {
        const auto mask_bytes = mask.bytes();
        const auto value_bytes = value.bytes();
        request.mask = mask_bytes;
        request.value = value_bytes;
        Made made;
        made.error = tables.create(request, made.flow);
        return made;
    }
    static FlowRequest to(Queue& queue, std::uint16_t priority = 0) {
        FlowRequest request;
        request.rank = rank::of_priority(priority);
        request.receiver = queue.receiver();
        return request;
    }
    static FlowRequest sharing(Queue& queue, std::uint16_t priority) {
        FlowRequest request = to(queue);
        request.rank = rank::of_priority(priority, true);
        request.goes_on = true;
        return request;
    }

    FlowTables tables{steering};
    const Frame frame = make_frame({});
    const std::uint64_t mac = FrameSpec{}.dmac;
    Queue a, b, c;
};

TEST_F(FlowTablesTest, EveryQueueOfOneMatchGetsThePacketOnce) {
    auto first = for_mac(mac, to(a));
    auto second = for_mac(mac, to(b));
    auto again = for_mac(mac, to(b));
    ASSERT_EQ(again.error, 0);
    send(1, frame, 5);
    EXPECT_EQ(a.got(), 5U);
    EXPECT_EQ(b.got(), 5U);
    EXPECT_EQ(a.collector.taken[0].frame, frame);
    again.flow.reset();
    send(1, frame);
    EXPECT_EQ(b.got(), 6U);
    second.flow.reset();
    send(1, frame);
    EXPECT_EQ(a.got(), 7U);
    EXPECT_EQ(b.got(), 6U);
    EXPECT_EQ(b.holders, 0);
    EXPECT_EQ(a.holders, 1);
    first.flow.reset();
    send(1, frame);
    EXPECT_EQ(a.got(), 7U);
    EXPECT_EQ(a.holders, 0);
}

TEST_F(FlowTablesTest, AConflictInWhatIsDoneIsRefusedAndChangesNothing) {
    FlowRequest tagged = to(a);
    tagged.tag = 7;
    auto first = for_mac(mac, tagged);
    FlowRequest dropping;
    dropping.rank = tagged.rank;
    dropping.fate = Fate::drop;
    EXPECT_EQ(for_mac(mac, dropping).error, EEXIST);
    FlowRequest other = to(b);
    other.tag = 8;
    EXPECT_EQ(for_mac(mac, other).error, EEXIST);
    auto untagged = for_mac(mac, to(b));  // takes the tag that is there
    ASSERT_EQ(untagged.error, 0);
    send(1, frame);
    ASSERT_EQ(a.got(), 1U);
    ASSERT_EQ(b.got(), 1U);
    EXPECT_EQ(b.collector.taken[0].tag, 7U);
}

TEST_F(FlowTablesTest, EachFlowsCounterCounts) {
    const auto bulk = std::make_shared<CounterBulk>(2);
    FlowRequest one = to(a), two = to(b);
    one.counters = two.counters = bulk;
    two.counter = 1;
    auto first = for_mac(mac, one);
    send(1, frame, 2);
    auto second = for_mac(mac, two);
    send(1, frame, 3);
    EXPECT_EQ(bulk->read(0).packets, 5U);
    EXPECT_EQ(bulk->read(1).packets, 3U);
    EXPECT_EQ(bulk->read(1).bytes, 3 * frame.size());
}

TEST_F(FlowTablesTest, DropsAreSharedAndCountedToo) {
    const auto bulk = std::make_shared<CounterBulk>(2);
    FlowRequest one;
    one.rank = rank::of_priority(0);
    one.fate = Fate::drop;
    one.counters = bulk;
    FlowRequest two = one;
    two.counter = 1;
    auto first = for_mac(mac, one);
    auto second = for_mac(mac, two);
    ASSERT_EQ(second.error, 0);
    send(1, frame, 4);
    EXPECT_EQ(bulk->read(0).packets, 4U);
    EXPECT_EQ(bulk->read(1).packets, 4U);
    EXPECT_EQ(steering.drops().by_rule, 4U);
}

TEST_F(FlowTablesTest, AFlowThatGoesOnIsSeenFirstInItsPriorityAndKeepsNothing) {
    auto all = for_all(to(a, 3));
    auto sharing_all = for_all(sharing(b, 3));
    auto later = for_all(sharing(c, 4));
    send(1, frame, 2);
    EXPECT_EQ(b.got(), 2U);
    EXPECT_EQ(a.got(), 2U);
    EXPECT_EQ(c.got(), 0U) << "priority 3 took the packet";
    all.flow.reset();
    send(1, frame);
    EXPECT_EQ(b.got(), 3U);
    EXPECT_EQ(c.got(), 1U);
    EXPECT_EQ(steering.drops().nic_rx_miss, 1U) << "nobody kept it";
}

TEST_F(FlowTablesTest, PrioritiesAreThoseOfDirectRules) {
    Domain rx(steering, DomainType::nic_rx, nullptr);
    Table root(rx, 0);
    const auto queue = to_sink(a.collector.sink());
    const auto matcher = match_all(root, 2);
    const auto rule = make_rule(*matcher, {}, {&queue});
    auto before = for_mac(mac, to(b, 1));
    auto after = for_all(to(c, 3));
    send(1, frame);
    EXPECT_EQ(b.got(), 1U);
    before.flow.reset();
    send(1, frame);
    EXPECT_EQ(a.got(), 1U);
    EXPECT_EQ(c.got(), 0U);
}

TEST(Ranks, GoFromSniffersByPrioritiesToMulticastAndLeftovers) {
    std::uint32_t last = rank::sniffer;
    for (unsigned priority = 0; priority < 65536; ++priority) {
        for (const bool goes_on : {true, false}) {
            const std::uint32_t next = rank::of_priority(static_cast<std::uint16_t>(priority), goes_on);
            ASSERT_LT(last, next) << priority;
            last = next;
        }
    }
    EXPECT_LT(last, rank::multicast);
    EXPECT_LT(rank::multicast, rank::leftovers);
}

TEST_F(FlowTablesTest, LeftoversComeAfterEverythingTheCotenantToo) {
    FlowRequest rest = to(a);
    rest.rank = rank::leftovers;
    auto leftovers = for_all(rest);
    FlowRequest multicast = to(b);
    multicast.rank = rank::multicast;
    auto some = for_mac(mac, multicast);
    send(1, frame);
    send(1, make_frame({.dmac = 0x020000000009}));
    EXPECT_EQ(b.got(), 1U);
    EXPECT_EQ(a.got(), 1U);
    Collector cotenant;
    steering.set_cotenant_sink(cotenant.sink());
    send(1, make_frame({.dmac = 0x020000000009}));
    EXPECT_EQ(cotenant.taken.size(), 1U);
    EXPECT_EQ(a.got(), 1U);
    send(1, frame);
    EXPECT_EQ(b.got(), 2U) << "multicast before the co-tenant";
}

TEST_F(FlowTablesTest, NextNamespaceSkipsLaterPriorities) {
    FlowRequest skip;
    skip.rank = rank::of_priority(0);
    skip.fate = Fate::next_namespace;
    auto skipping = for_mac(mac, skip);
    auto later = for_all(to(a, 5));
    FlowRequest rest = to(b);
    rest.rank = rank::leftovers;
    auto leftovers = for_all(rest);
    send(1, frame);
    EXPECT_EQ(a.got(), 0U);
    EXPECT_EQ(b.got(), 1U);
}

TEST_F(FlowTablesTest, SniffersOfBothWaysKeepNothingFromAnybody) {
    FlowRequest received = sharing(a, 0);
    received.rank = rank::sniffer;
    FlowRequest sent = received;
    sent.domain = DomainType::nic_tx;
    auto up = for_all(received);
    auto down = for_all(sent);
    ASSERT_EQ(down.error, 0);
    auto taker = for_all(to(b));
    send_from_queue(0x42, frame);
    EXPECT_EQ(a.got(), 2U) << "once as it leaves, once as it comes back up";
    EXPECT_EQ(b.got(), 1U);
}

TEST_F(FlowTablesTest, LeftoversThatMatchNothingLeaveThePacketToNobody) {
    FlowRequest rest = to(a);
    rest.rank = rank::leftovers;
    auto leftovers = for_mac(mac, rest);
    send(1, make_frame({.dmac = 0x020000000009}));
    EXPECT_EQ(steering.drops().nic_rx_miss, 1U);
    EXPECT_EQ(steering.drops().loop, 0U);
    EXPECT_EQ(a.got(), 0U);
    send(1, frame);
    EXPECT_EQ(a.got(), 1U);
}

TEST_F(FlowTablesTest, RewritesAreNotShared) {
    FlowRequest rewriting = to(a);
    rewriting.rewrites.push_back(
        modifying(tables.domain(DomainType::nic_rx), {set_command(id::dmac_15_0, 0, 16, 0x7777)}, true));
    auto first = for_mac(mac, rewriting);
    ASSERT_EQ(first.error, 0);
    EXPECT_EQ(for_mac(mac, rewriting).error, EEXIST);
    EXPECT_EQ(for_mac(mac, to(b)).error, EEXIST);
    send(1, frame);
    ASSERT_EQ(a.got(), 1U);
    EXPECT_EQ(a.collector.taken[0].frame[4], 0x77);
    EXPECT_EQ(b.holders, 0);
    first.flow.reset();
    auto plain = for_mac(mac, to(b));
    ASSERT_EQ(plain.error, 0);
    EXPECT_EQ(for_mac(mac, rewriting).error, EEXIST);
    send(1, frame);
    EXPECT_EQ(b.got(), 1U);
}

TEST_F(FlowTablesTest, TheSameTagIsNoConflict) {
    FlowRequest one = to(a), two = to(b);
    one.tag = two.tag = 9;
    auto first = for_mac(mac, one), second = for_mac(mac, two);
    EXPECT_EQ(second.error, 0);
    auto untagged = for_all(to(c));
    FlowRequest late = to(a);
    late.tag = 9;
    EXPECT_EQ(for_all(late).error, EEXIST) << "the rule there has none";
}

TEST_F(FlowTablesTest, WhatIsRefusedLeavesTheOthersAndNothingOfItself) {
    const auto& walked = steering.impl().root_matchers[static_cast<unsigned>(DomainType::nic_rx)];
    const auto bulk = std::make_shared<CounterBulk>(1);
    FlowRequest past_the_bulk = to(b);
    past_the_bulk.counters = bulk;
    past_the_bulk.counter = 1;
    EXPECT_EQ(for_mac(mac, past_the_bulk).error, EINVAL);
    EXPECT_TRUE(walked.empty()) << "no matcher for no rule";
    auto good = for_mac(mac, to(a));
    EXPECT_EQ(walked.size(), 1U);
    EXPECT_EQ(for_mac(mac, past_the_bulk).error, EINVAL);
    auto other = for_mac(mac + 1, to(c));
    EXPECT_EQ(walked.size(), 1U) << "one mask, one matcher";
    EXPECT_EQ(for_mac(mac + 2, past_the_bulk).error, EINVAL);
    send(1, frame);
    EXPECT_EQ(a.got(), 1U);
    EXPECT_EQ(b.holders, 0);
    other.flow.reset();
    EXPECT_EQ(walked.size(), 1U);
    good.flow.reset();
    EXPECT_TRUE(walked.empty());
    // One that goes on elsewhere has one counter at most, and no receivers.
    FlowRequest skip;
    skip.rank = rank::of_priority(0);
    skip.fate = Fate::next_namespace;
    skip.counters = bulk;
    auto one = for_mac(mac, skip);
    ASSERT_EQ(one.error, 0);
    EXPECT_EQ(for_mac(mac, skip).error, EOPNOTSUPP) << "two counters";
    send(1, frame);
    EXPECT_EQ(bulk->read(0).packets, 1U);
}

TEST_F(FlowTablesTest, WithoutDestinationsLeftFlowsAreRefused) {
    std::uint16_t last = 0;
    for (std::uintptr_t i = 1;
         steering.impl().acquire_destination({a.collector.sink().deliver, reinterpret_cast<void*>(i)}, last) == 0;)
        ++i;
    EXPECT_EQ(for_mac(mac, to(b)).error, ENOSPC);
    FlowRequest sharing_one = sharing(b, 0);
    EXPECT_EQ(for_mac(mac, sharing_one).error, ENOSPC);
    EXPECT_EQ(b.holders, 0);
}

TEST_F(FlowTablesTest, OfSeveralThatShareARuleEachMayGoOn) {
    auto keeps = for_mac(mac, to(a));
    FlowRequest on = to(b);
    on.goes_on = true;
    auto goes_on = for_mac(mac, on);
    ASSERT_EQ(goes_on.error, 0);
    auto third = for_mac(mac, to(a));
    auto later = for_all(to(c, 1));
    send(1, frame);
    EXPECT_EQ(a.got(), 1U) << "two flows of one queue are one receiver";
    EXPECT_EQ(b.got(), 1U);
    EXPECT_EQ(c.got(), 1U);
    goes_on.flow.reset();
    send(1, frame);
    EXPECT_EQ(a.got(), 2U);
    EXPECT_EQ(c.got(), 1U);
    EXPECT_EQ(b.holders, 0);
}

TEST_F(FlowTablesTest, SendersFlowsGoToQueuesByAnArray) {
    FlowRequest sent = to(a);
    sent.domain = DomainType::nic_tx;
    auto flow = for_mac(mac, sent);
    ASSERT_EQ(flow.error, 0);
    send_from_queue(7, frame, 2);
    EXPECT_EQ(a.got(), 2U);
}

TEST_F(FlowTablesTest, WhereThereIsNoMemoryForTheRestOfAnEntryAllOfItGoes) {
    auto first = for_mac(mac, to(a));
    auto second = for_mac(mac, to(b));
    {
        const NoMemory none(0, 1);
        first.flow.reset();
    }
    send(1, frame);
    EXPECT_EQ(a.got() + b.got(), 0U) << "their rule could not be made anew";
    EXPECT_EQ(b.holders, 0);
    auto third = for_mac(mac, to(c));
    send(1, frame);
    EXPECT_EQ(b.got(), 1U);
    EXPECT_EQ(c.got(), 1U);
}

TEST_F(FlowTablesTest, MatchesAndRefusalsAreTheRootTables) {
    FlowRequest request = to(a);
    request.criteria = criteria::outer;
    Made made = make(request, {}, {});
    EXPECT_EQ(made.error, EINVAL) << "criteria without a mask";
    request.domain = DomainType::fdb;
    request.criteria = 0;
    EXPECT_EQ(make(request, {}, {}).error, 0) << "the verbs front decides what a table's flows may lead to";
    EXPECT_EQ(a.holders, 0) << "what was refused or destroyed holds nothing";
}

}  // namespace
}  // namespace ovsdr::soft::test
