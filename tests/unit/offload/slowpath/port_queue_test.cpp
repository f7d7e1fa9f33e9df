// The slow path's queue on verbs of the test's own: what it posts, what it gives, and what is left when a call fails.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <deque>
#include <vector>

#include "offload/slowpath/port_queue.hpp"

namespace ovsdr::slowpath {
namespace {

using Bytes = std::vector<std::uint8_t>;

/// A device with one queue pair. The test plays the network: deliver() and the frames in `sent`.
struct FakeVerbs {
    verbs_context context{};
    ibv_pd pd{&context.context, 0};
    ibv_comp_channel channel{};
    ibv_cq_ex receive_cq{};
    ibv_cq send_cq{};
    ibv_qp qp{};
    ibv_mr region{};
    int alive = 0;
    unsigned calls = 0, fail_at = 0;

    struct Completion {
        std::uint64_t id;
        ibv_wc_status status;
        std::uint32_t size, tag;
    };
    std::deque<ibv_sge> receives;
    std::deque<std::uint64_t> receive_ids;
    std::deque<Completion> completions;
    std::vector<Bytes> sent;
    std::deque<ibv_wc> send_completions;
    bool complete_sends = true, armed = false;
    unsigned acknowledged = 0;

    bool fails() {
        if (++calls != fail_at) return false;
        errno = ENOMEM;
        return true;
    }
    template <typename T>
    T* make(T& object) {
        if (fails()) return nullptr;
        ++alive;
        return &object;
    }

    void deliver(const Bytes& bytes, std::uint32_t tag, ibv_wc_status status = IBV_WC_SUCCESS) {
        ASSERT_FALSE(receives.empty()) << "no buffer posted";
        std::memcpy(reinterpret_cast<void*>(receives.front().addr), bytes.data(), bytes.size());
        completions.push_back({receive_ids.front(), status, static_cast<std::uint32_t>(bytes.size()), tag});
        receives.pop_front();
        receive_ids.pop_front();
    }
};

FakeVerbs* fake = nullptr;

int start_poll(ibv_cq_ex* cq, ibv_poll_cq_attr*) {
    if (fake->completions.empty()) return ENOENT;
    cq->wr_id = fake->completions.front().id;
    cq->status = fake->completions.front().status;
    return 0;
}
int next_poll(ibv_cq_ex* cq) {
    fake->completions.pop_front();
    return start_poll(cq, nullptr);
}
void end_poll(ibv_cq_ex*) {
    if (!fake->completions.empty()) fake->completions.pop_front();
}

/// end_poll() takes the one that was looked at; next_poll() that found none leaves nothing to take.
void install(FakeVerbs& verbs) {
    fake = &verbs;
    verbs.context.context.abi_compat = __VERBS_ABI_IS_EXTENDED;
    verbs.context.sz = sizeof verbs.context;
    verbs.context.create_cq_ex = [](ibv_context*, ibv_cq_init_attr_ex* attributes) {
        EXPECT_NE(attributes->wc_flags & IBV_WC_EX_WITH_FLOW_TAG, 0U);
        return fake->make(fake->receive_cq);
    };
    verbs.receive_cq.context = verbs.send_cq.context = verbs.qp.context = &verbs.context.context;
    verbs.receive_cq.start_poll = start_poll;
    verbs.receive_cq.next_poll = next_poll;
    verbs.receive_cq.end_poll = end_poll;
    verbs.receive_cq.read_byte_len = [](ibv_cq_ex*) { return fake->completions.front().size; };
    verbs.receive_cq.read_flow_tag = [](ibv_cq_ex*) { return fake->completions.front().tag; };
    ibv_context_ops& ops = verbs.context.context.ops;
    ops.req_notify_cq = [](ibv_cq*, int) {
        fake->armed = true;
        return 0;
    };
    ops.post_recv = [](ibv_qp*, ibv_recv_wr* request, ibv_recv_wr** refused) {
        if (fake->fails()) {
            *refused = request;
            return ENOMEM;
        }
        for (; request != nullptr; request = request->next) {
            fake->receives.push_back(*request->sg_list);
            fake->receive_ids.push_back(request->wr_id);
        }
        return 0;
    };
    ops.post_send = [](ibv_qp*, ibv_send_wr* request, ibv_send_wr**) {
        for (; request != nullptr; request = request->next) {
            const auto* data = reinterpret_cast<const std::uint8_t*>(request->sg_list->addr);
            fake->sent.emplace_back(data, data + request->sg_list->length);
            if (request->send_flags & IBV_SEND_SIGNALED) {
                ibv_wc completion{};
                completion.wr_id = request->wr_id;
                fake->send_completions.push_back(completion);
            }
        }
        return 0;
    };
    ops.poll_cq = [](ibv_cq*, int length, ibv_wc* out) {
        int taken = 0;
        while (fake->complete_sends && taken < length && !fake->send_completions.empty()) {
            out[taken++] = fake->send_completions.front();
            fake->send_completions.pop_front();
        }
        return taken;
    };
}

class PortQueueTest : public ::testing::Test {
protected:
    void SetUp() override { install(verbs_); }
    void TearDown() override {
        queue_.reset();
        EXPECT_EQ(verbs_.alive, 0);
    }
    PortQueueSpec spec() { return {.context = &verbs_.context.context, .pd = &verbs_.pd, .receive_length = 64, .transmit_length = 64}; }
    void open() {
        auto queue = PortQueue::create(spec());
        ASSERT_TRUE(queue) << queue.error().what;
        queue_ = std::move(*queue);
    }
    unsigned transmit(const std::vector<Bytes>& frames) {
        std::vector<std::span<const std::uint8_t>> views(frames.begin(), frames.end());
        return queue_->transmit(views);
    }

    FakeVerbs verbs_;
    std::unique_ptr<PortQueue> queue_;
};

TEST_F(PortQueueTest, PostsEveryBufferAndTellsTheSqNumber) {
    open();
    EXPECT_EQ(verbs_.receives.size(), 64U);
    EXPECT_EQ(queue_->sqn(), 0x1234U);
    EXPECT_EQ(queue_->qp(), &verbs_.qp);
}

TEST_F(PortQueueTest, GivesFramesWithTheirTagsAndPostsTheirBuffersAgain) {
    open();
    for (std::uint8_t i = 0; i < 40; ++i) verbs_.deliver(Bytes(60 + i, i), i);
    auto frames = queue_->receive();
    ASSERT_EQ(frames.size(), batch_length);
    EXPECT_EQ(frames[7].size, 67U);
    EXPECT_EQ(frames[7].tag, 7U);
    EXPECT_EQ(frames[7].data[66], 7);
    EXPECT_EQ(verbs_.receives.size(), 24U);
    frames = queue_->receive();
    ASSERT_EQ(frames.size(), 8U);
    EXPECT_EQ(frames[7].tag, 39U);
    EXPECT_TRUE(queue_->receive().empty());
    EXPECT_EQ(verbs_.receives.size(), 64U);
    EXPECT_EQ(queue_->stats().received, 40U);
}

TEST_F(PortQueueTest, CountsAFailedReceiveAndKeepsItsBuffer) {
    open();
    verbs_.deliver(Bytes(60, 1), 1, IBV_WC_LOC_LEN_ERR);
    verbs_.deliver(Bytes(61, 2), 2);
    const auto frames = queue_->receive();
    ASSERT_EQ(frames.size(), 1U);
    EXPECT_EQ(frames[0].size, 61U);
    EXPECT_EQ(queue_->stats().receive_errors, 1U);
    EXPECT_TRUE(queue_->receive().empty());
    EXPECT_EQ(verbs_.receives.size(), 64U);
}

TEST_F(PortQueueTest, DoesNotSleepOverFramesThatCameBeforeItAsked) {
    open();
    EXPECT_TRUE(queue_->arm());
    EXPECT_TRUE(verbs_.armed);
    verbs_.deliver(Bytes(60, 1), 1);
    EXPECT_FALSE(queue_->arm());
    EXPECT_FALSE(queue_->arm()) << "nobody has seen the frame yet";
    EXPECT_EQ(queue_->receive().size(), 1U);
    EXPECT_TRUE(queue_->receive().empty());
    EXPECT_TRUE(queue_->arm());
}

TEST_F(PortQueueTest, CopiesWhatItSends) {
    open();
    EXPECT_EQ(transmit({Bytes(60, 1), Bytes(1514, 2)}), 2U);
    ASSERT_EQ(verbs_.sent.size(), 2U);
    EXPECT_EQ(verbs_.sent[1], Bytes(1514, 2));
    EXPECT_EQ(queue_->stats().sent, 2U);
}

TEST_F(PortQueueTest, DropsWhatFindsTheRingFullAndGoesOnLater) {
    open();
    verbs_.complete_sends = false;
    EXPECT_EQ(transmit(std::vector<Bytes>(100, Bytes(60, 1))), 64U);
    EXPECT_EQ(queue_->stats().send_drops, 36U);
    EXPECT_EQ(transmit({Bytes(60, 1)}), 0U);
    verbs_.complete_sends = true;
    EXPECT_EQ(transmit(std::vector<Bytes>(64, Bytes(60, 2))), 64U);
    for (int i = 0; i < 10; ++i) EXPECT_EQ(transmit(std::vector<Bytes>(33, Bytes(60, 3))), 33U);
}

TEST_F(PortQueueTest, DropsAFrameThatIsTooLongAndOnlyThat) {
    open();
    EXPECT_EQ(transmit({Bytes(60, 1), Bytes(3000, 2), Bytes(61, 3)}), 2U);
    ASSERT_EQ(verbs_.sent.size(), 2U);
    EXPECT_EQ(verbs_.sent[1], Bytes(61, 3));
    EXPECT_EQ(queue_->stats().send_drops, 1U);
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
        verbs_.calls = 0;
        verbs_.fail_at = n;
        verbs_.receives.clear();
        verbs_.receive_ids.clear();
        auto queue = PortQueue::create(spec());
        if (queue) {
            EXPECT_GT(n, 8U);
            break;
        }
        EXPECT_EQ(queue.error().code, ENOMEM) << queue.error().what;
        EXPECT_EQ(verbs_.alive, 0) << queue.error().what;
    }
}

}  // namespace
}  // namespace ovsdr::slowpath

using ovsdr::slowpath::fake;

extern "C" {

#undef ibv_reg_mr
ibv_mr* ibv_reg_mr(ibv_pd*, void*, size_t, int) { return fake->make(fake->region); }
ibv_mr* ibv_reg_mr_iova2(ibv_pd*, void*, size_t, uint64_t, unsigned) { return fake->make(fake->region); }
int ibv_dereg_mr(ibv_mr*) { return --fake->alive, 0; }

ibv_comp_channel* ibv_create_comp_channel(ibv_context*) {
    fake->channel.fd = eventfd(0, EFD_NONBLOCK);
    ibv_comp_channel* made = fake->make(fake->channel);
    if (made == nullptr) close(fake->channel.fd);
    return made;
}
int ibv_destroy_comp_channel(ibv_comp_channel* channel) {
    close(channel->fd);
    return --fake->alive, 0;
}
int ibv_get_cq_event(ibv_comp_channel*, ibv_cq**, void**) { return -1; }
void ibv_ack_cq_events(ibv_cq*, unsigned) {}

ibv_cq* ibv_create_cq(ibv_context*, int, void*, ibv_comp_channel*, int) { return fake->make(fake->send_cq); }
int ibv_destroy_cq(ibv_cq*) { return --fake->alive, 0; }

ibv_qp* ibv_create_qp(ibv_pd*, ibv_qp_init_attr* attributes) {
    EXPECT_EQ(attributes->qp_type, IBV_QPT_RAW_PACKET);
    return fake->make(fake->qp);
}
int ibv_destroy_qp(ibv_qp*) { return --fake->alive, 0; }
int ibv_modify_qp(ibv_qp*, ibv_qp_attr*, int) { return fake->fails() ? ENOMEM : 0; }

int mlx5dv_init_obj(mlx5dv_obj* object, uint64_t) {
    object->qp.out->sqn = 0x1234;
    return 0;
}

}  // extern "C"
