// Where receive queues go, and when they move: decisions out of loads.
#include "datapath/ports/placement.hpp"

#include <gtest/gtest.h>

#include <array>

namespace ovsdr::soft {
namespace {

TEST(ChooseWorker, SpreadsTheQueuesOfAPortFirst) {
    const std::array loads{WorkerLoad{.busy = 0, .queues = 0, .siblings = 1},
                           WorkerLoad{.busy = 1, .queues = 9, .siblings = 0}};
    EXPECT_EQ(choose_worker(loads), 1u);
}

TEST(ChooseWorker, TakesTheLeastLoadAndThenTheFewestQueues) {
    const std::array by_load{WorkerLoad{.busy = 0.9, .queues = 1}, WorkerLoad{.busy = 0.2, .queues = 5},
                             WorkerLoad{.busy = 0.6, .queues = 0}};
    EXPECT_EQ(choose_worker(by_load), 1u);
    const std::array by_count{WorkerLoad{.busy = 0.52, .queues = 3}, WorkerLoad{.busy = 0.54, .queues = 2}};
    EXPECT_EQ(choose_worker(by_count), 1u) << "two hundredths are chance";
    const std::array alike{WorkerLoad{}, WorkerLoad{}};
    EXPECT_EQ(choose_worker(alike), 0u);
}

/// Two workers; the queues' shares are what they would take on an idle one.
class RebalancerTest : public testing::Test {
protected:
    RebalancerTest() { queues_.reserve(8); }  // they are known by their place

    struct Queue {
        unsigned worker;
        double wanted;
    };

    /// One period: workers that are asked for more than all of their time give each queue its part.
    std::optional<QueueMove> period() {
        std::array<double, 2> wanted{};
        for (const Queue& queue : queues_) wanted[queue.worker] += queue.wanted;
        const std::array busy{std::min(1.0, wanted[0]), std::min(1.0, wanted[1])};
        std::vector<QueueShare> shares;
        for (const Queue& queue : queues_) {
            const double part = std::min(1.0, 1 / std::max(wanted[queue.worker], 1e-9));
            shares.push_back({.id = &queue, .worker = queue.worker, .share = queue.wanted * part});
        }
        const auto move = rebalancer_.consider(busy, shares);
        if (move) queues_[move->queue].worker = move->to;
        moves_ += move ? 1 : 0;
        return move;
    }
    void periods(unsigned number) {
        for (unsigned i = 0; i < number; ++i) (void)period();
    }

    Rebalancer rebalancer_;
    std::vector<Queue> queues_;
    unsigned moves_ = 0;
};

TEST_F(RebalancerTest, MovesAQueueOfASaturatedWorkerToAnIdleOneOnce) {
    queues_ = {{0, 0.6}, {0, 0.7}, {0, 0.2}};
    EXPECT_FALSE(period());
    EXPECT_FALSE(period()) << "not at the first sight";
    const auto move = period();
    ASSERT_TRUE(move);
    EXPECT_EQ(move->queue, 1u) << "0.47 of the worker's time: no other leaves loads that are more alike";
    EXPECT_EQ(move->to, 1u);
    periods(1000);
    EXPECT_EQ(moves_, 1u);
}

TEST_F(RebalancerTest, LeavesWorkersAloneThatHaveRoom) {
    queues_ = {{0, 0.5}, {0, 0.4}};
    periods(1000);
    EXPECT_EQ(moves_, 0u);
}

TEST_F(RebalancerTest, DoesNotMoveTheOnlyQueueThatCounts) {
    queues_ = {{0, 3.0}, {0, 0.02}, {1, 0.1}};
    periods(1000);
    EXPECT_EQ(moves_, 0u);
}

TEST_F(RebalancerTest, NeverMovesBackAndForthWhereAllAreSaturated) {
    queues_ = {{0, 1.0}, {0, 1.0}, {1, 1.0}};
    periods(1000);
    EXPECT_EQ(moves_, 0u);
    queues_ = {{0, 1.0}, {0, 1.0}, {0, 1.0}, {1, 0.0}};
    periods(1000);
    EXPECT_EQ(moves_, 1u) << "of 3 and 0 it makes 2 and 1, and 1 and 2 would be no better";
}

TEST_F(RebalancerTest, DoesNotFillAWorkerBeyondItsRoom) {
    queues_ = {{0, 0.8}, {0, 0.6}, {1, 0.5}};
    periods(1000);
    EXPECT_EQ(moves_, 0u) << "0.43 and 0.5 would be more than 0.85";
}

TEST_F(RebalancerTest, ABurstIsNoReason) {
    queues_ = {{0, 0.7}, {0, 0.2}};
    for (unsigned i = 0; i < 100; ++i) {
        queues_[1].wanted = i % 3 == 0 ? 0.2 : 0.6;
        (void)period();
    }
    EXPECT_EQ(moves_, 0u);
}

TEST_F(RebalancerTest, LetsLoadsSettleAndAMovedQueueStay) {
    queues_ = {{0, 0.6}, {0, 0.6}};
    periods(Rebalancer::saturated_for);
    ASSERT_EQ(moves_, 1u);
    const unsigned moved = queues_[0].worker == 1 ? 0 : 1;
    // Now the other worker is the one that has too much: of what was moved, and of what has come since.
    queues_.push_back({1, 0.6});
    queues_[1 - moved].wanted = 0.0;
    unsigned passed = 0;
    while (moves_ == 1 && passed < 100) {
        (void)period();
        ++passed;
    }
    EXPECT_GE(passed, Rebalancer::settling);
    EXPECT_EQ(queues_[moved].worker, 1u);
    EXPECT_EQ(queues_[2].worker, 0u) << "the new one goes";
}

TEST_F(RebalancerTest, AQueueThatWasMovedByHandStays) {
    queues_ = {{0, 0.7}, {0, 0.6}};
    rebalancer_.moved(&queues_[0]);
    rebalancer_.moved(&queues_[1]);
    periods(Rebalancer::staying - 1);
    EXPECT_EQ(moves_, 0u);
    periods(1);
    EXPECT_EQ(moves_, 1u);
}

}  // namespace
}  // namespace ovsdr::soft
