// Raw packet QPs through the verbs that applications use; the test plays the worker.
#include "datapath/rdma/ethernet/raw_packet_qp.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "datapath/rdma/dr_seam.hpp"
#include "tests/unit/datapath/rdma/fake_device.hpp"

namespace ovsdr::soft::test {
namespace {

class RawPacketQpTest : public ::testing::Test {
protected:
    RawPacketQpTest() {
        std::iota(buffer.begin(), buffer.end(), std::uint8_t{0});
        cq = ibv_create_cq(open.context, 63, nullptr, nullptr, 0);
        mr = ibv_reg_mr(open.pd, buffer.data(), buffer.size(), IBV_ACCESS_LOCAL_WRITE);
    }
    ~RawPacketQpTest() override {
        if (qp) {
            EXPECT_EQ(ibv_destroy_qp(qp), 0);
        }
        EXPECT_EQ(ibv_dereg_mr(mr), 0);
        EXPECT_EQ(ibv_destroy_cq(cq), 0);
    }

    void create(bool all_signaled = true) {
        ibv_qp_init_attr attr{};
        attr.send_cq = attr.recv_cq = cq;
        attr.qp_type = IBV_QPT_RAW_PACKET;
        attr.cap = {4, 4, 2, 2, 64};
        attr.sq_sig_all = all_signaled;
        qp = ibv_create_qp(open.pd, &attr);
        ASSERT_NE(qp, nullptr);
    }
    int move(ibv_qp_state state) {
        ibv_qp_attr attr{};
        attr.qp_state = state;
        attr.port_num = 1;
        return ibv_modify_qp(qp, &attr, IBV_QP_STATE | (state == IBV_QPS_INIT ? IBV_QP_PORT : 0));
    }
    void make_ready(bool all_signaled = true) {
        create(all_signaled);
        ASSERT_EQ(move(IBV_QPS_INIT), 0);
        ASSERT_EQ(move(IBV_QPS_RTR), 0);
        ASSERT_EQ(move(IBV_QPS_RTS), 0);
    }
    [[nodiscard]] ibv_sge piece(std::size_t offset, std::uint32_t size) const {
        return {reinterpret_cast<std::uint64_t>(buffer.data()) + offset, size, mr->lkey};
    }
    int post_send(std::uint64_t id, std::vector<ibv_sge> sges, unsigned flags = 0) {
        ibv_send_wr wr{};
        wr.wr_id = id;
        wr.sg_list = sges.data();
        wr.num_sge = static_cast<int>(sges.size());
        wr.opcode = IBV_WR_SEND;
        wr.send_flags = flags;
        ibv_send_wr* bad = nullptr;
        return ibv_post_send(qp, &wr, &bad);
    }
    int post_receive(std::uint64_t id, std::vector<ibv_sge> sges) {
        ibv_recv_wr wr{id, nullptr, sges.data(), static_cast<int>(sges.size())};
        ibv_recv_wr* bad = nullptr;
        return ibv_post_recv(qp, &wr, &bad);
    }
    /// What the send queue gives a worker, as bytes.
    std::vector<std::vector<std::uint8_t>> sent() {
        std::array<rte_mbuf*, batch_length> packets;
        const unsigned length = open.device.poll(Qp::of(qp).raw->spec().sqn, packets.data(), batch_length);
        std::vector<std::vector<std::uint8_t>> frames;
        for (unsigned i = 0; i < length; ++i) {
            const auto* data = rte_pktmbuf_mtod(packets[i], const std::uint8_t*);
            frames.emplace_back(data, data + rte_pktmbuf_data_len(packets[i]));
            rte_pktmbuf_free(packets[i]);
        }
        return frames;
    }
    void arrive(const std::vector<std::uint8_t>& frame, std::uint32_t tag = 0) {
        rte_mbuf* packet = rte_pktmbuf_alloc(packet_pool());
        std::copy(frame.begin(), frame.end(), rte_pktmbuf_mtod(packet, std::uint8_t*));
        packet->data_len = static_cast<std::uint16_t>(frame.size());
        packet->pkt_len = packet->data_len;
        set_source(packet, manager_vport);
        set_tag(packet, tag);
        const Sink sink = receive_sink_of(qp);
        sink.deliver(sink.self, 0, &packet, 1);
    }
    std::vector<ibv_wc> completions() {
        std::vector<ibv_wc> all(64);
        all.resize(static_cast<std::size_t>(ibv_poll_cq(cq, 64, all.data())));
        return all;
    }

    std::array<std::uint8_t, 256> buffer;
    OpenDevice open;
    ibv_cq* cq;
    ibv_mr* mr;
    ibv_qp* qp = nullptr;
};

TEST_F(RawPacketQpTest, StatesFollowTheManual) {
    create();
    EXPECT_EQ(move(IBV_QPS_RTR), EINVAL);
    EXPECT_EQ(move(IBV_QPS_RTS), EINVAL);
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    EXPECT_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE), EINVAL) << "INIT needs a port";
    attr.port_num = 4;
    EXPECT_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT), EINVAL) << "no such port";
    EXPECT_EQ(move(IBV_QPS_INIT), 0);
    EXPECT_EQ(move(IBV_QPS_RTS), EINVAL);
    EXPECT_EQ(move(IBV_QPS_RTR), 0);
    EXPECT_EQ(open.device.send_sources(), 0u);
    EXPECT_EQ(move(IBV_QPS_RTS), 0);
    EXPECT_EQ(open.device.send_sources(), 1u);
    EXPECT_EQ(move(IBV_QPS_INIT), EINVAL);
    EXPECT_EQ(move(IBV_QPS_ERR), 0);
    EXPECT_EQ(move(IBV_QPS_RTS), EINVAL);
    EXPECT_EQ(move(IBV_QPS_RESET), 0);
    EXPECT_EQ(open.device.send_sources(), 0u);
    EXPECT_EQ(qp->state, IBV_QPS_RESET);
}

TEST_F(RawPacketQpTest, GrantedCapsAreWhatTheQueueHolds) {
    ibv_qp_init_attr attr{};
    attr.send_cq = attr.recv_cq = cq;
    attr.qp_type = IBV_QPT_RAW_PACKET;
    attr.cap = {3, 5, 1, 3, 0};
    qp = ibv_create_qp(open.pd, &attr);
    ASSERT_NE(qp, nullptr);
    EXPECT_EQ(attr.cap.max_send_wr, 4u);
    EXPECT_EQ(attr.cap.max_recv_wr, 8u);
    EXPECT_EQ(attr.cap.max_recv_sge, 4u);
    ASSERT_EQ(move(IBV_QPS_INIT), 0);
    for (unsigned i = 0; i < attr.cap.max_recv_wr; ++i) EXPECT_EQ(post_receive(i, {piece(0, 1)}), 0);
    EXPECT_EQ(post_receive(9, {piece(0, 1)}), ENOMEM);
}

TEST_F(RawPacketQpTest, RefusesWhatTheDeviceLacks) {
    ibv_qp_init_attr attr{};
    attr.send_cq = attr.recv_cq = cq;
    attr.qp_type = IBV_QPT_RAW_PACKET;
    attr.cap.max_send_wr = 1 << 20;
    EXPECT_EQ(ibv_create_qp(open.pd, &attr), nullptr);
    EXPECT_EQ(errno, EINVAL);
}

TEST_F(RawPacketQpTest, CapabilitiesAreGrantedAsLibmlx5ComputesThem) {
    ibv_qp_init_attr attr{};
    attr.send_cq = attr.recv_cq = cq;
    attr.qp_type = IBV_QPT_RAW_PACKET;
    attr.cap = {3, 3, 2, 3, 64};
    qp = ibv_create_qp(open.pd, &attr);
    ASSERT_NE(qp, nullptr);
    // 16 control + 32 Ethernet + 2 * 16 pieces, or 68 inline: two blocks; 3 of them in a ring of 512 bytes.
    EXPECT_EQ(attr.cap.max_send_wr, 4u);
    EXPECT_EQ(attr.cap.max_send_sge, 2u);
    EXPECT_EQ(attr.cap.max_inline_data, 76u);
    EXPECT_EQ(attr.cap.max_recv_wr, 4u);
    EXPECT_EQ(attr.cap.max_recv_sge, 4u);
    for (const ibv_qp_cap& cap : {ibv_qp_cap{0, 0, 0, 0, 0}, ibv_qp_cap{1, 0, 62, 0, 0}, ibv_qp_cap{1, 0, 1, 0, 1000},
                                  ibv_qp_cap{1, 1, 1, 33, 0}, ibv_qp_cap{1, 1 << 16, 1, 1, 0}}) {
        attr.cap = cap;
        EXPECT_EQ(ibv_create_qp(open.pd, &attr), nullptr);
        EXPECT_EQ(errno, EINVAL);
    }
}

TEST_F(RawPacketQpTest, RawPacketQueuesHaveTheirOwnReceives) {
    ibv_srq_init_attr srq_attr{nullptr, {4, 1, 0}};
    ibv_srq* const srq = ibv_create_srq(open.pd, &srq_attr);
    ASSERT_NE(srq, nullptr);
    ibv_qp_init_attr_ex attr{};
    attr.send_cq = attr.recv_cq = cq;
    attr.qp_type = IBV_QPT_RAW_PACKET;
    attr.cap = {1, 1, 1, 1, 0};
    attr.pd = open.pd;
    attr.comp_mask = IBV_QP_INIT_ATTR_PD;
    attr.srq = srq;
    EXPECT_EQ(ibv_create_qp_ex(open.context, &attr), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
    attr.srq = nullptr;
    attr.comp_mask |= IBV_QP_INIT_ATTR_XRCD;
    EXPECT_EQ(ibv_create_qp_ex(open.context, &attr), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
    EXPECT_EQ(ibv_destroy_srq(srq), 0);
}

TEST_F(RawPacketQpTest, PostingWaitsForItsState) {
    create();
    EXPECT_EQ(post_receive(1, {piece(0, 1)}), EINVAL);
    ASSERT_EQ(move(IBV_QPS_INIT), 0);
    EXPECT_EQ(post_receive(1, {piece(0, 1)}), 0);
    EXPECT_EQ(post_send(1, {piece(0, 1)}), ENOMEM);
    ASSERT_EQ(move(IBV_QPS_RTR), 0);
    EXPECT_EQ(post_send(1, {piece(0, 1)}), ENOMEM);
    ASSERT_EQ(move(IBV_QPS_RTS), 0);
    EXPECT_EQ(post_send(1, {piece(0, 1)}), 0);
    ASSERT_EQ(move(IBV_QPS_RESET), 0);
    EXPECT_EQ(post_send(1, {piece(0, 1)}), ENOMEM);
    EXPECT_EQ(post_receive(1, {piece(0, 1)}), EINVAL);
}

TEST_F(RawPacketQpTest, GathersASendAndCompletesIt) {
    make_ready();
    ASSERT_EQ(post_send(5, {piece(0, 3), piece(100, 2)}), 0);
    EXPECT_GE(open.device.doorbells, 1u);
    EXPECT_EQ(sent(), (std::vector<std::vector<std::uint8_t>>{{0, 1, 2, 100, 101}}));
    const auto done = completions();
    ASSERT_EQ(done.size(), 1u);
    EXPECT_EQ(done[0].wr_id, 5u);
    EXPECT_EQ(done[0].status, IBV_WC_SUCCESS);
    EXPECT_EQ(done[0].opcode, IBV_WC_SEND);
    EXPECT_EQ(done[0].qp_num, qp->qp_num);
}

TEST_F(RawPacketQpTest, InlineDataIsTakenWhenPosted) {
    make_ready();
    std::array<std::uint8_t, 2> own{9, 8};
    ASSERT_EQ(post_send(1, {{reinterpret_cast<std::uint64_t>(own.data()), 2, 0}}, IBV_SEND_INLINE), 0);
    own = {0, 0};
    EXPECT_EQ(sent(), (std::vector<std::vector<std::uint8_t>>{{9, 8}}));
    // 64 bytes were asked for; an entry of two blocks has 128 - 48 - 4.
    std::array<std::uint8_t, 77> big{};
    EXPECT_EQ(post_send(2, {{reinterpret_cast<std::uint64_t>(big.data()), 76, 0}}, IBV_SEND_INLINE), 0);
    EXPECT_EQ(post_send(2, {{reinterpret_cast<std::uint64_t>(big.data()), 77, 0}}, IBV_SEND_INLINE), ENOMEM);
    EXPECT_EQ(post_send(2, {piece(0, 1), piece(1, 1), piece(2, 1)}), ENOMEM) << "more pieces than were granted";
}

TEST_F(RawPacketQpTest, ASendQueueStaysFullUntilASignaledCompletionIsPolled) {
    make_ready(false);
    for (std::uint64_t id = 0; id < 4; ++id) {
        ASSERT_EQ(post_send(id, {piece(0, 1)}, id == 3 ? IBV_SEND_SIGNALED : 0), 0);
    }
    EXPECT_EQ(post_send(4, {piece(0, 1)}), ENOMEM);
    EXPECT_EQ(sent().size(), 4u);
    EXPECT_EQ(post_send(4, {piece(0, 1)}), ENOMEM) << "executed, but not polled";
    EXPECT_EQ(completions().size(), 1u);
    EXPECT_EQ(post_send(4, {piece(0, 1)}), 0);
}

TEST_F(RawPacketQpTest, MemoryOutOfBoundsFailsTheRequestAndTheQueuePair) {
    make_ready(false);
    ASSERT_EQ(post_receive(50, {piece(0, 64)}), 0);
    ASSERT_EQ(post_send(1, {piece(250, 7)}), 0);
    ASSERT_EQ(post_send(2, {piece(0, 1)}), 0);
    EXPECT_TRUE(sent().empty());
    const auto done = completions();
    ASSERT_EQ(done.size(), 3u) << "failed and flushed requests complete whether signaled or not";
    EXPECT_EQ(done[0].wr_id, 1u);
    EXPECT_EQ(done[0].status, IBV_WC_LOC_PROT_ERR);
    EXPECT_EQ(done[1].wr_id, 2u);
    EXPECT_EQ(done[1].status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(done[2].wr_id, 50u);
    EXPECT_EQ(done[2].status, IBV_WC_WR_FLUSH_ERR);
    ibv_qp_attr attr{};
    ibv_qp_init_attr init{};
    ASSERT_EQ(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), 0);
    EXPECT_EQ(attr.qp_state, IBV_QPS_ERR);
    ASSERT_EQ(post_send(3, {piece(0, 1)}), 0);
    const auto late = completions();
    ASSERT_EQ(late.size(), 1u);
    EXPECT_EQ(late[0].status, IBV_WC_WR_FLUSH_ERR);
}

TEST_F(RawPacketQpTest, DeregisteredMemoryIsNotRead) {
    make_ready();
    ibv_mr* const gone = ibv_reg_mr(open.pd, buffer.data(), 16, 0);
    const ibv_sge sge{reinterpret_cast<std::uint64_t>(buffer.data()), 4, gone->lkey};
    ASSERT_EQ(post_send(1, {sge}), 0);
    ASSERT_EQ(ibv_dereg_mr(gone), 0);
    EXPECT_TRUE(sent().empty());
    EXPECT_EQ(completions().at(0).status, IBV_WC_LOC_PROT_ERR);
}

TEST_F(RawPacketQpTest, ScattersAReceivedPacketWithItsTag) {
    make_ready();
    ASSERT_EQ(post_receive(7, {piece(0, 2), piece(200, 8)}), 0);
    arrive({0xa, 0xb, 0xc}, 0x123456);
    const auto done = completions();
    ASSERT_EQ(done.size(), 1u);
    EXPECT_EQ(done[0].wr_id, 7u);
    EXPECT_EQ(done[0].opcode, IBV_WC_RECV);
    EXPECT_EQ(done[0].byte_len, 3u);
    EXPECT_EQ(buffer[0], 0xa);
    EXPECT_EQ(buffer[1], 0xb);
    EXPECT_EQ(buffer[200], 0xc);
}

TEST_F(RawPacketQpTest, APacketWithoutBufferIsDroppedAndCounted) {
    make_ready();
    arrive({1, 2, 3});
    EXPECT_TRUE(completions().empty());
    EXPECT_EQ(Qp::of(qp).raw->receiver().counters().out_of_buffer, 1u);
    EXPECT_EQ(rte_mempool_in_use_count(packet_pool()), 0u);
}

TEST_F(RawPacketQpTest, AQueuePairThatIsNotReadyTakesNothing) {
    create();
    ASSERT_EQ(move(IBV_QPS_INIT), 0);
    ASSERT_EQ(post_receive(1, {piece(0, 64)}), 0);
    arrive({1, 2, 3});
    EXPECT_TRUE(completions().empty());
    EXPECT_EQ(Qp::of(qp).raw->receiver().counters().not_ready, 1u);
}

TEST_F(RawPacketQpTest, ABufferTooSmallIsALengthError) {
    make_ready();
    ASSERT_EQ(post_receive(1, {piece(0, 2)}), 0);
    arrive({1, 2, 3});
    EXPECT_EQ(completions().at(0).status, IBV_WC_LOC_LEN_ERR);
    EXPECT_EQ(Qp::of(qp).raw->state(), IBV_QPS_ERR);
}

TEST_F(RawPacketQpTest, ReceiveBuffersMustBeWritable) {
    make_ready();
    ibv_mr* const read_only = ibv_reg_mr(open.pd, buffer.data(), 64, 0);
    ASSERT_EQ(post_receive(1, {{reinterpret_cast<std::uint64_t>(buffer.data()), 64, read_only->lkey}}), 0);
    arrive({1, 2, 3});
    EXPECT_EQ(completions().at(0).status, IBV_WC_LOC_PROT_ERR);
    EXPECT_EQ(buffer[1], 1) << "its first value";
    EXPECT_EQ(ibv_dereg_mr(read_only), 0);
}

TEST_F(RawPacketQpTest, ResetForgetsWhatWasPostedAndCompleted) {
    make_ready();
    ASSERT_EQ(post_receive(1, {piece(0, 64)}), 0);
    ASSERT_EQ(post_send(2, {piece(0, 1)}), 0);
    EXPECT_EQ(sent().size(), 1u);
    ASSERT_EQ(move(IBV_QPS_RESET), 0);
    EXPECT_TRUE(completions().empty());
    ASSERT_EQ(move(IBV_QPS_INIT), 0);
    ASSERT_EQ(move(IBV_QPS_RTR), 0);
    arrive({1});
    EXPECT_TRUE(completions().empty());
}

TEST_F(RawPacketQpTest, IsBusyWhileARuleHoldsIt) {
    make_ready();
    hold(qp);
    EXPECT_EQ(ibv_destroy_qp(qp), EBUSY);
    release(qp);
}

TEST_F(RawPacketQpTest, DestructionTakesItsCompletionsAlong) {
    make_ready();
    ASSERT_EQ(post_send(2, {piece(0, 1)}), 0);
    EXPECT_EQ(sent().size(), 1u);
    EXPECT_EQ(ibv_destroy_cq(cq), EBUSY);
    ASSERT_EQ(ibv_destroy_qp(qp), 0);
    qp = nullptr;
    EXPECT_TRUE(completions().empty());
}

TEST_F(RawPacketQpTest, AHeaderToSegmentBehindTakesRoomInEachEntry) {
    ibv_qp_init_attr_ex attr{};
    attr.qp_type = IBV_QPT_RAW_PACKET;
    attr.send_cq = attr.recv_cq = cq;
    attr.pd = open.pd;
    attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_MAX_TSO_HEADER;
    attr.cap = {4, 4, 2, 2, 64};
    attr.max_tso_header = 128;
    qp = ibv_create_qp_ex(open.context, &attr);
    ASSERT_NE(qp, nullptr);
    EXPECT_EQ(attr.cap.max_send_wr, 4u);
    EXPECT_EQ(attr.cap.max_inline_data, 204u);  // 48 + 128 + 32 bytes are four blocks, less 48 + 4
    const auto refusal = [&](std::uint16_t header, std::uint32_t pieces) {
        attr.cap = {1, 0, pieces, 0, 0};
        attr.max_tso_header = header;
        errno = 0;
        ibv_qp* const made = ibv_create_qp_ex(open.context, &attr);
        return made ? ibv_destroy_qp(made) : errno;
    };
    EXPECT_EQ(refusal(960, 1), 0) << "1024 bytes";
    EXPECT_EQ(refusal(961, 1), EINVAL);
    EXPECT_EQ(refusal(976, 0), 0);
    EXPECT_EQ(refusal(977, 0), EINVAL);
    EXPECT_EQ(refusal(1024, 0x0ffffffd), EINVAL) << "1024 again, modulo 2^32";
    EXPECT_EQ(refusal(0xffff, 0), EINVAL);
}

TEST_F(RawPacketQpTest, MorePiecesThanAnEntryHasAreRefused) {
    create();
    ASSERT_EQ(move(IBV_QPS_INIT), 0);
    EXPECT_EQ(post_receive(1, {piece(0, 8), piece(8, 8), piece(16, 8)}), EINVAL);
    EXPECT_EQ(post_receive(1, {piece(0, 8), piece(8, 8)}), 0);
}

TEST_F(RawPacketQpTest, OfMlx5sAttributesItTakesThoseThatChangeNothing) {
    const auto answer = [&](std::uint64_t mask, std::uint32_t flags = 0, std::uint64_t operations = 0) {
        ibv_qp_init_attr_ex attr{};
        attr.qp_type = IBV_QPT_RAW_PACKET;
        attr.send_cq = attr.recv_cq = cq;
        attr.pd = open.pd;
        attr.comp_mask = IBV_QP_INIT_ATTR_PD;
        attr.cap = {4, 4, 2, 2, 64};
        mlx5dv_qp_init_attr mlx5{};
        mlx5.comp_mask = mask;
        mlx5.create_flags = flags;
        mlx5.send_ops_flags = operations;
        errno = 0;
        ibv_qp* const made = mlx5dv_create_qp(open.context, &attr, &mlx5);
        return made ? ibv_destroy_qp(made) : errno;
    };
    constexpr std::uint64_t by_flags = MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS;
    for (const auto flag : {MLX5DV_QP_CREATE_TIR_ALLOW_SELF_LOOPBACK_UC, MLX5DV_QP_CREATE_TIR_ALLOW_SELF_LOOPBACK_MC,
                            MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE}) {
        EXPECT_EQ(answer(by_flags, flag), 0) << flag;
    }
    for (const auto flag : {MLX5DV_QP_CREATE_TUNNEL_OFFLOADS, MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE,
                            MLX5DV_QP_CREATE_PACKET_BASED_CREDIT_MODE, MLX5DV_QP_CREATE_SIG_PIPELINING}) {
        EXPECT_EQ(answer(by_flags, flag), EOPNOTSUPP) << flag;
        EXPECT_EQ(answer(0, flag), 0) << "not said";
    }
    EXPECT_EQ(answer(by_flags, 1u << 30), EINVAL);
    EXPECT_EQ(answer(MLX5DV_QP_INIT_ATTR_MASK_DC), EINVAL) << "a type of its own";
    EXPECT_EQ(answer(std::uint64_t{1} << 40), EINVAL);
    EXPECT_EQ(answer(MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS, 0, MLX5DV_QP_EX_WITH_RAW_WQE), EOPNOTSUPP);
    EXPECT_EQ(answer(MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS), EOPNOTSUPP);
}

TEST_F(RawPacketQpTest, AQueueThatOnlyReceivesSendsNothingWhateverWasAsked) {
    ibv_qp_init_attr attr{};
    attr.send_cq = attr.recv_cq = cq;
    attr.qp_type = IBV_QPT_RAW_PACKET;
    attr.cap = {0, 4, 0xffffffff, 2, 0xffffffff};
    qp = ibv_create_qp(open.pd, &attr);
    ASSERT_NE(qp, nullptr);
    EXPECT_EQ(attr.cap.max_send_sge, 0xffffffff) << "as asked";
    EXPECT_EQ(attr.cap.max_inline_data, 0xffffffff);
    for (const ibv_qp_state state : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) ASSERT_EQ(move(state), 0);
    EXPECT_EQ(post_send(1, std::vector<ibv_sge>(200, piece(0, 8)), IBV_SEND_INLINE), ENOMEM);
    EXPECT_EQ(post_send(1, std::vector<ibv_sge>(200, piece(0, 8))), ENOMEM);
    EXPECT_EQ(post_send(1, {piece(0, 60)}), ENOMEM);
}

}  // namespace
}  // namespace ovsdr::soft::test
