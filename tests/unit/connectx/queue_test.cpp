// Queues of the emulated ConnectX, and the files that tell of events. Runs under tests/connectx/run, for each profile.
#include <poll.h>

#include <cerrno>
#include <memory>
#include <vector>

#include "tests/unit/connectx/emulated_device.hpp"

namespace ovsdr::connectx {
namespace {

using namespace test;

TEST_F(EmulatedDevice, SendsFramesAndWakesTheWaiting) {
    RawPacketQueue queue(context_.get());
    ASSERT_NE(queue.queue_pair, nullptr) << strerror(errno);
    ASSERT_EQ(queue.start(), 0);
    const std::uint64_t before = device()->frames_sent();
    ibv_wc completion{};
    pollfd waited{queue.channel->fd, POLLIN, 0};
    for (std::uint64_t i = 1; i <= 200; ++i) {   // several times around the ring
        ASSERT_EQ(ibv_req_notify_cq(queue.completions.get(), 0), 0);
        EXPECT_EQ(poll(&waited, 1, 0), 0);
        ASSERT_EQ(queue.send(i, queue.region->lkey), 0);
        ASSERT_EQ(poll(&waited, 1, 0), 1);
        ibv_cq* woken = nullptr;
        void* own = nullptr;
        ASSERT_EQ(ibv_get_cq_event(queue.channel, &woken, &own), 0);
        EXPECT_EQ(woken, queue.completions.get());
        ibv_ack_cq_events(woken, 1);
        ASSERT_EQ(ibv_poll_cq(queue.completions.get(), 1, &completion), 1);
        EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
        EXPECT_EQ(completion.wr_id, i);
    }
    EXPECT_EQ(device()->frames_sent(), before + 200);
}

/// Armed after the completion is there: the event comes at once, or whoever arms and then waits sleeps for ever.
TEST_F(EmulatedDevice, WakesForACompletionThatWasThereBefore) {
    RawPacketQueue queue(context_.get());
    ASSERT_EQ(queue.start(), 0);
    ASSERT_EQ(queue.send(1, queue.region->lkey), 0);
    ASSERT_EQ(ibv_req_notify_cq(queue.completions.get(), 0), 0);
    pollfd waited{queue.channel->fd, POLLIN, 0};
    EXPECT_EQ(poll(&waited, 1, 0), 1);
    ibv_cq* woken = nullptr;
    void* own = nullptr;
    ASSERT_EQ(ibv_get_cq_event(queue.channel, &woken, &own), 0);
    ibv_ack_cq_events(woken, 1);
}

/// libibverbs waits until each event that was read is acknowledged: one that nobody read must not count.
TEST_F(EmulatedDevice, DestroysAQueueWhoseEventNobodyRead) {
    const Channel channel(ibv_create_comp_channel(context_.get()));
    RawPacketQueue first(context_.get(), channel.get());
    {
        RawPacketQueue second(context_.get(), channel.get());
        for (RawPacketQueue* queue : {&first, &second}) {
            ASSERT_EQ(queue->start(), 0);
            ASSERT_EQ(ibv_req_notify_cq(queue->completions.get(), 0), 0);
            ASSERT_EQ(queue->send(1, queue->region->lkey), 0);
        }
    }
    ibv_cq* woken = nullptr;
    void* own = nullptr;
    ASSERT_EQ(ibv_get_cq_event(channel.get(), &woken, &own), 0);
    EXPECT_EQ(woken, first.completions.get());
    ibv_ack_cq_events(woken, 1);
}

/// `solicited_only`: for a send that fails, since no completion of a send is solicited.
TEST_F(EmulatedDevice, WakesForErrorsOnlyWhoeverAskedForThose) {
    RawPacketQueue queue(context_.get());
    ASSERT_EQ(queue.start(), 0);
    pollfd waited{queue.channel->fd, POLLIN, 0};
    ASSERT_EQ(ibv_req_notify_cq(queue.completions.get(), 1), 0);
    ASSERT_EQ(queue.send(1, queue.region->lkey), 0);
    EXPECT_EQ(poll(&waited, 1, 0), 0);
    ASSERT_EQ(queue.send(2, queue.region->lkey + 0x100), 0);
    EXPECT_EQ(poll(&waited, 1, 0), 1);
    ibv_cq* woken = nullptr;
    void* own = nullptr;
    ASSERT_EQ(ibv_get_cq_event(queue.channel, &woken, &own), 0);
    ibv_ack_cq_events(woken, 1);
    // Asked for again with the error unread: at once. With the error read: not.
    ASSERT_EQ(ibv_req_notify_cq(queue.completions.get(), 1), 0);
    EXPECT_EQ(poll(&waited, 1, 0), 1);
    ASSERT_EQ(ibv_get_cq_event(queue.channel, &woken, &own), 0);
    ibv_ack_cq_events(woken, 1);
    ibv_wc completions[2] = {};
    ASSERT_EQ(ibv_poll_cq(queue.completions.get(), 2, completions), 2);
    ASSERT_EQ(ibv_req_notify_cq(queue.completions.get(), 1), 0);
    EXPECT_EQ(poll(&waited, 1, 0), 0);
}

/// The kernel's channels hold any number of events; whoever sleeps on one must not miss any.
TEST_F(EmulatedDevice, KeepsTheEventsOfManyQueues) {
    constexpr std::size_t length = 100;
    const std::size_t before = device()->not_emulated().size();
    const Channel channel(ibv_create_comp_channel(context_.get()));
    std::vector<std::unique_ptr<RawPacketQueue>> queues;
    for (std::size_t i = 0; i < length; ++i) {
        queues.push_back(std::make_unique<RawPacketQueue>(context_.get(), channel.get()));
        ASSERT_EQ(queues[i]->start(), 0);
        ASSERT_EQ(ibv_req_notify_cq(queues[i]->completions.get(), 0), 0);
        ASSERT_EQ(queues[i]->send(1, queues[i]->region->lkey), 0);
    }
    pollfd waited{channel->fd, POLLIN, 0};
    for (const auto& queue : queues) {
        ASSERT_EQ(poll(&waited, 1, 0), 1);
        ibv_cq* woken = nullptr;
        void* own = nullptr;
        ASSERT_EQ(ibv_get_cq_event(channel.get(), &woken, &own), 0);
        EXPECT_EQ(woken, queue->completions.get());
        ibv_ack_cq_events(woken, 1);
    }
    EXPECT_EQ(device()->not_emulated().size(), before);
}

TEST_F(EmulatedDevice, FailsASendFromMemoryOfAnotherDomain) {
    RawPacketQueue queue(context_.get());
    const RawPacketQueue other(context_.get());
    ASSERT_EQ(queue.start(), 0);
    ibv_wc completion{};
    ibv_sge piece{reinterpret_cast<std::uintptr_t>(other.frame.data()), 60, other.region->lkey};
    ibv_send_wr request{}, *refused = nullptr;
    request.sg_list = &piece;
    request.num_sge = 1;
    request.opcode = IBV_WR_SEND;
    ASSERT_EQ(ibv_post_send(queue.queue_pair.get(), &request, &refused), 0);
    ASSERT_EQ(ibv_poll_cq(queue.completions.get(), 1, &completion), 1);
    EXPECT_EQ(completion.status, IBV_WC_LOC_PROT_ERR);
}

TEST_F(EmulatedDevice, WantsThePortOfAQueueThatIsSetUp) {
    const RawPacketQueue queue(context_.get());
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_INIT;
    attributes.port_num = 1;
    EXPECT_EQ(ibv_modify_qp(queue.queue_pair.get(), &attributes, IBV_QP_STATE), EINVAL);
    EXPECT_EQ(ibv_modify_qp(queue.queue_pair.get(), &attributes, IBV_QP_STATE | IBV_QP_PORT), 0);
    attributes.qp_state = IBV_QPS_RTR;
    EXPECT_EQ(ibv_modify_qp(queue.queue_pair.get(), &attributes, IBV_QP_STATE | IBV_QP_PORT), EINVAL);
}

TEST_F(EmulatedDevice, FailsASendFromMemoryThatItsKeyDoesNotGrant) {
    RawPacketQueue queue(context_.get());
    ASSERT_EQ(queue.start(), 0);
    ASSERT_EQ(queue.send(1, queue.region->lkey + 0x100), 0);
    ASSERT_EQ(queue.send(2, queue.region->lkey), 0);
    ibv_wc completions[2] = {};
    ASSERT_EQ(ibv_poll_cq(queue.completions.get(), 2, completions), 2);
    EXPECT_EQ(completions[0].status, IBV_WC_LOC_PROT_ERR);
    EXPECT_EQ(completions[1].status, IBV_WC_WR_FLUSH_ERR);
}

TEST_F(EmulatedDevice, TakesSubscriptionsToWhatItTells) {
    using EventChannel = Owned<mlx5dv_devx_event_channel, [](mlx5dv_devx_event_channel* channel) {
        mlx5dv_devx_destroy_event_channel(channel);
        return 0;
    }>;
    const EventChannel channel(
        mlx5dv_devx_create_event_channel(context_.get(), MLX5DV_DEVX_CREATE_EVENT_CHANNEL_FLAGS_OMIT_EV_DATA));
    ASSERT_NE(channel, nullptr) << strerror(errno);
    const auto subscribe = [&](std::vector<std::uint16_t> types, std::uint64_t cookie) {
        const auto size = static_cast<std::uint16_t>(types.size() * sizeof types[0]);
        return mlx5dv_devx_subscribe_devx_event(channel.get(), nullptr, size, types.data(), cookie);
    };
    constexpr std::uint16_t port_change = 0x9, vport_change = 0xd, functions_changed = 0xe;
    EXPECT_EQ(subscribe({port_change, functions_changed}, 1), EINVAL);
    EXPECT_EQ(subscribe(std::vector<std::uint16_t>(17, port_change), 2), EINVAL);
    if (!has_event_cap()) {
        // The list whole, for one of its types.
        EXPECT_EQ(subscribe({vport_change}, 3), EINVAL);
        EXPECT_EQ(subscribe({port_change, vport_change}, 3), EINVAL);
        EXPECT_EQ(subscribe({port_change}, 3), 0);
        device()->set_vport(2, false);
        device()->set_vport(2, true);
        pollfd waited{channel->fd, POLLIN, 0};
        EXPECT_EQ(poll(&waited, 1, 0), 0);
        return;
    }
    ASSERT_EQ(subscribe({vport_change, port_change}, 3), 0);
    // Two changes that nobody has read in between are one event.
    device()->set_vport(2, false);
    device()->set_vport(2, true);
    pollfd waited{channel->fd, POLLIN, 0};
    mlx5dv_devx_async_event_hdr event{};
    ASSERT_EQ(poll(&waited, 1, 0), 1);
    ASSERT_EQ(mlx5dv_devx_get_event(channel.get(), &event, sizeof event), static_cast<ssize_t>(sizeof event.cookie));
    EXPECT_EQ(event.cookie, 3U);
    EXPECT_EQ(poll(&waited, 1, 0), 0);
}

}   // namespace
}   // namespace ovsdr::connectx
