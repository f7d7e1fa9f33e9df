// LAG in steering: which sink of the uplink's gets what queues send.
#include "frames.hpp"
#include "objects.hpp"
#include "packet_pool.hpp"

namespace ovsdr::soft::test {
namespace {

class LagSteering : public SteeringTest {
protected:
    static constexpr std::uint32_t sqn = 77, other_sqn = 78;

    LagSteering() {
        attach({1, 0xffff});
        for (unsigned port = 1; port <= lag_ports; ++port) {
            EXPECT_EQ(steering.attach_lag_port(port, ports[port].sink(), strict[port].sink()), 0);
        }
        steering.cotenant_send_rule(sqn, uplink_vport);
        steering.cotenant_send_rule(other_sqn, uplink_vport);
    }
    /// What came since the last call: without a choice, by port 1, 2, strictly by port 1, 2.
    std::array<std::size_t, 5> seen() {
        std::array<std::size_t, 5> lengths{};
        unsigned i = 0;
        for (Collector* collector : {&vports[0xffff], &ports[1], &ports[2], &strict[1], &strict[2]}) {
            lengths[i++] = collector->taken.size();
            collector->taken.clear();
        }
        return lengths;
    }
    using Seen = std::array<std::size_t, 5>;

    const Frame frame = make_frame({});
    std::array<Collector, lag_ports + 1> ports, strict;
};

TEST_F(LagSteering, AQueuesPacketsGoToThePortOfItsChoice) {
    send_from_queue(sqn, frame, 3);
    EXPECT_EQ(seen(), (Seen{3, 0, 0, 0, 0}));
    steering.set_lag_port(sqn, 2);
    send_from_queue(sqn, frame, 40);
    send_from_queue(other_sqn, frame);
    EXPECT_EQ(seen(), (Seen{1, 0, 40, 0, 0}));
    steering.set_lag_port(sqn, 1);
    steering.set_lag_port(other_sqn, 1, true);
    send_from_queue(sqn, frame);
    send_from_queue(other_sqn, frame, 2);
    EXPECT_EQ(seen(), (Seen{0, 1, 0, 2, 0}));
    steering.set_lag_port(other_sqn, 2, true);
    send_from_queue(other_sqn, frame);
    EXPECT_EQ(seen(), (Seen{0, 0, 0, 0, 1}));
    steering.set_lag_port(sqn, 0);
    steering.set_lag_port(other_sqn, 0);
    send_from_queue(sqn, frame);
    send_from_queue(other_sqn, frame);
    EXPECT_EQ(seen(), (Seen{2, 0, 0, 0, 0}));
}

TEST_F(LagSteering, RulesLeadQueuesPacketsToTheirPortsAndOthersToNone) {
    Domain fdb{steering, DomainType::fdb, nullptr};
    Table root{fdb, 0}, table{fdb, 1};
    const auto enter_all = match_all(root), all = match_all(table);
    const auto jump = to_table(table), out = to_vport(fdb, 0xffff);
    const auto enter = make_rule(*enter_all, {}, {&jump});
    const auto rule = make_rule(*all, {}, {&out});
    ASSERT_EQ(enter.error + rule.error, 0);
    steering.remove_cotenant_send_rule(sqn);  // the rule alone leads there
    steering.set_lag_port(sqn, 2);
    send_from_queue(sqn, frame, 2);
    send(1, frame, 3);
    EXPECT_EQ(seen(), (Seen{3, 0, 2, 0, 0}));
}

TEST_F(LagSteering, ACopyToTheUplinkGoesByTheQueuesPortToo) {
    Domain fdb{steering, DomainType::fdb, nullptr};
    Table root{fdb, 0};
    const auto all = match_all(root);
    const auto one = to_vport(fdb, 1), out = to_vport(fdb, 0xffff);
    const auto both = array_of(fdb, {&out, &one});
    const auto rule = make_rule(*all, {}, {&both});
    ASSERT_EQ(rule.error, 0);
    steering.set_lag_port(sqn, 1);
    send_from_queue(sqn, frame);
    EXPECT_EQ(vports[1].taken.size(), 1U);
    EXPECT_EQ(seen(), (Seen{0, 1, 0, 0, 0}));
}

TEST_F(LagSteering, WhatTheWireSentNeverGoesBackToIt) {
    Domain fdb{steering, DomainType::fdb, nullptr};
    Table root{fdb, 0}, table{fdb, 1};
    const auto enter_all = match_all(root), all = match_all(table);
    const auto jump = to_table(table), out = to_vport(fdb, 0xffff);
    const auto enter = make_rule(*enter_all, {}, {&jump});
    const auto rule = make_rule(*all, {}, {&out});
    ASSERT_EQ(enter.error + rule.error, 0);
    Frame broadcast = frame;
    std::fill_n(broadcast.begin(), 6, 0xff);
    send(0xffff, broadcast, 2);
    EXPECT_EQ(seen(), Seen{});
    EXPECT_EQ(steering.drops().by_rule, 2U);
}

TEST_F(LagSteering, AnUplinkThatIsDetachedTakesItsPortsAlong) {
    steering.set_lag_port(sqn, 2);
    send_from_queue(sqn, frame);
    EXPECT_EQ(seen(), (Seen{0, 0, 1, 0, 0}));
    steering.detach(uplink_vport);
    send_from_queue(sqn, frame, 2);
    EXPECT_EQ(seen(), Seen{});
    EXPECT_EQ(steering.drops().no_vport, 2U);
    attach({0xffff});  // one that is no LAG: the choice has no effect
    send_from_queue(sqn, frame);
    EXPECT_EQ(seen(), (Seen{1, 0, 0, 0, 0}));
}

TEST_F(LagSteering, AnotherVportsEndLeavesThePorts) {
    steering.set_lag_port(sqn, 2);
    steering.detach(VportId{1});
    send_from_queue(sqn, frame);
    EXPECT_EQ(seen(), (Seen{0, 0, 1, 0, 0}));
}

TEST_F(LagSteering, PortsGiveTheirPlacesBack) {
    for (unsigned times = 0; times < 1000; ++times) {
        steering.detach(uplink_vport);
        attach({0xffff});
        for (unsigned port = 1; port <= lag_ports; ++port) {
            ASSERT_EQ(steering.attach_lag_port(port, ports[port].sink(), strict[port].sink()), 0) << times;
        }
    }
}

}  // namespace
}  // namespace ovsdr::soft::test
