// Queue pairs made by raw DEVX commands: CREATE_QP, the modifications, QUERY_QP.
#include "devx_rings.hpp"

namespace ovsdr::soft::test {
namespace {

constexpr unsigned qpc = 192, path = qpc + 192;

struct DevxQueuePair : DevxRings {
    struct Qp : Made {
        std::size_t rings = 0, record = 0;
        std::uint16_t sent = 0, received = 0;
    };
    /// The receive ring's 16 strides of 64 bytes, then the send ring's 16 blocks.
    Qp make(std::uint32_t cqn, std::uint32_t user_index, const Mailbox* changed = nullptr) {
        Qp qp;
        Mailbox in = changed ? *changed : qp_command(cqn);
        qp.rings = in.get(2048, 64);
        qp.record = in.get(qpc + 1280, 64);
        static_cast<Made&>(qp) = create(in.put(qpc + 136, 24, user_index));
        EXPECT_NE(qp.object, nullptr) << "status " << out.get(0, 8);
        return qp;
    }
    /// To RTS, joined with `peer` on this device.
    void connect(const Qp& qp, const Qp& peer) {
        Mailbox to_init(0x502, 272), to_rtr(0x503, 272), to_rts(0x504, 272);
        to_init.put(72, 24, qp.number).put(path + 296, 8, 1).put(qpc + 1168, 3, 7);
        ibv_gid own{};
        ASSERT_EQ(ibv_query_gid(context, 1, 0, &own), 0);
        to_rtr.put(72, 24, qp.number)
            .put(qpc + 64, 3, 3)
            .put(qpc + 168, 24, peer.number)
            .put(path + 88, 8, 64)
            .put(path + 296, 8, 1);
        for (unsigned i = 0; i < sizeof own.raw; ++i) to_rtr.put(path + 128 + 8 * i, 8, own.raw[i]);
        to_rts.put(72, 24, qp.number).put(path + 64, 5, 14).put(qpc + 909, 3, 7).put(qpc + 912, 3, 7);
        for (const Mailbox& in : {to_init, to_rtr, to_rts}) {
            ASSERT_EQ(modify(qp, in), 0) << in.get(0, 16) << ": " << out.get(0, 8);
        }
    }
    unsigned state_of(const Qp& qp) {
        const Mailbox in = Mailbox(0x50b, 16).put(72, 24, qp.number);
        Mailbox answer(272);
        EXPECT_EQ(mlx5dv_devx_obj_query(qp.object, in.bytes.data(), in.bytes.size(), answer.bytes.data(),
                                        answer.bytes.size()), 0);
        return static_cast<unsigned>(answer.get(qpc, 4));
    }
    void receive(Qp& qp, std::size_t at, std::uint32_t size) {
        auto* const segments = place<mlx5_wqe_data_seg>(qp.rings) + qp.received++ % 16 * 4;
        mlx5dv_set_data_seg(segments, size, mr->lkey, reinterpret_cast<std::uintptr_t>(memory.data() + at));
        mlx5dv_set_data_seg(segments + 1, 0, MLX5_INVALID_LKEY, 0);
        std::atomic_ref(place<__be32>(qp.record)[MLX5_RCV_DBR]).store(htobe32(qp.received), std::memory_order_release);
    }
    void send(Qp& qp, std::size_t at, std::uint32_t size, std::uint32_t lkey) {
        std::byte* const block = reinterpret_cast<std::byte*>(memory.data() + qp.rings) + 1024 + qp.sent % 16 * 64;
        mlx5dv_set_ctrl_seg(reinterpret_cast<mlx5_wqe_ctrl_seg*>(block), qp.sent++, MLX5_OPCODE_SEND, 0, qp.number,
                            MLX5_WQE_CTRL_CQ_UPDATE, 2, 0, 0);
        mlx5dv_set_data_seg(reinterpret_cast<mlx5_wqe_data_seg*>(block + 16), size, lkey,
                            reinterpret_cast<std::uintptr_t>(memory.data() + at));
        std::atomic_ref(place<__be32>(qp.record)[MLX5_SND_DBR]).store(htobe32(qp.sent), std::memory_order_release);
    }
    /// 64-byte CQEs: the user index is where an SRQ's number would be.
    static std::uint32_t user_index(const mlx5_cqe64& cqe) { return be32toh(cqe.srqn_uidx) & 0xffffff; }
    static unsigned opcode(const mlx5_cqe64& cqe) { return cqe.op_own >> 4; }
};

TEST_F(DevxQueuePair, ItsCompletionsNameItByItsUserIndex) {
    Cq sent = make_cq(), received = make_cq();
    Qp sender = make(sent.number, 0xabcde), receiver = make(received.number, 0x54321);
    connect(sender, receiver);
    connect(receiver, sender);
    EXPECT_EQ(state_of(sender), 3u);
    const std::size_t from = take(100), to = take(100);
    memory[from + 99] = 0x5a;
    receive(receiver, to, 100);
    receive(receiver, to, 100);
    send(sender, from, 100, mr->lkey);
    const mlx5_cqe64* cqe = wait(received);
    ASSERT_NE(cqe, nullptr);
    EXPECT_EQ(opcode(*cqe), unsigned{MLX5_CQE_RESP_SEND});
    EXPECT_EQ(user_index(*cqe), 0x54321u);
    EXPECT_EQ(be32toh(cqe->sop_drop_qpn) & 0xffffff, receiver.number);
    EXPECT_EQ(memory[to + 99], 0x5a);
    cqe = wait(sent);
    ASSERT_NE(cqe, nullptr);
    EXPECT_EQ(opcode(*cqe), unsigned{MLX5_CQE_REQ});
    EXPECT_EQ(user_index(*cqe), 0xabcdeu);

    send(sender, from, 100, mr->lkey + 0x100);
    cqe = wait(sent);
    ASSERT_NE(cqe, nullptr);
    EXPECT_EQ(opcode(*cqe), unsigned{MLX5_CQE_REQ_ERR});
    EXPECT_EQ(reinterpret_cast<const mlx5_err_cqe*>(cqe)->syndrome, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR);
    EXPECT_EQ(be32toh(reinterpret_cast<const mlx5_err_cqe*>(cqe)->srqn) & 0xffffff, 0xabcdeu);
    EXPECT_EQ(state_of(sender), 6u);
    Mailbox to_error(0x507, 272);
    ASSERT_EQ(modify(receiver, to_error.put(72, 24, receiver.number)), 0);
    cqe = wait(received);
    ASSERT_NE(cqe, nullptr) << "its other receive entry is flushed";
    EXPECT_EQ(reinterpret_cast<const mlx5_err_cqe*>(cqe)->syndrome, MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
    EXPECT_EQ(be32toh(reinterpret_cast<const mlx5_err_cqe*>(cqe)->srqn) & 0xffffff, 0x54321u);
}

TEST_F(DevxQueuePair, RefusesWhatTheDeviceDoesNotHave) {
    struct Field {
        unsigned offset, width;
        const char* name;
    };
    const Cq cq = make_cq();
    for (const auto& [offset, width, name] :
         {Field{18, 1, "isolate_vl_tc"}, Field{24, 4, "offload_type"}, Field{28, 2, "end_padding_mode"},
          Field{32, 1, "wq_signature"}, Field{34, 1, "atomic_like_write_en"}, Field{37, 1, "drain_sigerr"},
          Field{90, 1, "data_in_order"}, Field{91, 1, "rlky"}, Field{92, 4, "ulp_stateless_offload_mode"},
          Field{96, 8, "counter_set_id"}, Field{1032, 24, "deth_sqpn"}, Field{1172, 6, "page_offset"},
          Field{1181, 1, "cd_slave_receive"}, Field{1182, 1, "cd_slave_send"}, Field{1183, 1, "cd_master"},
          Field{1584, 8, "cs_req"}, Field{1592, 8, "cs_res"}}) {
        const auto mark = taken;
        for (const std::uint64_t value : {std::uint64_t{1}, std::uint64_t{1} << (width - 1)}) {
            EXPECT_EQ(refusal(qp_command(cq.number).put(qpc + offset, width, value)), bad_param) << name;
            taken = mark;
        }
    }
    EXPECT_EQ(refusal(qp_command(cq.number).put(qpc + 8, 8, 3)), bad_param) << "a service that is made otherwise";
    EXPECT_EQ(refusal(qp_command(cq.number).put(qpc + 1381, 3, 1)), bad_param) << "an SRQ";
    EXPECT_EQ(refusal(qp_command(cq.number).put(qpc + 1667, 1, 0)), bad_param) << "no doorbell record";
    EXPECT_EQ(refusal(qp_command(cq.number).put(2144, 1, 0)), bad_param) << "no rings";
    EXPECT_EQ(refusal(qp_command(cq.number).put(2048, 64, memory.size() - 64)), bad_param)
        << "rings past the UMEM's end";
    EXPECT_EQ(refusal(qp_command(cq.number).put(qpc + 40, 24, 0xfffff)), bad_res) << "no such PD";
    EXPECT_EQ(refusal(qp_command(0x9999)), bad_res) << "no such CQ";
    EXPECT_EQ(refusal(qp_command(cq.number).put(qpc + 1256, 24, 0x9999)), bad_res) << "no such CQ for receives";
    EXPECT_NE(create(qp_command(cq.number)).object, nullptr);
}

TEST_F(DevxQueuePair, TimestampsAreFreeRunning) {
    Cq cq = make_cq();
    const Made tis = make_tis();
    for (const unsigned format : {0u, 1u}) {
        Queue sq, rq;
        EXPECT_NE(create(qp_command(cq.number).put(qpc + 88, 2, format)).object, nullptr);
        EXPECT_NE(create(sq_command(sq, cq.number, tis.number).put(256 + 26, 2, format)).object, nullptr);
        EXPECT_NE(create(rq_command(rq, cq.number, true).put(256 + 26, 2, format)).object, nullptr);
    }
    for (const unsigned format : {2u, 3u}) {
        Queue sq, rq;
        EXPECT_EQ(refusal(qp_command(cq.number).put(qpc + 88, 2, format)), bad_param) << "a real-time clock";
        EXPECT_EQ(refusal(sq_command(sq, cq.number, tis.number).put(256 + 26, 2, format)), bad_param);
        EXPECT_EQ(refusal(rq_command(rq, cq.number, true).put(256 + 26, 2, format)), bad_param);
    }
}

}  // namespace
}  // namespace ovsdr::soft::test
