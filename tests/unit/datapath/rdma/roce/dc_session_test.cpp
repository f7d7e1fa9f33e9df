// Sessions of DC targets: forged packets, room for them, whose turn it is, and by which way they are answered.
#include "dc.hpp"

namespace ovsdr::soft::roce::test {
namespace {

/// Packets that an initiator has sent, changed.
struct DcForgedTest : DcTest {
    static constexpr std::size_t ip = 14, bth = 14 + 20 + 8, body = bth + 12;  ///< body: stream, session, source

    Frame connect, request, answer;
    /// Keeps the first of each while the left initiator writes to the target.
    void SetUp() override {
        wire = [this](const Frame& frame, bool from_left) {
            Frame& kept = !from_left ? answer : connect.empty() ? connect : request;
            if (kept.empty()) kept = frame;
            return 1u;
        };
        initiator.post({.opcode = MLX5_OPCODE_ATOMIC_FA, .sges = {initiator.piece(0, 8)},
                        .remote = target.queue.address(), .rkey = target.queue.region.key, .swap_add = 1,
                        .address = &to_target});
        run();
        ASSERT_EQ(statuses(initiator.sends()), std::vector{IBV_WC_SUCCESS});
        ASSERT_FALSE(answer.empty());
        wire = [](const Frame&, bool) { return 1u; };
    }
    static Frame with(Frame frame, std::size_t at, std::uint32_t value) {
        const __be32 word = htobe32(value);
        std::memcpy(frame.data() + at, &word, sizeof word);
        return sealed(frame);
    }
    /// With its lengths and its ICRC.
    static Frame sealed(Frame frame) {
        const auto put = [&frame](std::size_t at, std::size_t size) {
            frame[at] = static_cast<std::byte>(size >> 8);
            frame[at + 1] = static_cast<std::byte>(size);
        };
        put(ip + 2, frame.size() - ip);
        put(ip + 20 + 4, frame.size() - ip - 20);
        const std::uint32_t crc = icrc(frame.data() + ip, true, frame.size() - ip - 4);
        std::memcpy(frame.data() + frame.size() - 4, &crc, 4);
        return frame;
    }
    static Frame of_opcode(Frame frame, std::uint8_t opcode) {
        frame[bth] = std::byte{opcode};
        return sealed(frame);
    }
    /// What the right node says to these.
    std::size_t answers(const std::vector<Frame>& frames) {
        for (const Frame& frame : frames) right.receive(frame);
        std::size_t count = 0;
        for (int i = 0; i < 3; ++i) {
            (void)right.turn(now += 1000);
            count += right.sent.size();
            right.sent.clear();
        }
        return count;
    }
    [[nodiscard]] std::uint64_t counted() {
        std::uint64_t value = 0;
        std::memcpy(&value, target.queue.memory.data(), sizeof value);
        return value;
    }
};

TEST_F(DcForgedTest, ARequestIsOfItsSession) {
    EXPECT_EQ(answers({request}), 1U) << "again";
    EXPECT_EQ(answers({with(request, body + 4, 1)}), 0U) << "another session";
    EXPECT_EQ(answers({with(request, body, 3)}), 0U) << "another stream";
    EXPECT_EQ(answers({with(request, body + 8, 0x700)}), 0U) << "another initiator";
    EXPECT_EQ(answers({with(request, ip + 12, 0xc0000209)}), 0U) << "another node";
    EXPECT_EQ(counted(), 1U);
}

TEST_F(DcForgedTest, EachNodeInitiatorAndStreamHasASessionOfItsOwn) {
    EXPECT_EQ(answers({with(connect, ip + 12, 0xc0000209), with(request, ip + 12, 0xc0000209)}), 1U);
    EXPECT_EQ(counted(), 2U);
    for (std::uint32_t i = 1; i <= 300; ++i) {
        EXPECT_EQ(answers({with(connect, body, i), with(request, body, i)}), 1U);
        EXPECT_EQ(answers({with(connect, body + 8, 0x10000 + i), with(request, body + 8, 0x10000 + i)}), 1U);
    }
    EXPECT_EQ(counted(), 602U);
}

TEST_F(DcForgedTest, ManySessionsAreAnsweredInTheirTurns) {
    std::vector<Frame> all;
    for (std::uint32_t i = 1; i <= 40; ++i) {
        all.push_back(with(connect, body, i));
        all.push_back(with(request, body, i));
    }
    EXPECT_EQ(answers(all), 40U);
}

TEST_F(DcForgedTest, AnAnswerIsNoRequest) {
    // The middle of a read's answer, whose bytes are what would make it the session's.
    EXPECT_EQ(answers({of_opcode(Frame(request.begin(), request.begin() + body + 12 + 4), 0x4e)}), 0U);
    EXPECT_EQ(answers({request}), 1U) << "the session is as it was";
}

TEST_F(DcForgedTest, WhatFollowsAFailureIsNotAnswered) {
    Frame next = with(request, bth + 8, 0x80fffff1);
    EXPECT_EQ(answers({with(next, body + 12 + 8, 0)}), 1U) << "a key that is unknown";
    EXPECT_EQ(answers({next, request}), 0U);
    EXPECT_EQ(counted(), 1U);
}

TEST_F(DcForgedTest, RefusalsThatWaitAreSixteenAtMost) {
    std::vector<Frame> all;
    for (std::uint32_t i = 0; i < 20; ++i) all.push_back(with(with(connect, body + 8, 0x700 + i), body + 12, 0));
    EXPECT_EQ(answers(all), 16U);
    EXPECT_EQ(answers({all[0]}), 1U);
}

TEST_F(DcForgedTest, ARefusalWaitsForABuffer) {
    // What arrived gives no buffer back.
    rte_mempool* const others = rte_pktmbuf_pool_create("others", 1, 0, 0, 2048, 0);
    ASSERT_NE(others, nullptr);
    right.receive(with(connect, body + 12, 0), uplink_vport, others);
    std::vector<rte_mbuf*> taken;
    for (rte_mbuf* one = nullptr; (one = rte_pktmbuf_alloc(soft::test::packet_pool())) != nullptr;) {
        taken.push_back(one);
    }
    for (int i = 0; i < 3; ++i) (void)right.turn(now += 1000);
    EXPECT_TRUE(right.sent.empty());
    for (rte_mbuf* one : taken) rte_pktmbuf_free(one);
    EXPECT_EQ(answers({}), 1U);
    rte_mempool_free(others);
}

TEST_F(DcForgedTest, WhatHasEndedMakesRoomBeforeWhatIsOpen) {
    for (std::uint32_t i = 1; i < DcTarget::most_sessions; ++i) {
        now += 1000;
        (void)answers({with(connect, body + 8, 0x10000 + i)});
    }
    const Frame another = with(connect, body + 8, 0x20000), of_another = with(request, body + 8, 0x20000);
    EXPECT_EQ(answers({another, of_another}), 1U) << "not ready";
    EXPECT_EQ(counted(), 1U);
    Frame end = with(connect, body + 8, 0x10000 + 500);
    end.erase(end.begin() + body + 12, end.begin() + body + 20);
    EXPECT_EQ(answers({of_opcode(end, 0x58)}), 0U);
    EXPECT_EQ(answers({another, of_another}), 1U);
    EXPECT_EQ(counted(), 2U);
    for (const std::uint32_t i : {1U, 499U, 501U, 1023U}) {
        EXPECT_EQ(answers({with(request, body + 8, 0x10000 + i)}), 1U) << "is still there";
    }
    EXPECT_EQ(counted(), 6U);
    // Later the one that was silent for longest goes.
    now += DcTarget::silence - 1'000'000;
    (void)answers({with(request, body + 8, 0x10000 + 2)});
    now += 2'000'000;
    const Frame third = with(connect, body + 8, 0x30000);
    EXPECT_EQ(answers({third, with(request, body + 8, 0x30000)}), 1U);
    EXPECT_EQ(counted(), 8U);
    EXPECT_EQ(answers({with(request, body + 8, 0x10000 + 2)}), 1U) << "again";
    EXPECT_EQ(counted(), 8U);
}

TEST_F(DcForgedTest, AnswersAreOfTheTargetAndForAStreamThatIsThere) {
    wire = [](const Frame&, bool from_left) { return from_left ? 1u : 0u; };
    initiator.post({.opcode = MLX5_OPCODE_RDMA_WRITE, .sges = {initiator.piece(0, 8)},
                    .remote = target.queue.address(64), .rkey = target.queue.region.key, .address = &to_target});
    run({}, 100'000);
    Frame acknowledge = answer;  // an atomic's: without its value
    acknowledge.erase(acknowledge.begin() + body + 8, acknowledge.begin() + body + 16);
    acknowledge = with(of_opcode(acknowledge, 0x51), bth + 8, 0xfffff1);
    for (const Frame& wrong : {with(acknowledge, body, 1), with(acknowledge, ip + 12, 0xc0000209)}) {
        left.receive(wrong);
        run({}, 100'000);
        EXPECT_TRUE(initiator.sends().empty());
    }
    left.receive(acknowledge);
    run({}, 100'000);
    EXPECT_EQ(statuses(initiator.sends()), std::vector{IBV_WC_SUCCESS});
}

TEST_F(DcTest, ALongReadIsAnsweredInSeveralTurns) {
    Queue& there = target.queue;
    fill(there.memory, 4);
    initiator.post({.opcode = MLX5_OPCODE_RDMA_READ, .sges = {initiator.piece(0, 60'000)}, .remote = there.address(),
                    .rkey = there.region.key, .address = &to_target});
    run();
    EXPECT_EQ(statuses(initiator.sends()), std::vector{IBV_WC_SUCCESS});
    EXPECT_TRUE(std::equal(there.memory.begin(), there.memory.begin() + 60'000, initiator.memory.begin()));
}

TEST_F(DcTest, WithoutBuffersSessionsWait) {
    std::vector<rte_mbuf*> taken;
    const auto starve = [&] {
        for (rte_mbuf* one = nullptr; (one = rte_pktmbuf_alloc(soft::test::packet_pool())) != nullptr;) {
            taken.push_back(one);
        }
        for (int i = 0; i < 3; ++i) EXPECT_NE(left.turn(now += 1000), 0U);
        EXPECT_TRUE(left.sent.empty());
        for (rte_mbuf* one : taken) rte_pktmbuf_free(one);
        taken.clear();
    };
    Target second(right);
    target.post(0);
    second.post(0);
    const mlx5_wqe_av to_second = vector_to(second.queue), wrong = vector_to(target.queue, 1);
    watch();
    for (const mlx5_wqe_av* const address : std::array<const mlx5_wqe_av*, 3>{&to_target, &to_second, &wrong}) {
        initiator.post({.sges = {initiator.piece(0, 10)}, .address = address});
        starve();
        run();
    }
    EXPECT_EQ(statuses(initiator.sends()), (std::vector{IBV_WC_SUCCESS, IBV_WC_SUCCESS, IBV_WC_REM_ACCESS_ERR}));
    EXPECT_EQ(opcodes, (std::vector<std::uint8_t>{0x55, 0x44, 0x51, 0x58, 0x55, 0x44, 0x51, 0x58, 0x55, 0x44, 0x51}));
}

TEST_F(DcTest, ATargetIsAtItsOwnAddressOnly) {
    mlx5_wqe_av elsewhere = to_target;
    ibv_ah_attr attr{};
    attr.is_global = attr.port_num = 1;
    attr.grh.sgid_index = 2;
    attr.grh.dgid = right.gid(2);
    ASSERT_EQ(resolve(left.state(), attr, elsewhere), 0);
    elsewhere.dqp_dct = to_target.dqp_dct;
    elsewhere.key = to_target.key;
    target.post(0);
    initiator.post({.sges = {initiator.piece(0, 10)}, .address = &elsewhere});
    run();
    EXPECT_EQ(statuses(initiator.sends()), std::vector{IBV_WC_RETRY_EXC_ERR});
}

TEST_F(DcTest, AnswersHaveTheTargetsRoute) {
    struct Case {
        unsigned gid;
        std::uint8_t hop_limit;
        std::uint32_t label;
    };
    for (const Case& one : {Case{1, 0, 0}, Case{2, 9, 0x12345}, Case{4, 9, 0x12345}}) {
        ibv_qp_attr attr = Queue::usual();
        attr.port_num = attr.ah_attr.port_num = attr.ah_attr.is_global = 1;
        attr.ah_attr.sl = 6;
        attr.ah_attr.grh = {.dgid = {}, .flow_label = one.label, .sgid_index = static_cast<std::uint8_t>(one.gid),
                            .hop_limit = one.hop_limit, .traffic_class = 0x48};
        Queue there(right, {.type = IBV_QPT_DRIVER,
                            .srq = &target.srq,
                            .dc = DcSpec{.end = MLX5DV_DCTYPE_DCT, .access_key = access_key}});
        ASSERT_EQ(there.to(IBV_QPS_INIT, attr, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), 0);
        ASSERT_EQ(there.to(IBV_QPS_RTR, attr, IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_MIN_RNR_TIMER), 0);
        ibv_ah_attr to{};
        to.is_global = to.port_num = 1;
        to.grh.sgid_index = static_cast<std::uint8_t>(one.gid);
        to.grh.dgid = right.gid(one.gid);
        mlx5_wqe_av vector{};
        ASSERT_EQ(resolve(left.state(), to, vector), 0);
        vector.dqp_dct = htobe32(there.number() | MLX5_EXTENDED_UD_AV);
        vector.key.dc_key = htobe64(access_key);
        Frame answer;
        wire = [&](const Frame& frame, bool from_left) {
            if (!from_left) answer = frame;
            return 1u;
        };
        Initiator from(left);
        from.post({.opcode = MLX5_OPCODE_RDMA_WRITE,
                   .sges = {from.piece(0, 8)},
                   .remote = there.address(),
                   .rkey = there.region.key,
                   .address = &vector});
        run();
        ASSERT_EQ(statuses(from.sends()), std::vector{IBV_WC_SUCCESS});
        const auto byte = [&answer](std::size_t at) { return std::to_integer<unsigned>(answer.at(at)); };
        if (one.gid == 4) {
            EXPECT_EQ(byte(14), 6U << 5);
            answer.erase(answer.begin() + 12, answer.begin() + 16);
        }
        const bool ipv4 = one.gid == 1;
        EXPECT_EQ(byte(ipv4 ? 22 : 21), one.hop_limit ? one.hop_limit : 64U);
        EXPECT_EQ(ipv4 ? byte(15) : (byte(14) << 4 | byte(15) >> 4) & 0xff, 0x48U);
        const std::size_t udp = ipv4 ? 34 : 54;
        std::uint64_t label = one.label;
        if (label == 0) {  // rdma_calc_flow_label() of Linux
            label = std::uint64_t{there.number()} * from.number();
            label ^= label >> 20;
            label ^= label >> 40;
        }
        EXPECT_EQ(byte(udp) << 8 | byte(udp + 1),
                  ibv_flow_label_to_udp_sport(static_cast<std::uint32_t>(label & 0xfffff)));
    }
}

TEST_F(DcTest, EntriesOfStreamsThatAreNotSignaledAreFreedAndNotTold) {
    Initiator sender(left, streams(1, 1));
    for (std::uint64_t i = 0; i < 4; ++i) target.post(i);
    for (std::uint16_t i = 0; i < 4; ++i) {
        sender.post(
            {.sges = {sender.piece(0, 10)}, .signaled = i == 2, .wr_id = i, .address = &to_target, .stream = i});
    }
    run();
    const auto done = sender.sends();
    ASSERT_EQ(done.size(), 1U);
    EXPECT_EQ(done[0].wr_id, 2U);
    EXPECT_EQ(target.queue.receives_done().size(), 4U);
    EXPECT_EQ(sender.send_freed, 6U) << "entries of two blocks";
}

TEST_F(DcTest, AnInitiatorFailsFromEveryState) {
    ibv_qp_attr attr = Queue::usual();
    attr.port_num = 1;
    for (unsigned steps = 1; steps <= 2; ++steps) {
        Queue dci(left, {.type = IBV_QPT_DRIVER, .dc = DcSpec{.end = MLX5DV_DCTYPE_DCI}});
        ASSERT_EQ(dci.to(IBV_QPS_INIT, attr, IBV_QP_PKEY_INDEX | IBV_QP_PORT), 0);
        ASSERT_EQ(dci.to(IBV_QPS_INIT, attr, IBV_QP_PKEY_INDEX | IBV_QP_PORT), 0);
        ASSERT_EQ(dci.to(IBV_QPS_INIT), 0);
        attr.ah_attr.is_global = 0;
        EXPECT_EQ(dci.to(IBV_QPS_RTR, attr, IBV_QP_PATH_MTU | IBV_QP_AV), EINVAL);
        attr.ah_attr.is_global = 1;
        attr.ah_attr.grh.sgid_index = 5;
        EXPECT_EQ(dci.to(IBV_QPS_RTR, attr, IBV_QP_PATH_MTU | IBV_QP_AV), EINVAL) << "one past the last";
        attr.ah_attr.grh.sgid_index = 4;
        if (steps == 2) {
            EXPECT_EQ(dci.to(IBV_QPS_RTR, attr, IBV_QP_PATH_MTU | IBV_QP_AV | IBV_QP_PKEY_INDEX), 0);
        }
        EXPECT_EQ(dci.to(IBV_QPS_ERR, attr, IBV_QP_QKEY), EINVAL);
        EXPECT_EQ(dci.to(IBV_QPS_ERR), 0);
        EXPECT_EQ(dci.to(IBV_QPS_ERR), 0);
        EXPECT_EQ(dci.to(IBV_QPS_RESET, attr, IBV_QP_QKEY), EINVAL);
        EXPECT_EQ(dci.to(IBV_QPS_RESET), 0);
    }
}

TEST_F(DcTest, APacketForAnotherServiceIsDropped) {
    // RC's opcode to a DCT, and DC's to an RC queue pair.
    Queue plain(right, {}), peer(left, {});
    peer.connect(target.queue);
    plain.connect(peer);
    target.post(0);
    plain.post_receive(0, {plain.piece(0, 100)});
    peer.post({.sges = {peer.piece(0, 10)}});
    const mlx5_wqe_av to_plain = vector_to(plain);
    initiator.post({.sges = {initiator.piece(0, 10)}, .address = &to_plain});
    run();
    EXPECT_EQ(statuses(peer.sends()), std::vector{IBV_WC_RETRY_EXC_ERR});
    EXPECT_EQ(statuses(initiator.sends()), std::vector{IBV_WC_RETRY_EXC_ERR});
    EXPECT_TRUE(target.queue.receives_done().empty());
    EXPECT_TRUE(plain.receives_done().empty());
}

}  // namespace
}  // namespace ovsdr::soft::roce::test
