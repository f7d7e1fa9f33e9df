// The DC transport: what arrives, what is refused, loss, streams, and the bytes of its packets.
#include "dc.hpp"

namespace ovsdr::soft::roce::test {
namespace {

TEST_F(DcTest, EveryOperationArrives) {
    fill(initiator.memory, 1);
    for (std::uint64_t i = 0; i < 3; ++i) target.post(i);
    Queue& there = target.queue;
    initiator.post({.sges = {initiator.piece(0, 4000)}, .address = &to_target});
    initiator.post({.opcode = MLX5_OPCODE_SEND_IMM,
                    .sges = {initiator.piece(5, 100)},
                    .immediate = htobe32(7),
                    .address = &to_target});
    initiator.post({.opcode = MLX5_OPCODE_RDMA_WRITE, .sges = {initiator.piece(0, 3000)}, .remote = there.address(),
                    .rkey = there.region.key, .address = &to_target});
    initiator.post({.opcode = MLX5_OPCODE_RDMA_WRITE_IMM, .sges = {initiator.piece(0, 8)},
                    .remote = there.address(4096), .rkey = there.region.key, .immediate = htobe32(8),
                    .address = &to_target});
    initiator.post({.opcode = MLX5_OPCODE_RDMA_READ, .sges = {initiator.piece(8192, 3000)}, .remote = there.address(),
                    .rkey = there.region.key, .address = &to_target});
    initiator.post({.opcode = MLX5_OPCODE_ATOMIC_FA, .sges = {initiator.piece(16384, 8)}, .remote = there.address(4096),
                    .rkey = there.region.key, .swap_add = 1, .address = &to_target});
    std::uint64_t before = 0, after = 0;
    std::memcpy(&before, initiator.memory.data(), 8);
    run();
    EXPECT_EQ(statuses(initiator.sends()), std::vector(6, IBV_WC_SUCCESS));
    const auto received = there.receives_done();
    ASSERT_EQ(received.size(), 3U);
    EXPECT_EQ(received[0].byte_len, 4000U);
    EXPECT_EQ(received[0].qp_num, there.number());
    EXPECT_EQ(received[1].imm_data, htobe32(7));
    EXPECT_EQ(received[2].opcode, IBV_WC_RECV_RDMA_WITH_IMM);
    EXPECT_TRUE(std::equal(initiator.memory.begin(), initiator.memory.begin() + 4000, target.buffers.begin()));
    EXPECT_TRUE(std::equal(initiator.memory.begin(), initiator.memory.begin() + 3000, there.memory.begin()));
    EXPECT_TRUE(std::equal(initiator.memory.begin(), initiator.memory.begin() + 3000, initiator.memory.begin() + 8192));
    EXPECT_EQ(std::memcmp(initiator.memory.data() + 16384, &before, 8), 0);
    std::memcpy(&after, there.memory.data() + 4096, 8);
    EXPECT_EQ(after, before + 1);
    EXPECT_EQ(initiator.send_freed, initiator.posted);
    EXPECT_TRUE(there.events.empty());
}

TEST_F(DcTest, PacketsHaveTheirHeaders) {
    watch();
    target.post(0);
    initiator.post({.opcode = MLX5_OPCODE_SEND_IMM, .inlined = Frame(5, std::byte{0xaa}),
                    .immediate = htobe32(0x01020304), .address = &to_target});
    run();
    ASSERT_EQ(opcodes, (std::vector<std::uint8_t>{0x55, 0x45, 0x51}));
    constexpr std::size_t bth = 14 + 20 + 8;
    const auto word = [&](const Frame& frame, std::size_t at) {
        std::uint32_t value = 0;
        std::memcpy(&value, frame.data() + bth + at, 4);
        return be32toh(value);
    };
    const Frame &connect = packets[0], &send = packets[1], &acknowledge = packets[2];
    // Behind a BTH of 12 bytes: stream, session, source; the key of 64 bits; the ICRC.
    ASSERT_EQ(connect.size(), bth + 12 + 12 + 8 + 4);
    EXPECT_EQ(word(connect, 4), target.queue.number());
    EXPECT_EQ(word(connect, 8), 0xfffff0U);
    EXPECT_EQ(word(connect, 12), 0U);
    EXPECT_EQ(word(connect, 20), initiator.number());
    EXPECT_EQ(word(connect, 24), 0x11223344U);
    EXPECT_EQ(word(connect, 28), 0x55667788U);
    ASSERT_EQ(send.size(), bth + 12 + 12 + 4 + 8 + 4);
    EXPECT_EQ(word(send, 0), 0x4570ffffU) << "3 bytes of padding";
    EXPECT_EQ(word(send, 8), 0x80fffff0U) << "the number that the connect packet announced";
    EXPECT_EQ(word(send, 16), word(connect, 16));
    EXPECT_EQ(word(send, 24), 0x01020304U);
    EXPECT_EQ(word(send, 28), 0xaaaaaaaaU);
    ASSERT_EQ(acknowledge.size(), bth + 12 + 4 + 4 + 4);
    EXPECT_EQ(word(acknowledge, 4), initiator.number());
    EXPECT_EQ(word(acknowledge, 12), 0U);
    EXPECT_EQ(word(acknowledge, 16), 0x1f000001U);
}

TEST_F(DcTest, ATargetIsLeftBeforeTheNextIsJoined) {
    Target second(right);
    const mlx5_wqe_av to_second = vector_to(second.queue);
    for (std::uint64_t i = 0; i < 4; ++i) {
        target.post(i);
        second.post(i);
    }
    watch();
    const mlx5_wqe_av* const order[] = {&to_target, &to_target, &to_second, &to_target};
    for (const mlx5_wqe_av* address : order) initiator.post({.sges = {initiator.piece(0, 10)}, .address = address});
    run();
    EXPECT_EQ(statuses(initiator.sends()), std::vector(4, IBV_WC_SUCCESS));
    EXPECT_EQ(target.queue.receives_done().size(), 3U);
    EXPECT_EQ(second.queue.receives_done().size(), 1U);
    std::vector<std::uint8_t> of_sessions;
    std::copy_if(opcodes.begin(), opcodes.end(), std::back_inserter(of_sessions),
                 [](std::uint8_t opcode) { return opcode == 0x55 || opcode == 0x58; });
    EXPECT_EQ(of_sessions, (std::vector<std::uint8_t>{0x55, 0x58, 0x55, 0x58, 0x55}));
}

TEST_F(DcTest, AWrongKeyIsARemoteAccessError) {
    const mlx5_wqe_av wrong = vector_to(target.queue, access_key ^ std::uint64_t{1} << 63);
    target.post(0);
    initiator.post({.sges = {initiator.piece(0, 10)}, .address = &wrong});
    initiator.post({.sges = {initiator.piece(0, 10)}, .address = &to_target});
    run();
    EXPECT_EQ(statuses(initiator.sends()), (std::vector{IBV_WC_REM_ACCESS_ERR, IBV_WC_WR_FLUSH_ERR}));
    EXPECT_EQ(initiator.pair->state(), IBV_QPS_ERR);
    EXPECT_EQ(target.queue.pair->state(), IBV_QPS_RTR);
    EXPECT_TRUE(target.queue.receives_done().empty());
}

TEST_F(DcTest, AFailedRequestFailsTheSessionAndNotTheTarget) {
    Queue::Work work{.opcode = MLX5_OPCODE_RDMA_WRITE, .sges = {initiator.piece(0, 10)},
                     .remote = target.queue.address(), .rkey = target.queue.region.key + 0x100, .address = &to_target};
    initiator.post(work);
    run();
    EXPECT_EQ(statuses(initiator.sends()), std::vector{IBV_WC_REM_ACCESS_ERR});
    EXPECT_TRUE(target.queue.events.empty());
    // Another initiator, and this one once it is reset, are served.
    Initiator other(left);
    work.rkey -= 0x100;
    Queue::Work of_other = work;
    of_other.sges = {other.piece(0, 10)};
    other.post(of_other);
    ASSERT_EQ(initiator.to(IBV_QPS_RESET), 0);
    initiator.posted = 0;
    initiator.send_doorbell = 0;
    initiator.send_freed = 0;
    initiator.to_rts();
    initiator.post(work);
    run();
    EXPECT_EQ(statuses(other.sends()), std::vector{IBV_WC_SUCCESS});
    EXPECT_EQ(statuses(initiator.sends()), std::vector{IBV_WC_SUCCESS});
}

TEST_F(DcTest, TheTargetsAccessFlagsCount) {
    ibv_qp_attr attr = Queue::usual();
    attr.port_num = attr.ah_attr.port_num = 1;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.grh.sgid_index = 1;
    attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
    Queue strict(right,
                 {.type = IBV_QPT_DRIVER, .srq = &target.srq, .dc = DcSpec{.end = MLX5DV_DCTYPE_DCT, .access_key = 5}});
    ASSERT_EQ(strict.to(IBV_QPS_INIT, attr, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), 0);
    ASSERT_EQ(strict.to(IBV_QPS_RTR, attr, IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_MIN_RNR_TIMER), 0);
    const mlx5_wqe_av address = vector_to(strict, 5);
    for (const std::uint8_t opcode : {MLX5_OPCODE_RDMA_WRITE, MLX5_OPCODE_RDMA_READ, MLX5_OPCODE_ATOMIC_FA}) {
        Initiator from(left);
        from.post({.opcode = opcode, .sges = {from.piece(0, 8)}, .remote = strict.address(), .rkey = strict.region.key,
                   .address = &address});
        run();
        EXPECT_EQ(statuses(from.sends()),
                  std::vector{opcode == MLX5_OPCODE_RDMA_WRITE ? IBV_WC_SUCCESS : IBV_WC_REM_ACCESS_ERR});
    }
}

TEST_F(DcTest, AnEmptySrqIsWaitedFor) {
    ibv_qp_attr attr = Queue::usual();
    attr.rnr_retry = 2;
    Initiator impatient(left, {.end = MLX5DV_DCTYPE_DCI}, attr);
    impatient.post({.sges = {impatient.piece(0, 10)}, .address = &to_target});
    run();
    EXPECT_EQ(statuses(impatient.sends()), std::vector{IBV_WC_RNR_RETRY_EXC_ERR});
    initiator.post({.sges = {initiator.piece(0, 10)}, .address = &to_target});
    run({}, 1'000'000);
    target.post(0);
    run();
    EXPECT_EQ(statuses(initiator.sends()), std::vector{IBV_WC_SUCCESS});
}

TEST_F(DcTest, NobodyThereIsARetryError) {
    mlx5_wqe_av nowhere = to_target;
    nowhere.dqp_dct = htobe32(0xabcdef);
    initiator.post({.sges = {initiator.piece(0, 10)}, .address = &nowhere});
    run();
    EXPECT_EQ(statuses(initiator.sends()), std::vector{IBV_WC_RETRY_EXC_ERR});
}

TEST_F(DcTest, EntriesWithoutAnAddressAreRefused) {
    mlx5_wqe_av no_route = to_target;
    no_route.grh_gid_fl &= htobe32(~(1u << 30));
    initiator.post({.sges = {initiator.piece(0, 10)}, .address = &no_route});
    run();
    EXPECT_EQ(statuses(initiator.sends()), std::vector{IBV_WC_LOC_QP_OP_ERR});
    Initiator other(left);
    other.post({});  // a control segment alone
    run();
    EXPECT_EQ(statuses(other.sends()), std::vector{IBV_WC_LOC_QP_OP_ERR});
}

TEST_F(DcTest, LossRepetitionAndReorderingAreRecoveredFrom) {
    std::mt19937 random(7);
    wire = [&](const Frame&, bool) {
        const unsigned drawn = random() % 100;
        return drawn < 5 ? 0u : drawn < 10 ? 2u : 1u;
    };
    overtakes = [&] { return random() % 20 == 0; };
    Target second(right);
    const mlx5_wqe_av addresses[] = {to_target, vector_to(second.queue)};
    Initiator sender(left, streams(2, 0));
    constexpr unsigned messages = 300;
    unsigned sent = 0, done = 0, arrived[2] = {};
    std::vector<std::uint64_t> order;
    for (std::uint64_t i = 0; i < 64; ++i) {
        target.post(i);
        second.post(i);
    }
    while (done < messages) {
        while (sent < messages && sender.room()) {
            const unsigned to = random() % 2;
            sender.post({.sges = {sender.piece(0, random() % 3000)}, .wr_id = sent++, .address = &addresses[to],
                         .stream = static_cast<std::uint16_t>(random())});
        }
        run({}, 500'000'000);
        for (const Completion& completion : sender.sends()) {
            ASSERT_EQ(completion.status, IBV_WC_SUCCESS);
            EXPECT_EQ(completion.wr_id, done++) << "completions keep the ring's order";
        }
        Target* const targets[] = {&target, &second};
        for (unsigned to = 0; to < 2; ++to) {
            for (const Completion& completion : targets[to]->queue.receives_done()) {
                EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
                ++arrived[to];
                targets[to]->post(completion.wr_id);
            }
        }
    }
    EXPECT_EQ(arrived[0] + arrived[1], messages) << "once each";
}

TEST_F(DcTest, AStreamThatWaitsKeepsNoOtherWaiting) {
    Initiator sender(left, streams(1, 1));
    Target empty(right);
    const mlx5_wqe_av to_empty = vector_to(empty.queue);
    target.post(0);
    target.post(1);
    sender.post({.sges = {sender.piece(0, 10)}, .wr_id = 1, .address = &to_empty, .stream = 0});
    sender.post({.sges = {sender.piece(0, 10)}, .wr_id = 2, .address = &to_target, .stream = 0});
    sender.post({.sges = {sender.piece(0, 10)}, .wr_id = 3, .address = &to_target, .stream = 1});
    run({}, 20'000'000);
    EXPECT_EQ(target.queue.receives_done().size(), 1U) << "stream 1's";
    EXPECT_TRUE(sender.sends().empty()) << "which completes in its turn";
    empty.post(0);
    run();
    const auto done = sender.sends();
    ASSERT_EQ(done.size(), 3U);
    for (std::uint64_t i = 0; i < 3; ++i) EXPECT_EQ(done[i].wr_id, i + 1);
}

TEST_F(DcTest, AStreamsFailureIsItsOwn) {
    Initiator sender(left, streams(2, 1));
    target.post(0);
    const ibv_sge bad{sender.region.iova, 10, sender.region.key + 0x100};
    sender.post({.sges = {bad}, .address = &to_target, .stream = 1});
    sender.post({.sges = {sender.piece(0, 10)}, .address = &to_target, .stream = 5});  // the same, modulo 4
    sender.post({.sges = {sender.piece(0, 10)}, .address = &to_target, .stream = 2});
    run();
    EXPECT_EQ(statuses(sender.sends()), (std::vector{IBV_WC_LOC_PROT_ERR, IBV_WC_WR_FLUSH_ERR, IBV_WC_SUCCESS}));
    EXPECT_EQ(sender.pair->state(), IBV_QPS_RTS);
    EXPECT_EQ(sender.pair->reset_stream(2), EINVAL) << "has not failed";
    for (const std::uint8_t opcode : {MLX5_OPCODE_SEND, MLX5_OPCODE_NOP}) {
        sender.post({.opcode = opcode, .sges = {sender.piece(0, 10)}, .address = &to_target, .stream = 1});
    }
    run();
    EXPECT_EQ(statuses(sender.sends()), std::vector(2, IBV_WC_WR_FLUSH_ERR))
        << "what comes to a stream that has failed";
    EXPECT_EQ(sender.pair->reset_stream(1), 0);
    EXPECT_EQ(sender.pair->reset_stream(1), EINVAL);
    target.post(1);
    sender.post({.sges = {sender.piece(0, 10)}, .address = &to_target, .stream = 1});
    run();
    EXPECT_EQ(statuses(sender.sends()), std::vector{IBV_WC_SUCCESS});
    // Two streams that failed are what this one bears.
    sender.post({.sges = {bad}, .address = &to_target, .stream = 0});
    run();
    EXPECT_EQ(sender.pair->state(), IBV_QPS_RTS);
    sender.post({.sges = {bad}, .address = &to_target, .stream = 3});
    sender.post({.sges = {sender.piece(0, 10)}, .address = &to_target, .stream = 2});
    run();
    EXPECT_EQ(statuses(sender.sends()), (std::vector{IBV_WC_LOC_PROT_ERR, IBV_WC_LOC_PROT_ERR, IBV_WC_WR_FLUSH_ERR}));
    EXPECT_EQ(sender.pair->state(), IBV_QPS_ERR);
    EXPECT_EQ(sender.pair->reset_stream(0), EINVAL) << "the queue pair is not in RTS";
}

TEST_F(DcTest, AnOldConnectPacketOpensNothing) {
    Frame connect, request;
    wire = [&](const Frame& frame, bool from_left) {
        Arrival arrival;
        if (from_left && read_frame(frame.data(), frame.size(), arrival)) {
            if (connect.empty()) connect = frame;
            else if (request.empty()) request = frame;
        }
        return 1u;
    };
    Target second(right);
    const mlx5_wqe_av to_second = vector_to(second.queue);
    for (std::uint64_t i = 0; i < 4; ++i) target.post(i);
    second.post(0);
    initiator.post({.sges = {initiator.piece(0, 10)}, .address = &to_target});
    initiator.post({.sges = {initiator.piece(0, 10)}, .address = &to_second});
    run();
    EXPECT_EQ(target.queue.receives_done().size(), 1U);
    right.receive(connect);  // after the session has ended
    right.receive(request);
    run();
    EXPECT_TRUE(target.queue.receives_done().empty());
}

TEST_F(DcTest, RequestsWithoutASessionAreDropped) {
    Frame request;
    wire = [&](const Frame& frame, bool from_left) {
        Arrival arrival;
        if (!from_left || !read_frame(frame.data(), frame.size(), arrival)) return 1u;
        if (arrival.operation.kind == Kind::connect) return 0u;
        request = frame;
        return 1u;
    };
    target.post(0);
    initiator.post({.sges = {initiator.piece(0, 10)}, .address = &to_target});
    run();
    EXPECT_FALSE(request.empty());
    EXPECT_EQ(statuses(initiator.sends()), std::vector{IBV_WC_RETRY_EXC_ERR});
    EXPECT_TRUE(target.queue.receives_done().empty());
}

TEST_F(DcTest, AnInitiatorThatWasIdleConnectsAgain) {
    target.post(0);
    target.post(1);
    initiator.post({.sges = {initiator.piece(0, 10)}, .address = &to_target});
    run();
    now += 2'000'000'000;
    watch();
    initiator.post({.sges = {initiator.piece(0, 10)}, .address = &to_target});
    run();
    EXPECT_EQ(opcodes, (std::vector<std::uint8_t>{0x58, 0x55, 0x44, 0x51}));
    target.post(2);
    now += 500'000'000;
    initiator.post({.sges = {initiator.piece(0, 10)}, .address = &to_target});
    run();
    EXPECT_EQ(opcodes, (std::vector<std::uint8_t>{0x58, 0x55, 0x44, 0x51, 0x44, 0x51})) << "not for so long";
    EXPECT_EQ(statuses(initiator.sends()), std::vector(3, IBV_WC_SUCCESS));
}

TEST_F(DcTest, ASessionThatBreaksOffGivesItsReceiveEntryBack) {
    // The last packet of a message never comes; then the initiator begins anew.
    wire = [](const Frame& frame, bool) {
        Arrival arrival;
        return read_frame(frame.data(), frame.size(), arrival) && arrival.bth.opcode == 0x42 ? 0u : 1u;
    };
    target.post(0);
    target.post(1);
    initiator.post({.sges = {initiator.piece(0, 3000)}, .address = &to_target});
    run();
    EXPECT_EQ(statuses(initiator.sends()), std::vector{IBV_WC_RETRY_EXC_ERR});
    ASSERT_EQ(initiator.to(IBV_QPS_RESET), 0);
    initiator.posted = 0;
    initiator.send_doorbell = 0;
    initiator.send_freed = 0;
    initiator.to_rts();
    initiator.post({.sges = {initiator.piece(0, 10)}, .address = &to_target});
    run();
    EXPECT_EQ(statuses(target.queue.receives_done()), (std::vector{IBV_WC_WR_FLUSH_ERR, IBV_WC_SUCCESS}));
}

TEST_F(DcTest, MoreSessionsThanThereIsRoomForWait) {
    Initiator sender(left, streams(4, 4));
    Frame connect;
    wire = [&](const Frame& frame, bool) {
        Arrival arrival;
        if (read_frame(frame.data(), frame.size(), arrival) && arrival.operation.kind == Kind::connect) connect = frame;
        return 1u;
    };
    target.post(0);
    sender.post({.sges = {sender.piece(0, 10)}, .address = &to_target});
    run();
    ASSERT_FALSE(connect.empty());
    wire = [](const Frame&, bool) { return 1u; };
    // The same from other queue pairs, as many as there is room for.
    constexpr std::size_t ip = 14, source = 14 + 20 + 8 + 12 + 8;
    for (std::uint32_t number = 1; number < DcTarget::most_sessions; ++number) {
        Frame other = connect;
        const __be32 qpn = htobe32(0x800000 + number);
        std::memcpy(other.data() + source, &qpn, 4);
        const std::uint32_t crc = icrc(other.data() + ip, true, other.size() - ip - 4);
        std::memcpy(other.data() + other.size() - 4, &crc, 4);
        right.receive(other);
        if (number % 64 == 0) run({}, 0);
    }
    run({}, 0);
    ibv_qp_attr attr = Queue::usual();
    attr.rnr_retry = 1;
    Initiator impatient(left, {.end = MLX5DV_DCTYPE_DCI}, attr);
    impatient.post({.sges = {impatient.piece(0, 10)}, .address = &to_target});
    run();
    EXPECT_EQ(statuses(impatient.sends()), std::vector{IBV_WC_RNR_RETRY_EXC_ERR});
    now += DcTarget::silence;
    target.post(1);
    Initiator late(left);
    late.post({.sges = {late.piece(0, 10)}, .address = &to_target});
    run();
    EXPECT_EQ(statuses(late.sends()), std::vector{IBV_WC_SUCCESS});
}

TEST_F(DcTest, TheDeviceItselfIsATargetToo) {
    Target near(left);
    near.post(0);
    fill(initiator.memory, 3);
    const mlx5_wqe_av to_near = vector_to(near.queue);
    initiator.post({.sges = {initiator.piece(0, 4000)}, .address = &to_near});
    run();
    EXPECT_EQ(statuses(initiator.sends()), std::vector{IBV_WC_SUCCESS});
    EXPECT_TRUE(std::equal(initiator.memory.begin(), initiator.memory.begin() + 4000, near.buffers.begin()));
}

TEST_F(DcTest, TransitionsAreThoseOfMlx5) {
    ibv_qp_attr attr = Queue::usual();
    attr.port_num = attr.ah_attr.port_num = 1;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.grh.sgid_index = 1;
    const auto each_is_required = [&](Queue& queue, ibv_qp_state to, int mask) {
        for (int bit = 1; bit <= mask; bit <<= 1) {
            if (mask & bit) {
                EXPECT_EQ(queue.to(to, attr, mask & ~bit), EINVAL) << to << ' ' << bit;
            }
        }
        EXPECT_EQ(queue.to(to, attr, mask | IBV_QP_QKEY), EINVAL);
        EXPECT_EQ(queue.to(to, attr, mask | IBV_QP_CUR_STATE), EINVAL);
        ASSERT_EQ(queue.to(to, attr, mask), 0);
    };
    Queue dci(left, {.type = IBV_QPT_DRIVER, .dc = DcSpec{.end = MLX5DV_DCTYPE_DCI}});
    EXPECT_EQ(dci.to(IBV_QPS_ERR), EINVAL) << "from RESET";
    each_is_required(dci, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT);
    each_is_required(dci, IBV_QPS_RTR, IBV_QP_PATH_MTU);
    each_is_required(dci, IBV_QPS_RTS, IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                                           IBV_QP_MAX_QP_RD_ATOMIC);
    EXPECT_EQ(dci.to(IBV_QPS_RTS, attr, IBV_QP_MIN_RNR_TIMER), 0);
    EXPECT_EQ(dci.pair->modify(attr, IBV_QP_MIN_RNR_TIMER), EINVAL) << "the state must be named";
    EXPECT_EQ(dci.to(IBV_QPS_SQD), EINVAL);
    EXPECT_EQ(dci.to(IBV_QPS_ERR), 0);
    EXPECT_EQ(dci.to(IBV_QPS_RTS), EINVAL);
    EXPECT_EQ(dci.to(IBV_QPS_RESET), 0);
    Queue dct(left, {.type = IBV_QPT_DRIVER, .srq = &target.srq, .dc = DcSpec{.end = MLX5DV_DCTYPE_DCT}});
    EXPECT_EQ(dct.to(IBV_QPS_RESET), EINVAL);
    each_is_required(dct, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    EXPECT_EQ(dct.to(IBV_QPS_INIT, attr, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), EINVAL);
    attr.ah_attr.grh.sgid_index = 9;
    EXPECT_EQ(dct.to(IBV_QPS_RTR, attr, IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_MIN_RNR_TIMER), EINVAL);
    attr.ah_attr.grh.sgid_index = 1;
    each_is_required(dct, IBV_QPS_RTR, IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_MIN_RNR_TIMER);
    for (const ibv_qp_state to : {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_ERR}) {
        EXPECT_EQ(dct.to(to), EINVAL) << to;
    }
}

}  // namespace
}  // namespace ovsdr::soft::roce::test
