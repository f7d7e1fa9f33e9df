#include "datapath/rdma/roce/shared_receive_queue.hpp"

#include <gtest/gtest.h>

#include "../fake_device.hpp"
#include "datapath/rdma/completion/completion_queue.hpp"

namespace ovsdr::soft::roce {
namespace {

struct SharedReceiveQueueTest : testing::Test {
    soft::test::FakeDevice device;
    DeviceState state{device, soft::test::packet_pool()};
    unsigned limits = 0;
    SharedReceiveQueue queue{{.state = state,
                              .domain = this,
                              .number = 7,
                              .max_requests = 4,
                              .max_sges = 2,
                              .limit_reached = [this] { ++limits; }}};
    SharedReceiveQueue::Request request{};

    int post(std::uint64_t wr_id, int pieces = 1) {
        ibv_sge sges[3] = {{wr_id, 1, 1}, {wr_id, 2, 2}, {wr_id, 3, 3}};
        ibv_recv_wr work{wr_id, nullptr, sges, pieces}, *bad = nullptr;
        const int error = queue.post(&work, &bad);
        EXPECT_EQ(bad, error ? &work : nullptr);
        return error;
    }
};

TEST_F(SharedReceiveQueueTest, GivesRequestsInTheOrderOfPosting) {
    EXPECT_FALSE(queue.take(request));
    ASSERT_EQ(post(1), 0);
    ASSERT_EQ(post(2, 2), 0);
    ASSERT_TRUE(queue.take(request));
    EXPECT_EQ(request.wr_id, 1U);
    EXPECT_EQ(request.length, 1U);
    ASSERT_TRUE(queue.take(request));
    EXPECT_EQ(request.wr_id, 2U);
    ASSERT_EQ(request.length, 2U);
    EXPECT_EQ(request.sges[1].length, 2U);
    EXPECT_FALSE(queue.take(request));
}

TEST_F(SharedReceiveQueueTest, MatchesTagsWhereItHasAny) {
    EXPECT_EQ(queue.tags(), nullptr);
    CompletionQueue told{8, false, {}};
    const SharedReceiveQueue one{
        {.state = state, .domain = this, .number = 8, .max_requests = 4, .max_sges = 1, .completions = &told,
         .max_tags = 1, .max_ops = 1}};
    EXPECT_NE(one.tags(), nullptr);
}

TEST_F(SharedReceiveQueueTest, SlotsComeBackInAnyOrder) {
    for (std::uint64_t i = 0; i < 4; ++i) ASSERT_EQ(post(i), 0);
    EXPECT_EQ(post(9), ENOMEM);
    SharedReceiveQueue::Request first, second;
    ASSERT_TRUE(queue.take(first) && queue.take(second));
    EXPECT_EQ(post(9), ENOMEM);  // taken is not done
    queue.give_back(second.slot);
    EXPECT_EQ(post(4), 0);
    EXPECT_EQ(post(9), ENOMEM);
    queue.give_back(first.slot);
    EXPECT_EQ(post(5), 0);
    for (std::uint64_t wr_id : {2, 3, 4, 5}) {
        ASSERT_TRUE(queue.take(request));
        EXPECT_EQ(request.wr_id, wr_id);
    }
}

TEST_F(SharedReceiveQueueTest, RefusesTooManyPieces) {
    EXPECT_EQ(post(1, 3), EINVAL);
    EXPECT_EQ(post(1, -1), EINVAL);
    EXPECT_FALSE(queue.take(request));
}

TEST_F(SharedReceiveQueueTest, TheLimitFiresOnceWhenFewerAreLeft) {
    for (std::uint64_t i = 0; i < 4; ++i) ASSERT_EQ(post(i), 0);
    ibv_srq_attr attr{.max_wr = 0, .max_sge = 0, .srq_limit = 3};
    ASSERT_EQ(queue.modify(attr, IBV_SRQ_LIMIT), 0);
    ASSERT_TRUE(queue.take(request));
    EXPECT_EQ(limits, 0U);
    ASSERT_TRUE(queue.take(request));
    EXPECT_EQ(limits, 1U);
    ASSERT_TRUE(queue.take(request));
    EXPECT_EQ(limits, 1U);
    queue.query(attr);
    EXPECT_EQ(attr.srq_limit, 0U);
    EXPECT_EQ(attr.max_wr, 4U);
}

TEST_F(SharedReceiveQueueTest, RefusesLimitsPastItsSizeAndResizing) {
    ibv_srq_attr attr{.max_wr = 8, .max_sge = 0, .srq_limit = 5};
    EXPECT_EQ(queue.modify(attr, IBV_SRQ_LIMIT), EINVAL);
    EXPECT_EQ(queue.modify(attr, IBV_SRQ_MAX_WR), EINVAL);
    EXPECT_EQ(queue.modify(attr, 4), EINVAL);
    EXPECT_EQ(queue.modify(attr, 0), 0) << "nothing is asked for";
    queue.query(attr);
    EXPECT_EQ(attr.srq_limit, 0U);
    EXPECT_EQ(attr.max_sge, 2U);
    attr.srq_limit = 4;
    EXPECT_EQ(queue.modify(attr, IBV_SRQ_LIMIT), 0);
}

TEST_F(SharedReceiveQueueTest, NobodyNeedsToHearOfTheLimit) {
    SharedReceiveQueue quiet{{.state = state, .domain = this, .number = 8, .max_requests = 4, .max_sges = 1}};
    ibv_sge piece{1, 2, 3};
    ibv_recv_wr second{2, nullptr, &piece, 1}, first{1, &second, &piece, 0}, *bad = nullptr;
    ASSERT_EQ(quiet.post(&first, &bad), 0);
    ibv_srq_attr attr{.max_wr = 0, .max_sge = 0, .srq_limit = 2};
    ASSERT_EQ(quiet.modify(attr, IBV_SRQ_LIMIT), 0);
    ASSERT_TRUE(quiet.take(request));
    EXPECT_EQ(request.length, 0U);
    quiet.query(attr);
    EXPECT_EQ(attr.srq_limit, 0U);
    EXPECT_FALSE(quiet.held());
    quiet.hold();
    EXPECT_TRUE(quiet.held());
    quiet.release();
    EXPECT_FALSE(quiet.held());
}

}  // namespace
}  // namespace ovsdr::soft::roce
