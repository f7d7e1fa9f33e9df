// Completion channels whose owner may also look at the ports, on a fake device: what blocks, who gets an event, when a
// completion queue looks.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <array>
#include <atomic>
#include <chrono>
#include <thread>

#include "tests/unit/datapath/rdma/fake_device.hpp"

namespace ovsdr::soft::test {
namespace {

using namespace std::chrono_literals;

/// A completion queue with a channel of its own.
struct QueueWithChannel {
    explicit QueueWithChannel(ibv_context* context)
        : channel(ibv_create_comp_channel(context)), cq(ibv_create_cq(context, 15, this, channel, 0)) {}
    ~QueueWithChannel() {
        EXPECT_EQ(ibv_destroy_cq(cq), 0);
        EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
    }
    QueueWithChannel(const QueueWithChannel&) = delete;
    QueueWithChannel& operator=(const QueueWithChannel&) = delete;

    void set_flags(int flags) const { EXPECT_EQ(fcntl(channel->fd, F_SETFL, flags), 0); }
    /// What a device does.
    void complete(std::uint64_t id) const {
        Completion completion{};
        completion.wr_id = id;
        completion.status = IBV_WC_SUCCESS;
        Cq::of(cq).queue->add({&completion, 1});
    }
    [[nodiscard]] int request() const { return ibv_req_notify_cq(cq, 0); }
    /// The next completion's wr_id, 0 where there is none.
    [[nodiscard]] std::uint64_t take() const {
        ibv_wc done{};
        return ibv_poll_cq(cq, 1, &done) == 1 ? done.wr_id : 0;
    }
    [[nodiscard]] bool readable() const {
        pollfd polled{.fd = channel->fd, .events = POLLIN, .revents = 0};
        return poll(&polled, 1, 0) == 1;
    }
    /// Takes the event; 0 or an errno.
    [[nodiscard]] int get_event() const {
        ibv_cq* told = nullptr;
        void* owner = nullptr;
        if (ibv_get_cq_event(channel, &told, &owner) != 0) return errno;
        EXPECT_EQ(told, cq);
        EXPECT_EQ(owner, this);
        ibv_ack_cq_events(told, 1);
        return 0;
    }

    ibv_comp_channel* const channel;
    ibv_cq* const cq;
};

class CompletionChannelTest : public ::testing::Test {
protected:
    /// That get_event() waits until there is a completion.
    void expect_to_wait(const QueueWithChannel& queue, std::uint64_t id) {
        ASSERT_EQ(queue.request(), 0);
        std::atomic<int> result{-1};
        std::thread waiting([&] { result = queue.get_event(); });
        std::this_thread::sleep_for(50ms);
        EXPECT_EQ(result, -1);
        queue.complete(id);
        waiting.join();
        EXPECT_EQ(result, 0);
        EXPECT_EQ(queue.take(), id);
    }
    /// The ports have something until `finds` has brought it; counts the looks.
    void on_look(std::function<void()> finds) {
        open.device.on_look_out = [this, finds = std::move(finds)] {
            if (++looks != 1) return false;
            finds();
            return true;
        };
    }

    OpenDevice open;
    unsigned looks = 0;
};

TEST_F(CompletionChannelTest, ADescriptorThatBlocksWaitsForAnEvent) {
    const QueueWithChannel queue(open.context);
    expect_to_wait(queue, 1);
    expect_to_wait(queue, 2);
    ASSERT_EQ(queue.request(), 0);
    queue.complete(3);
    EXPECT_EQ(queue.get_event(), 0) << "that came before";
}

TEST_F(CompletionChannelTest, WhereTheFlagSaysSoNobodyWaits) {
    const QueueWithChannel queue(open.context);
    EXPECT_EQ(fcntl(queue.channel->fd, F_GETFL) & O_NONBLOCK, 0);
    for (std::uint64_t round = 1; round <= 3; ++round) {
        queue.set_flags(O_NONBLOCK);
        EXPECT_EQ(queue.get_event(), EAGAIN);
        ASSERT_EQ(queue.request(), 0);
        EXPECT_EQ(queue.get_event(), EAGAIN);
        EXPECT_FALSE(queue.readable());
        queue.complete(10 * round);
        EXPECT_TRUE(queue.readable());
        EXPECT_EQ(queue.get_event(), 0);
        EXPECT_FALSE(queue.readable());
        EXPECT_EQ(queue.get_event(), EAGAIN);
        EXPECT_EQ(queue.take(), 10 * round);
        queue.set_flags(0);
        expect_to_wait(queue, 10 * round + 1);
    }
}

TEST_F(CompletionChannelTest, TheDeviceIsToldWhoIsWokenBeforeTheEvent) {
    const QueueWithChannel queue(open.context);
    std::vector<std::shared_ptr<Lookout>> woken;
    open.device.on_woke = [&](const std::shared_ptr<Lookout>& lookout) {
        EXPECT_FALSE(queue.readable());
        woken.push_back(lookout);
    };
    queue.complete(1);
    EXPECT_TRUE(woken.empty()) << "nobody has asked";
    EXPECT_EQ(queue.take(), 1U);
    ASSERT_EQ(queue.request(), 0);
    queue.complete(2);
    queue.complete(3);
    ASSERT_EQ(woken.size(), 1U);
    EXPECT_EQ(woken[0], Channel::of(queue.channel).lookout);
    EXPECT_EQ(woken[0]->waiter(), Lookout::this_thread());
    EXPECT_EQ(queue.get_event(), 0);
    EXPECT_EQ(queue.take(), 2U);
    EXPECT_EQ(queue.take(), 3U);
}

TEST_F(CompletionChannelTest, OnlyWhoHasAskedToBeWokenLooksAtThePorts) {
    const QueueWithChannel queue(open.context);
    on_look([&] { queue.complete(1); });
    for (unsigned i = 0; i < 5; ++i) EXPECT_EQ(queue.take(), 0U);
    EXPECT_EQ(looks, 0U);
    ASSERT_EQ(queue.request(), 0);
    EXPECT_EQ(queue.take(), 0U) << "for what came before the request";
    EXPECT_EQ(looks, 0U);
    EXPECT_EQ(queue.take(), 1U);
    EXPECT_EQ(looks, 1U);
    EXPECT_EQ(queue.take(), 0U);
    EXPECT_EQ(looks, 2U);
}

TEST_F(CompletionChannelTest, WhatItsOwnLookHasFoundGivesNoEventAndTheNextOneDoes) {
    const QueueWithChannel queue(open.context);
    queue.set_flags(O_NONBLOCK);
    on_look([&] { queue.complete(1); });
    ASSERT_EQ(queue.request(), 0);
    EXPECT_EQ(queue.take(), 0U);
    EXPECT_EQ(queue.take(), 1U);
    EXPECT_EQ(queue.get_event(), EAGAIN);
    queue.complete(2);
    EXPECT_EQ(queue.get_event(), 0) << "the request holds";
    EXPECT_EQ(queue.take(), 2U);
}

TEST_F(CompletionChannelTest, WhatAnotherQueuesLookHasFoundGivesItsOwnEvent) {
    const QueueWithChannel looking(open.context), other(open.context);
    looking.set_flags(O_NONBLOCK);
    other.set_flags(O_NONBLOCK);
    on_look([&] {
        other.complete(1);
        looking.complete(2);
        other.complete(3);
    });
    ASSERT_EQ(looking.request(), 0);
    ASSERT_EQ(other.request(), 0);
    EXPECT_EQ(looking.take(), 0U);
    EXPECT_EQ(looking.take(), 2U);
    EXPECT_EQ(looking.get_event(), EAGAIN);
    EXPECT_EQ(other.get_event(), 0);
    EXPECT_EQ(other.get_event(), EAGAIN);
    EXPECT_EQ(other.take(), 1U);
    EXPECT_EQ(other.take(), 3U);
}

TEST_F(CompletionChannelTest, ALookThatFindsOthersCompletionsOnlyLeavesTheQueueEmpty) {
    const QueueWithChannel looking(open.context), other(open.context);
    on_look([&] { other.complete(1); });
    ASSERT_EQ(looking.request(), 0);
    ASSERT_EQ(other.request(), 0);
    EXPECT_EQ(looking.take(), 0U);
    EXPECT_EQ(looking.take(), 0U);
    EXPECT_EQ(looks, 1U);
    EXPECT_FALSE(looking.readable());
    EXPECT_EQ(other.get_event(), 0);
    EXPECT_EQ(other.take(), 1U);
}

TEST_F(CompletionChannelTest, AnExtendedQueueLooksToo) {
    ibv_comp_channel* const channel = ibv_create_comp_channel(open.context);
    ibv_cq_init_attr_ex attributes{};
    attributes.cqe = 15;
    attributes.channel = channel;
    ibv_cq_ex* const cq = ibv_create_cq_ex(open.context, &attributes);
    ASSERT_NE(cq, nullptr);
    on_look([&] {
        Completion completion{};
        completion.wr_id = 7;
        Cq::of(cq).queue->add({&completion, 1});
    });
    ibv_poll_cq_attr poll{};
    EXPECT_EQ(ibv_start_poll(cq, &poll), ENOENT);
    EXPECT_EQ(looks, 0U);
    ASSERT_EQ(ibv_req_notify_cq(ibv_cq_ex_to_cq(cq), 0), 0);
    EXPECT_EQ(ibv_start_poll(cq, &poll), ENOENT);
    ASSERT_EQ(ibv_start_poll(cq, &poll), 0);
    EXPECT_EQ(cq->wr_id, 7U);
    ibv_end_poll(cq);
    EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
    EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
}

}  // namespace
}  // namespace ovsdr::soft::test
