// Rules that come and go under traffic, and many of them.
#include <atomic>
#include <thread>

#include "allocations.hpp"
#include "datapath/steering/steering_impl.hpp"
#include "frames.hpp"
#include "objects.hpp"
#include "packet_pool.hpp"

namespace ovsdr::soft::test {
namespace {

/// Counts, and frees.
struct Counter {
    std::atomic<std::uint64_t> packets{0};
    [[nodiscard]] Sink sink() noexcept {
        return {.deliver =
                    [](void* self, unsigned, rte_mbuf** packets, unsigned length) noexcept {
                        static_cast<Counter*>(self)->packets += length;
                        rte_pktmbuf_free_bulk(packets, length);
                    },
                .self = this};
    }
};

class Churn : public SteeringTest {
protected:
    Domain fdb{steering, DomainType::fdb, nullptr};
    Table root{fdb, 0};
    Table table{fdb, 1};
};

TEST_F(Churn, NothingIsLostOrDuplicatedWhileRulesComeAndGo) {
    Counter two, manager;
    ASSERT_EQ(steering.attach(VportId{1}, two.sink()), 0);
    ASSERT_EQ(steering.attach(VportId{2}, two.sink()), 0);
    steering.set_cotenant_sink(manager.sink());
    const auto all = match_all(root);
    const auto jump = to_table(table);
    const auto enter = make_rule(*all, {}, {&jump});
    const auto out = to_vport(fdb, 2);
    (void)pool();

    std::atomic<bool> stop{false};
    std::uint64_t sent = 0;
    std::thread worker([&] {
        lane.online();
        for (unsigned round = 0; !stop; ++round) {
            rte_mbuf* batch[batch_length];
            for (unsigned i = 0; i < batch_length; ++i) {
                batch[i] = packet_of(make_frame({.dport = static_cast<std::uint16_t>((round * 7 + i) & 63)}));
            }
            lane.from_vport(VportId{1}, batch, batch_length);
            sent += batch_length;
            lane.quiescent();
        }
        lane.offline();
    });
    const auto bulk = std::make_shared<CounterBulk>(1);
    for (unsigned round = 0; round < 300; ++round) {
        const auto matcher =
            make_matcher(table, static_cast<std::uint16_t>(round & 3), criteria::outer,
                         Parameters{}.set(field::ip_version, 4).set(field::udp_dport, round % 2 ? 0xffff : 0x1f));
        const auto count = counting(bulk);
        std::vector<MadeRule> rules;
        for (unsigned port = 0; port < 32; ++port) {
            rules.push_back(make_rule(*matcher, Parameters{}.set(field::ip_version, 4).set(field::udp_dport, port),
                                      {&count, &out}));
            ASSERT_EQ(rules.back().error, 0);
        }
        if (round % 16 == 0) steering.synchronize();
    }
    stop = true;
    worker.join();
    EXPECT_EQ(two.packets + manager.packets, sent);
    EXPECT_EQ(bulk->read(0).packets, two.packets) << "a counted packet is a forwarded one";
    EXPECT_GT(two.packets, 0U);
}

/// Two matchers take turns, on the destination and on the source. What the second sees of one packet is what the first
/// has seen of the other: a lane that had the cache of one and the key of the other would take the first packet's way.
TEST_F(Churn, ABatchNeverLooksWithOneKeyIntoTheCacheOfAnother) {
    struct Watch {
        std::atomic<std::uint64_t> packets{0}, strangers{0};
        [[nodiscard]] Sink sink() noexcept {
            return {.deliver =
                        [](void* self, unsigned, rte_mbuf** packets, unsigned length) noexcept {
                            Watch& watch = *static_cast<Watch*>(self);
                            for (unsigned i = 0; i < length; ++i) {
                                const auto* ip = rte_pktmbuf_mtod_offset(packets[i], const std::uint8_t*, 14);
                                if (load_be32(ip + 16) != 0x0b000000) ++watch.strangers;
                            }
                            watch.packets += length;
                            rte_pktmbuf_free_bulk(packets, length);
                        },
                    .self = this};
        }
    } watch;
    Counter others;
    ASSERT_EQ(steering.attach(VportId{1}, others.sink()), 0);
    ASSERT_EQ(steering.attach(VportId{2}, watch.sink()), 0);
    steering.set_cotenant_sink(others.sink());
    const auto all = match_all(root);
    const auto jump = to_table(table);
    const auto enter = make_rule(*all, {}, {&jump});
    const auto out = to_vport(fdb, 2);
    (void)pool();
    std::atomic<bool> stop{false};
    std::atomic<std::uint64_t> rounds{0};
    std::thread worker([&] {
        lane.online();
        while (!stop) {
            rte_mbuf* batch[] = {packet_of(make_frame({.source = 0x0a000000, .destination = 0x0b000000})),
                                 packet_of(make_frame({.source = 0x0b000000, .destination = 0x0c000000}))};
            for (rte_mbuf*& packet : batch) lane.from_vport(VportId{1}, &packet, 1);
            lane.quiescent();
            ++rounds;
        }
        lane.offline();
    });
    for (unsigned turn = 0; turn < 2000; ++turn) {
        const auto address = turn % 2 == 0 ? field::dst_31_0 : field::src_31_0;
        auto parameters = Parameters{}.set(field::ip_version, 4).set(address, ~0U);
        const auto matcher = make_matcher(table, 0, criteria::outer, parameters);
        parameters.set(address, turn % 2 == 0 ? 0x0b000000 : 1);
        const auto rule = make_rule(*matcher, parameters, {&out});
        for (const std::uint64_t before = rounds; rounds < before + 2;) std::this_thread::yield();
    }
    stop = true;
    worker.join();
    EXPECT_GT(watch.packets, 0U);
    EXPECT_EQ(watch.strangers, 0U);
}

TEST_F(Churn, ADestroyedRuleTakesNoPacketMoreOnceSynchronized) {
    Counter two;
    ASSERT_EQ(steering.attach(VportId{2}, two.sink()), 0);
    const auto all = match_all(root);
    const auto jump = to_table(table);
    const auto enter = make_rule(*all, {}, {&jump});
    const auto table_all = match_all(table);
    const auto out = to_vport(fdb, 2);
    (void)pool();
    std::atomic<bool> stop{false};
    std::thread worker([&] {
        lane.online();
        while (!stop) {
            rte_mbuf* packet = packet_of(make_frame({}));
            lane.from_vport(VportId{1}, &packet, 1);
            lane.quiescent();
        }
        lane.offline();
    });
    for (unsigned round = 0; round < 50; ++round) {
        auto rule = make_rule(*table_all, {}, {&out});
        const std::uint64_t before = two.packets;
        while (two.packets == before) std::this_thread::yield();
        rule.rule.reset();
        steering.synchronize();
        const std::uint64_t now = two.packets;
        std::this_thread::sleep_for(std::chrono::microseconds(200));
        EXPECT_EQ(two.packets, now);
    }
    stop = true;
    worker.join();
}

/// Wherever memory ends while a rule comes, beside one of its value too; and a rule goes without any.
TEST_F(Churn, ARuleThatThereIsNoMemoryForLeavesNothing) {
    constexpr unsigned length = 600;
    attach({1, 2});
    const auto all = match_all(root);
    const auto jump = to_table(table);
    const auto enter = make_rule(*all, {}, {&jump});
    const auto matcher = make_matcher(table, 0, criteria::outer,
                                      Parameters{}.set(field::ip_version, 4).set(field::dst_31_0, 0xffffffff));
    const auto bulk = std::make_shared<CounterBulk>(1);
    const auto count = counting(bulk);
    const auto out = to_vport(fdb, 2);
    Action* list[] = {count.get(), out.get()};
    const std::uint64_t others = room_of(steering).taken(Resource::rules);
    std::vector<std::unique_ptr<Rule>> rules(length);
    unsigned failed = 0;
    for (unsigned i = 0; i < length; ++i) {
        const auto value = Parameters{}.set(field::ip_version, 4).set(field::dst_31_0, i - i % 8 / 7);
        for (unsigned left = 0; rules[i] == nullptr; ++left) {
            const NoMemory none(left, 1);
            try {
                ASSERT_EQ(Rule::create(*matcher, value.bytes(), list, rules[i]), 0);
            } catch (const std::bad_alloc&) {
                ++failed;
                ASSERT_EQ((*matcher).view().rules.length(), i);
                ASSERT_EQ(room_of(steering).taken(Resource::rules), others + i);
            }
        }
    }
    EXPECT_GE(failed, 75U);
    for (unsigned i = 0; i < length; ++i) send(1, make_frame({.destination = i - i % 8 / 7}));
    EXPECT_EQ(vports[2].taken.size(), length);
    EXPECT_EQ(bulk->read(0).packets, length);
    {
        const NoMemory none;
        for (auto& rule : rules) rule.reset();
    }
    EXPECT_EQ(room_of(steering).taken(Resource::rules), others);
    EXPECT_FALSE((*matcher).busy());
    EXPECT_FALSE(count->busy());
    EXPECT_FALSE(out->busy());
}

TEST_F(Churn, AMatcherHoldsAMillionRules) {
    constexpr unsigned length = 1'000'000;
    attach({1, 2});
    const auto all = match_all(root);
    const auto jump = to_table(table);
    const auto enter = make_rule(*all, {}, {&jump});
    const auto matcher = make_matcher(table, 0, criteria::outer,
                                      Parameters{}.set(field::ip_version, 4).set(field::dst_31_0, 0xffffffff));
    const auto out = to_vport(fdb, 2);
    std::vector<std::unique_ptr<Rule>> rules(length);
    auto value = Parameters{}.set(field::ip_version, 4);
    Action* list[] = {out.get()};
    for (unsigned i = 0; i < length; ++i) {
        value.set(field::dst_31_0, i * 2654435761U);
        ASSERT_EQ(Rule::create(*matcher, value.bytes(), list, rules[i]), 0);
    }
    for (unsigned i = 0; i < length; i += 9973) send(1, make_frame({.destination = i * 2654435761U}));
    EXPECT_EQ(vports[2].taken.size(), (length + 9972) / 9973);
    for (unsigned i = 0; i < length; i += 2) rules[i].reset();
    vports[2].taken.clear();
    for (unsigned i = 0; i < 1000; ++i) send(1, make_frame({.destination = i * 2654435761U}));
    EXPECT_EQ(vports[2].taken.size(), 500U);
    EXPECT_EQ((*matcher).view().rules.length(), length / 2);
}

}  // namespace
}  // namespace ovsdr::soft::test
