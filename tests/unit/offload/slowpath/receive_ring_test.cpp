// How a receive ring takes the wake-ups of its channel, on verbs of the test's own.
#include "offload/slowpath/receive_ring.hpp"

#include <gtest/gtest.h>

#include <optional>

#include "tests/unit/offload/slowpath/fake_verbs.hpp"

namespace ovsdr::slowpath {
namespace {

using test::Bytes;
using test::FakeVerbs;

constexpr unsigned most_calls = 4;   ///< until a wake-up without frames is taken

class ReceiveRingTest : public ::testing::Test {
protected:
    void SetUp() override {
        FakeVerbs::reset();
        FakeVerbs::prepare_context(context_);
        const PortQueueSpec spec{
            .context = &context_.context, .pd = &pd_, .ib_port = 3, .receive_length = 64, .transmit_length = 64};
        auto ring = ReceiveRing::create(spec, failure_);
        ASSERT_TRUE(ring) << ring.error().what;
        ring_.emplace(std::move(*ring));
        ASSERT_TRUE(ring_->make_wq(spec));
        ASSERT_TRUE(ring_->start(nullptr));
    }
    void TearDown() override {
        ring_.reset();
        EXPECT_EQ(FakeVerbs::alive(), 0);
    }
    /// A frame comes, and is received.
    void receive_one() {
        ASSERT_TRUE(FakeVerbs::queues().back()->deliver(Bytes(60, 1)));
        ASSERT_EQ(ring_->receive().size(), 1U);
    }
    ibv_cq* other() { return &other_; }

    verbs_context context_{};
    ibv_pd pd_{&context_.context, 0};
    ibv_cq other_{};
    QueueFailure failure_;
    std::optional<ReceiveRing> ring_;
};

TEST_F(ReceiveRingTest, TheNextCallTakesAWakeUpBehindAFrame) {
    for (unsigned round = 1; round <= 3; ++round) {
        FakeVerbs::wake(ring_->cq());
        receive_one();
        EXPECT_FALSE(ring_->drain_wake_ups(other()));
        EXPECT_EQ(FakeVerbs::wake_ups(), 0U);
        EXPECT_EQ(FakeVerbs::acknowledged(ring_->cq()), round);
    }
    EXPECT_EQ(FakeVerbs::looks_for_wake_ups(), 3U) << "a request gives one: behind it there is none to look for";
}

/// It has come although the frames were found before: late, or behind a send that has failed.
TEST_F(ReceiveRingTest, AWakeUpWithoutFramesIsTakenAfterAFewCalls) {
    for (unsigned round = 1; round <= 2; ++round) {
        FakeVerbs::wake(ring_->cq());
        for (unsigned call = 1; call < most_calls; ++call) {
            EXPECT_FALSE(ring_->drain_wake_ups(other()));
            EXPECT_EQ(FakeVerbs::wake_ups(), 1U) << "each look is a system call";
        }
        EXPECT_FALSE(ring_->drain_wake_ups(other()));
        EXPECT_EQ(FakeVerbs::wake_ups(), 0U);
        EXPECT_EQ(FakeVerbs::acknowledged(ring_->cq()), round);
    }
}

TEST_F(ReceiveRingTest, WithoutFramesFewCallsLook) {
    for (unsigned call = 0; call < 10 * most_calls; ++call) EXPECT_FALSE(ring_->drain_wake_ups(other()));
    EXPECT_EQ(FakeVerbs::looks_for_wake_ups(), 10U);
}

TEST_F(ReceiveRingTest, FramesThatAskingFoundCountToo) {
    FakeVerbs::wake(ring_->cq());
    ASSERT_TRUE(FakeVerbs::queues().back()->deliver(Bytes(60, 1)));
    EXPECT_FALSE(ring_->arm());
    EXPECT_FALSE(ring_->drain_wake_ups(other()));
    EXPECT_EQ(FakeVerbs::wake_ups(), 0U);
    EXPECT_EQ(ring_->receive().size(), 1U);
}

TEST_F(ReceiveRingTest, ItTellsOfAnotherQueuesWakeUpInFrontOfItsOwn) {
    FakeVerbs::wake(other());
    FakeVerbs::wake(other());
    FakeVerbs::wake(ring_->cq());
    FakeVerbs::wake(other());
    receive_one();
    EXPECT_TRUE(ring_->drain_wake_ups(other()));
    EXPECT_EQ(FakeVerbs::acknowledged(other()), 2U);
    EXPECT_EQ(FakeVerbs::acknowledged(ring_->cq()), 1U);
    EXPECT_EQ(FakeVerbs::wake_ups(), 1U) << "what lies behind it is the next call's";
    receive_one();
    EXPECT_TRUE(ring_->drain_wake_ups(other()));
    EXPECT_EQ(FakeVerbs::acknowledged(other()), 3U);
}

}  // namespace
}  // namespace ovsdr::slowpath
