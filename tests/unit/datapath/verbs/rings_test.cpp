// mlx5dv_init_obj(): the test is the application that polls the rings of verbs objects and fills them, as DPDK's driver
// does.
#include <fcntl.h>
#include <poll.h>

#include "tests/unit/datapath/verbs/devx/devx_rings.hpp"

namespace ovsdr::soft::test {
namespace {

class Rings : public DevxRings {
protected:
    /// What an application knows of a CQ, and how far it has polled.
    struct Shown : mlx5dv_cq {
        std::uint32_t next = 0;
    };
    static Shown show(ibv_cq* cq) {
        Shown shown{};
        mlx5dv_obj object{};
        object.cq = {cq, &shown};
        EXPECT_EQ(mlx5dv_init_obj(&object, MLX5DV_OBJ_CQ), 0);
        return shown;
    }
    static mlx5_cqe64* wait(Shown& cq, std::chrono::milliseconds patience = std::chrono::seconds(10)) {
        auto* const entry = reinterpret_cast<mlx5_cqe64*>(
            static_cast<std::byte*>(cq.buf) + (cq.next % cq.cqe_cnt + 1) * cq.cqe_size - sizeof(mlx5_cqe64));
        const std::atomic_ref<std::uint8_t> last(entry->op_own);
        const bool came = eventually(
            [&] {
                const std::uint8_t now = last.load(std::memory_order_acquire);
                return (now & 1) == (cq.next / cq.cqe_cnt & 1) && now >> 4 != MLX5_CQE_INVALID;
            },
            patience);
        if (!came) return nullptr;
        ++cq.next;
        return entry;
    }
    static void taken(const Shown& cq) {
        std::atomic_ref(cq.dbrec[0]).store(htobe32(cq.next & 0xffffff), std::memory_order_release);
    }

    [[nodiscard]] ibv_qp* make_datagram_qp(ibv_cq* cq) const {
        ibv_qp_init_attr attr{};
        attr.send_cq = attr.recv_cq = cq;
        attr.cap = {.max_send_wr = 8, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
        attr.qp_type = IBV_QPT_UD;
        ibv_qp* const qp = ibv_create_qp(pd, &attr);
        ibv_qp_attr to{};
        to.qp_state = IBV_QPS_INIT;
        to.port_num = 1;
        EXPECT_EQ(ibv_modify_qp(qp, &to, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY), 0);
        to.qp_state = IBV_QPS_RTR;
        EXPECT_EQ(ibv_modify_qp(qp, &to, IBV_QP_STATE), 0);
        to.qp_state = IBV_QPS_RTS;
        EXPECT_EQ(ibv_modify_qp(qp, &to, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
        return qp;
    }
    /// Entries of one block that do nothing but complete.
    static void post_nops(const mlx5dv_qp& qp, std::uint32_t qpn, std::uint16_t& posted, unsigned count) {
        for (unsigned i = 0; i < count; ++i) {
            auto* const entry = static_cast<std::byte*>(qp.sq.buf) + posted % qp.sq.wqe_cnt * qp.sq.stride;
            mlx5dv_set_ctrl_seg(reinterpret_cast<mlx5_wqe_ctrl_seg*>(entry), posted++, MLX5_OPCODE_NOP, 0, qpn,
                                MLX5_WQE_CTRL_CQ_UPDATE, 1, 0, 0);
        }
        std::atomic_ref(qp.dbrec[MLX5_SND_DBR]).store(htobe32(posted), std::memory_order_release);
        std::atomic_ref(*static_cast<std::uint64_t*>(qp.bf.reg)).store(1);  // BlueFlame: whatever, it is only a bell
    }
};

TEST_F(Rings, AWorkQueuesRingIsFilledAndItsCqPolledByTheApplication) {
    Cq sent = make_cq();
    Queue sq = make_sq(sent.number);
    ibv_cq* const cq = ibv_create_cq(context, 3, nullptr, nullptr, 0);
    ibv_wq_init_attr attr{};
    attr.wq_type = IBV_WQT_RQ;
    attr.max_wr = 4;
    attr.max_sge = 2;
    attr.pd = pd;
    attr.cq = cq;
    ibv_wq* const wq = ibv_create_wq(context, &attr);
    ASSERT_NE(wq, nullptr);
    ibv_wq_attr ready{};
    ready.attr_mask = IBV_WQ_ATTR_STATE;
    ready.wq_state = IBV_WQS_RDY;
    ASSERT_EQ(ibv_modify_wq(wq, &ready), 0);
    mlx5dv_rwq ring{};
    mlx5dv_obj object{};
    object.rwq = {wq, &ring};
    ASSERT_EQ(mlx5dv_init_obj(&object, MLX5DV_OBJ_RWQ), 0);
    EXPECT_EQ(ring.wqe_cnt, 4u);
    EXPECT_EQ(ring.stride, 32u);
    Shown shown = show(cq);
    EXPECT_EQ(shown.cqe_cnt, 4u);
    EXPECT_EQ(shown.cqe_size, 64u);
    EXPECT_EQ(show(cq).buf, shown.buf) << "the same one each time";

    const Made tir = make_tir(wq->wq_num);
    {
        const TirRule rule(context, tir.object);
        const std::size_t room = take(256);
        for (std::uint32_t round = 0; round < 11; ++round) {  // rings of 4 wrap
            auto* const entry = reinterpret_cast<mlx5_wqe_data_seg*>(static_cast<std::byte*>(ring.buf) +
                                                                     round % ring.wqe_cnt * ring.stride);
            mlx5dv_set_data_seg(entry, 256, mr->lkey, reinterpret_cast<std::uintptr_t>(memory.data() + room));
            mlx5dv_set_data_seg(entry + 1, 0, MLX5_INVALID_LKEY, 0);
            std::atomic_ref(ring.dbrec[MLX5_RCV_DBR]).store(htobe32(round + 1), std::memory_order_release);
            Bytes frame(60 + round, static_cast<std::uint8_t>(round));
            std::copy(TirRule::address.begin(), TirRule::address.end(), frame.begin());
            post_send(sq, frame, {});
            const mlx5_cqe64* const came = wait(shown);
            ASSERT_NE(came, nullptr) << round;
            EXPECT_EQ(came->op_own >> 4, MLX5_CQE_RESP_SEND);
            EXPECT_EQ(be16toh(came->wqe_counter), round);
            EXPECT_EQ(be32toh(came->byte_cnt), frame.size());
            EXPECT_EQ(be32toh(came->sop_drop_qpn), TirRule::flow_tag);
            EXPECT_NE(came->timestamp, 0u);
            EXPECT_TRUE(std::equal(frame.begin(), frame.end(), memory.data() + room));
            taken(shown);
        }
    }
    destroy(tir);
    EXPECT_EQ(ibv_destroy_wq(wq), 0);
    EXPECT_EQ(ibv_destroy_cq(cq), 0);
}

TEST_F(Rings, AQueuePairsSendRingIsFilledAndRungByTheApplication) {
    ibv_cq* const cq = ibv_create_cq(context, 100, nullptr, nullptr, 0);
    ibv_qp* const qp = make_datagram_qp(cq);
    Shown shown = show(cq);
    mlx5dv_qp rings{};
    rings.comp_mask = MLX5DV_QP_MASK_UAR_MMAP_OFFSET | MLX5DV_QP_MASK_RAW_QP_HANDLES;
    mlx5dv_obj object{};
    object.qp = {qp, &rings};
    ASSERT_EQ(mlx5dv_init_obj(&object, MLX5DV_OBJ_QP), 0);
    EXPECT_EQ(rings.comp_mask, 0u) << "no page that another process could map, no raw packet QP";
    EXPECT_EQ(rings.sq.stride, 64u);
    EXPECT_GE(rings.sq.wqe_cnt, 8u);
    EXPECT_EQ(rings.rq.wqe_cnt, 4u);
    EXPECT_NE(rings.bf.size, 0u);
    std::uint16_t posted = 0;
    for (unsigned round = 0; round < 40; ++round) {
        const std::uint16_t first = posted;
        post_nops(rings, qp->qp_num, posted, 2);
        for (unsigned i = 0; i < 2; ++i) {
            const mlx5_cqe64* const done = wait(shown);
            ASSERT_NE(done, nullptr) << round;
            EXPECT_EQ(done->op_own >> 4, MLX5_CQE_REQ);
            EXPECT_EQ(be32toh(done->sop_drop_qpn) & 0xffffff, qp->qp_num);
            EXPECT_EQ(be16toh(done->wqe_counter), first + i);
        }
        taken(shown);
    }
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
    EXPECT_EQ(ibv_destroy_cq(cq), 0);
}

TEST_F(Rings, AnArmedCqTellsItsChannel) {
    ibv_comp_channel* const channel = ibv_create_comp_channel(context);
    fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK);
    ibv_cq* const cq = ibv_create_cq(context, 15, nullptr, channel, 0);
    ibv_qp* const qp = make_datagram_qp(cq);
    Shown shown = show(cq);
    mlx5dv_qp rings{};
    mlx5dv_obj object{};
    object.qp = {qp, &rings};
    ASSERT_EQ(mlx5dv_init_obj(&object, MLX5DV_OBJ_QP), 0);
    const auto arm = [&](unsigned sequence) {
        const std::uint32_t word = sequence << 28 | (shown.next & 0xffffff);
        std::atomic_ref(shown.dbrec[1]).store(htobe32(word));
        auto* const bell = reinterpret_cast<std::uint64_t*>(static_cast<std::byte*>(shown.cq_uar) + MLX5_CQ_DOORBELL);
        std::atomic_ref(*bell).store(htobe64(std::uint64_t{word} << 32 | shown.cqn));
    };
    const auto told = [&](std::chrono::milliseconds patience) {
        pollfd waiting{channel->fd, POLLIN, 0};
        if (::poll(&waiting, 1, static_cast<int>(patience.count())) != 1) return false;
        ibv_cq* which = nullptr;
        void* unused = nullptr;
        EXPECT_EQ(ibv_get_cq_event(channel, &which, &unused), 0);
        ibv_ack_cq_events(cq, 1);
        return which == cq;
    };
    using namespace std::chrono_literals;
    std::uint16_t posted = 0;
    post_nops(rings, qp->qp_num, posted, 1);
    ASSERT_NE(wait(shown), nullptr);
    EXPECT_FALSE(told(50ms)) << "it is not armed";
    arm(0);
    EXPECT_FALSE(told(50ms)) << "nothing new";
    post_nops(rings, qp->qp_num, posted, 1);
    EXPECT_TRUE(told(10s));
    arm(1);
    EXPECT_TRUE(told(10s)) << "the counter says that there is one which was not seen";
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
    EXPECT_EQ(ibv_destroy_cq(cq), 0);
    EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
}

TEST_F(Rings, WhoOnlyAsksForACqsNumberPollsAsEver) {
    ibv_cq* const cq = ibv_create_cq(context, 3, nullptr, nullptr, 0);
    ibv_qp* const qp = make_datagram_qp(cq);
    mlx5dv_qp rings{};
    mlx5dv_obj object{};
    object.qp = {qp, &rings};
    ASSERT_EQ(mlx5dv_init_obj(&object, MLX5DV_OBJ_QP), 0);
    const Shown shown = show(cq);
    std::uint16_t posted = 0;
    for (unsigned round = 1; round <= 10; ++round) {
        post_nops(rings, qp->qp_num, posted, 1);
        ibv_wc completion{};
        ASSERT_TRUE(eventually([&] { return ibv_poll_cq(cq, 1, &completion) == 1; })) << round;
        EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
        EXPECT_EQ(be32toh(shown.dbrec[0]), round) << "the counter is in the record as if the application had polled";
    }
    EXPECT_EQ(ibv_resize_cq(cq, 31), 0);
    Shown larger = show(cq);
    EXPECT_EQ(larger.cqe_cnt, 32u);
    larger.next = 10;
    post_nops(rings, qp->qp_num, posted, 1);
    EXPECT_NE(wait(larger), nullptr);
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
    EXPECT_EQ(ibv_destroy_cq(cq), 0);
}

TEST_F(Rings, ACqThatTheApplicationDoesNotPollOverruns) {
    ibv_cq* const cq = ibv_create_cq(context, 3, nullptr, nullptr, 0);
    ibv_qp* const qp = make_datagram_qp(cq);
    mlx5dv_qp rings{};
    mlx5dv_obj object{};
    object.qp = {qp, &rings};
    ASSERT_EQ(mlx5dv_init_obj(&object, MLX5DV_OBJ_QP), 0);
    Shown shown = show(cq);
    fcntl(context->async_fd, F_SETFL, fcntl(context->async_fd, F_GETFL) | O_NONBLOCK);
    std::uint16_t posted = 0;
    post_nops(rings, qp->qp_num, posted, 4);
    for (unsigned i = 0; i < 4; ++i) ASSERT_NE(wait(shown), nullptr);
    post_nops(rings, qp->qp_num, posted, 1);
    EXPECT_TRUE(eventually([&] {
        ibv_async_event event{};
        if (ibv_get_async_event(context, &event) != 0) return false;
        ibv_ack_async_event(&event);
        return event.event_type == IBV_EVENT_CQ_ERR;  // A port may have come up before.
    })) << "the record's counter still says 0";
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
    EXPECT_EQ(ibv_destroy_cq(cq), 0);
}

}  // namespace
}  // namespace ovsdr::soft::test
