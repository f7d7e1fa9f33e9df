#include "datapath/rdma/completion/completion_queue.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cerrno>

namespace ovsdr::soft {
namespace {

class CompletionQueueTest : public ::testing::Test {
protected:
    void add(std::uint64_t wr_id, std::uint32_t qp_num = 1, bool solicited = false) {
        const Completion completion{.wr_id = wr_id,
                                    .status = IBV_WC_SUCCESS,
                                    .opcode = IBV_WC_RECV,
                                    .vendor_err = 0,
                                    .byte_len = 0,
                                    .qp_num = qp_num,
                                    .wc_flags = 0,
                                    .flow_tag = 0,
                                    .solicited = solicited,
                                    .timestamp = 0,
                                    .freed = nullptr,
                                    .freed_up_to = 0};
        queue.add({&completion, 1});
    }
    std::vector<std::uint64_t> take(std::size_t length = 16) {
        std::array<Completion, 16> taken;
        std::vector<std::uint64_t> ids;
        const int got = queue.take({taken.data(), length});
        for (int i = 0; i < got; ++i) ids.push_back(taken[static_cast<std::size_t>(i)].wr_id);
        return ids;
    }

    int notified = 0;
    int overruns = 0;
    CompletionQueue queue{4, false, {[this] { ++notified; }, [this] { ++overruns; }}};
};

using Ids = std::vector<std::uint64_t>;

TEST_F(CompletionQueueTest, GivesCompletionsInOrder) {
    for (std::uint64_t id = 1; id <= 3; ++id) add(id);
    EXPECT_EQ(take(2), (Ids{1, 2}));
    EXPECT_EQ(take(), Ids{3});
    EXPECT_EQ(take(), Ids{});
}

TEST_F(CompletionQueueTest, AnOverrunIsReportedOnceAndLosesOnlyWhatFollows) {
    for (std::uint64_t id = 1; id <= 6; ++id) add(id);
    EXPECT_EQ(overruns, 1);
    EXPECT_EQ(take(), (Ids{1, 2, 3, 4}));
    add(7);
    EXPECT_EQ(take(), Ids{}) << "a queue that overran stays broken";
    EXPECT_EQ(overruns, 1);
}

TEST_F(CompletionQueueTest, AQueueThatIgnoresOverrunsLosesTheOldest) {
    CompletionQueue ignoring(4, false, {[] {}, [this] { ++overruns; }}, {}, true);
    std::array<Completion, 8> some{};
    for (std::uint64_t id = 0; id < some.size(); ++id) some[id].wr_id = id;
    ignoring.add({some.data(), 6});
    EXPECT_EQ(overruns, 0);
    std::array<Completion, 8> taken;
    ASSERT_EQ(ignoring.take(taken), 4);
    for (std::uint64_t id = 0; id < 4; ++id) EXPECT_EQ(taken[id].wr_id, id + 2);
    ignoring.add({some.data(), 1});
    EXPECT_EQ(ignoring.take(taken), 1) << "it works on";
}

TEST_F(CompletionQueueTest, NotifiesOncePerArming) {
    add(1);
    EXPECT_EQ(notified, 0);
    queue.arm(false);
    EXPECT_EQ(notified, 0) << "what is there already gives no event";
    add(2);
    add(3);
    EXPECT_EQ(notified, 1);
}

TEST_F(CompletionQueueTest, SolicitedArmingWaitsForASolicitedCompletion) {
    queue.arm(true);
    add(1);
    EXPECT_EQ(notified, 0);
    add(2, 1, true);
    EXPECT_EQ(notified, 1);
}

TEST_F(CompletionQueueTest, ArmingForAnyIsNotTakenBackBySolicited) {
    queue.arm(false);
    queue.arm(true);
    add(1);
    EXPECT_EQ(notified, 1);
}

TEST_F(CompletionQueueTest, TakingGivesTheWorkQueueItsSlotsBack) {
    std::atomic<std::uint64_t> freed{0};
    const Completion completion{.wr_id = 1,
                                .status = IBV_WC_SUCCESS,
                                .opcode = IBV_WC_SEND,
                                .vendor_err = 0,
                                .byte_len = 0,
                                .qp_num = 1,
                                .wc_flags = 0,
                                .flow_tag = 0,
                                .solicited = false,
                                .timestamp = 0,
                                .freed = &freed,
                                .freed_up_to = 5};
    queue.add({&completion, 1});
    EXPECT_EQ(freed, 0u);
    EXPECT_EQ(take(), Ids{1});
    EXPECT_EQ(freed, 5u);
}

TEST_F(CompletionQueueTest, ForgetsOneQueuePairOnly) {
    add(1, 7);
    add(2, 8);
    add(3, 7);
    queue.forget(7);
    EXPECT_EQ(take(), Ids{2});
}

TEST_F(CompletionQueueTest, ResizeKeepsWhatWaitsOrRefuses) {
    for (std::uint64_t id = 1; id <= 4; ++id) add(id);
    EXPECT_EQ(queue.resize(2), EINVAL);
    EXPECT_EQ(queue.resize(8), 0);
    add(5);
    EXPECT_EQ(take(), (Ids{1, 2, 3, 4, 5}));
    EXPECT_EQ(overruns, 0);
}

}  // namespace
}  // namespace ovsdr::soft
