// The slow path's queue on verbs of the test's own: what it posts, what it gives, and what is left when a call fails.
#include <gtest/gtest.h>

#include <cerrno>
#include <vector>

#include "offload/slowpath/port_queue.hpp"
#include "tests/unit/offload/slowpath/fake_verbs.hpp"

namespace ovsdr::slowpath {
namespace {

using test::Bytes;
using test::FakeQueue;
using test::FakeVerbs;

class PortQueueTest : public ::testing::Test {
protected:
    void SetUp() override {
        FakeVerbs::reset();
        FakeVerbs::prepare_context(context_);
    }
    void TearDown() override {
        queue_.reset();
        EXPECT_EQ(FakeVerbs::alive(), 0);
    }
    PortQueueSpec spec() {
        return {.context = &context_.context, .pd = &pd_, .ib_port = 3, .receive_length = 64, .transmit_length = 64};
    }
    void open() {
        auto queue = PortQueue::create(spec());
        ASSERT_TRUE(queue) << queue.error().what;
        queue_ = std::move(*queue);
    }
    unsigned transmit(const std::vector<Bytes>& frames) {
        std::vector<std::span<const std::uint8_t>> views(frames.begin(), frames.end());
        return queue_->transmit(views);
    }
    static FakeQueue& fake() { return *FakeVerbs::queues().back(); }

    verbs_context context_{};
    ibv_pd pd_{&context_.context, 0};
    std::unique_ptr<PortQueue> queue_;
};

TEST_F(PortQueueTest, PostsEveryBufferAndTellsTheSqNumber) {
    open();
    EXPECT_EQ(fake().posted_receives(), 64U);
    EXPECT_EQ(queue_->sqn(), 0x1234U);
    EXPECT_EQ(queue_->qp(), &fake().qp);
}

TEST_F(PortQueueTest, GivesFramesWithTheirTagsAndPostsTheirBuffersAgain) {
    open();
    for (std::uint8_t i = 0; i < 40; ++i) fake().deliver(Bytes(60 + i, i), i);
    auto frames = queue_->receive(0);
    ASSERT_EQ(frames.size(), batch_length);
    EXPECT_EQ(frames[7].size, 67U);
    EXPECT_EQ(frames[7].tag, 7U);
    EXPECT_EQ(frames[7].data[66], 7);
    EXPECT_EQ(fake().posted_receives(), 24U);
    frames = queue_->receive(0);
    ASSERT_EQ(frames.size(), 8U);
    EXPECT_EQ(frames[7].tag, 39U);
    EXPECT_TRUE(queue_->receive(0).empty());
    EXPECT_EQ(fake().posted_receives(), 64U);
    EXPECT_EQ(queue_->stats().received, 40U);
}

TEST_F(PortQueueTest, GivesWhatCameBeforeTheFailureAndPostsNothingAfterIt) {
    open();
    fake().deliver(Bytes(60, 1));
    fake().deliver(Bytes(61, 2), 2, IBV_WC_LOC_LEN_ERR);
    const auto frames = queue_->receive(0);
    ASSERT_EQ(frames.size(), 1U);
    EXPECT_EQ(frames[0].size, 60U);
    EXPECT_TRUE(queue_->failed());
    EXPECT_EQ(queue_->failure(), "receiving: local length error");
    EXPECT_TRUE(queue_->receive(0).empty());
    EXPECT_TRUE(queue_->arm(0)) << "nothing comes any more: whoever waits for it must not spin";
    EXPECT_EQ(queue_->stats().receive_errors, 1U) << "buffers that were flushed are no frames";
    EXPECT_EQ(fake().posted_receives(), 0U);
    EXPECT_TRUE(fake().received.empty());
}

TEST_F(PortQueueTest, CountsAsSentWhatACompletionSaysIsSent) {
    open();
    fake().executes = false;
    EXPECT_EQ(transmit(std::vector<Bytes>(10, Bytes(60, 1))), 10U);
    EXPECT_EQ(transmit(std::vector<Bytes>(5, Bytes(60, 2))), 5U);
    EXPECT_EQ(queue_->stats().sent, 0U);
    fake().execute(10);
    EXPECT_EQ(queue_->stats().sent, 10U);
    EXPECT_EQ(queue_->sends_under_way(), 5U);
    fake().execute();
    EXPECT_EQ(queue_->stats().sent, 15U);
}

/// What goes before a refused request has no completion of its own. The next one is not the completion of an earlier
/// batch.
TEST_F(PortQueueTest, CreditsSendsWithoutACompletionToTheNextOneAfterThem) {
    open();
    fake().executes = false;
    EXPECT_EQ(transmit(std::vector<Bytes>(8, Bytes(60, 1))), 8U);
    fake().refuse_send_at = 4;
    EXPECT_EQ(transmit(std::vector<Bytes>(6, Bytes(60, 2))), 3U);
    EXPECT_EQ(queue_->stats().send_drops, 3U);
    EXPECT_EQ(transmit(std::vector<Bytes>(2, Bytes(60, 3))), 2U);
    fake().execute(8);
    EXPECT_EQ(queue_->stats().sent, 8U) << "the three that were refused a completion are still in the ring";
    EXPECT_EQ(queue_->sends_under_way(), 5U);
    fake().execute();
    EXPECT_EQ(queue_->stats().sent, 13U);
    EXPECT_EQ(queue_->sends_under_way(), 0U);
}

TEST_F(PortQueueTest, EmptiesARingOfBatchesThatWereAllTakenInPart) {
    open();
    for (int round = 0; round < 40; ++round) {
        fake().refuse_send_at = 4;
        EXPECT_EQ(transmit(std::vector<Bytes>(6, Bytes(60, 1))), 3U) << "round " << round;
    }
    EXPECT_EQ(fake().sent.size(), 120U);
}

TEST_F(PortQueueTest, CountsNoSendOfAFailedQueueAsSent) {
    open();
    fake().executes = false;
    EXPECT_EQ(transmit(std::vector<Bytes>(4, Bytes(60, 1))), 4U);
    EXPECT_EQ(transmit(std::vector<Bytes>(6, Bytes(60, 2))), 6U);
    fake().execute(6);   // the first batch, and two of the second
    fake().fail(IBV_WC_LOC_PROT_ERR);
    fake().execute();    // the third of the second fails, three are flushed
    const QueueStats stats = queue_->stats();
    EXPECT_EQ(stats.sent, 6U);
    EXPECT_EQ(stats.send_errors, 4U);
    EXPECT_EQ(queue_->sends_under_way(), 0U);
    EXPECT_TRUE(queue_->failed());
    EXPECT_EQ(queue_->failure(), "sending: local protection error");
    EXPECT_EQ(transmit(std::vector<Bytes>(3, Bytes(60, 3))), 0U);
    EXPECT_EQ(queue_->stats().send_errors, 7U);
    EXPECT_EQ(queue_->stats().sent, 6U);
    EXPECT_EQ(queue_->stats().send_drops, 0U);
    EXPECT_EQ(fake().sent.size(), 6U);
}

TEST_F(PortQueueTest, TellsTheCauseAndNotTheFlushThatFollows) {
    open();
    fake().fail(IBV_WC_LOC_PROT_ERR);
    EXPECT_EQ(transmit({Bytes(60, 1)}), 1U);
    EXPECT_TRUE(queue_->receive(0).empty());   // sees its own buffers flushed
    EXPECT_EQ(queue_->failure(), "sending: local protection error");
    EXPECT_EQ(queue_->stats().send_errors, 1U);
}

TEST_F(PortQueueTest, DoesNotSleepOverFramesThatCameBeforeItAsked) {
    open();
    EXPECT_TRUE(queue_->arm(0));
    EXPECT_TRUE(FakeVerbs::armed());
    fake().deliver(Bytes(60, 1), 1);
    EXPECT_FALSE(queue_->arm(0));
    EXPECT_FALSE(queue_->arm(0)) << "nobody has seen the frame yet";
    EXPECT_EQ(queue_->receive(0).size(), 1U);
    EXPECT_TRUE(queue_->receive(0).empty());
    EXPECT_TRUE(queue_->arm(0));
}

TEST_F(PortQueueTest, CopiesWhatItSends) {
    open();
    EXPECT_EQ(transmit({Bytes(60, 1), Bytes(1514, 2)}), 2U);
    ASSERT_EQ(fake().sent.size(), 2U);
    EXPECT_EQ(fake().sent[1], Bytes(1514, 2));
    EXPECT_EQ(queue_->stats().sent, 2U);
}

TEST_F(PortQueueTest, DropsWhatFindsTheRingFullAndGoesOnLater) {
    open();
    fake().executes = false;
    EXPECT_EQ(transmit(std::vector<Bytes>(100, Bytes(60, 1))), 64U);
    EXPECT_EQ(queue_->stats().send_drops, 36U);
    EXPECT_EQ(transmit({Bytes(60, 1)}), 0U);
    EXPECT_EQ(queue_->stats().sent, 0U) << "not yet";
    EXPECT_EQ(queue_->sends_under_way(), 64U);
    fake().executes = true;
    fake().execute();
    EXPECT_EQ(queue_->sends_under_way(), 0U);
    EXPECT_EQ(transmit(std::vector<Bytes>(64, Bytes(60, 2))), 64U);
    for (int i = 0; i < 10; ++i) EXPECT_EQ(transmit(std::vector<Bytes>(33, Bytes(60, 3))), 33U);
}

TEST_F(PortQueueTest, DropsAFrameThatIsTooLongAndOnlyThat) {
    open();
    EXPECT_EQ(transmit({Bytes(60, 1), Bytes(3000, 2), Bytes(61, 3)}), 2U);
    ASSERT_EQ(fake().sent.size(), 2U);
    EXPECT_EQ(fake().sent[1], Bytes(61, 3));
    EXPECT_EQ(queue_->stats().send_drops, 1U);
}

TEST_F(PortQueueTest, RefusesIbPortsThatVerbsCannotName) {
    for (const std::uint32_t port : {0U, 256U}) {
        PortQueueSpec bad = spec();
        bad.ib_port = port;
        const auto queue = PortQueue::create(bad);
        ASSERT_FALSE(queue);
        EXPECT_EQ(queue.error().code, EINVAL);
    }
}

TEST_F(PortQueueTest, RefusesSizesThatMakeNoRing) {
    for (const auto& [receive, transmit, frame] : {std::tuple{100U, 64U, 2048U}, {64U, 32U, 2048U}, {64U, 64U, 10U}}) {
        PortQueueSpec bad = spec();
        bad.receive_length = receive;
        bad.transmit_length = transmit;
        bad.frame_size = frame;
        const auto queue = PortQueue::create(bad);
        ASSERT_FALSE(queue);
        EXPECT_EQ(queue.error().code, EINVAL);
    }
}

TEST_F(PortQueueTest, LeavesNothingBehindWhicheverCallFails) {
    for (unsigned n = 1;; ++n) {
        FakeVerbs::fail_call(n);
        auto queue = PortQueue::create(spec());
        if (queue) {
            EXPECT_GT(n, 8U);
            break;
        }
        EXPECT_EQ(queue.error().code, ENOMEM) << queue.error().what;
        EXPECT_EQ(FakeVerbs::alive(), 0) << queue.error().what;
    }
    FakeVerbs::fail_call(0);
}

}  // namespace
}  // namespace ovsdr::slowpath
