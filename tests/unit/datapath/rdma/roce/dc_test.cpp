// The DC transport: sessions, streams, what is refused, and the bytes of its packets.
#include "datapath/rdma/roce/dc_target.hpp"
#include "two_nodes.hpp"

namespace ovsdr::soft::roce::test {
namespace {

constexpr std::uint64_t access_key = 0x1122334455667788;

struct DcTest : TwoNodes {
    /// A DCT with an SRQ of its own, in RTR.
    struct Target {
        Target(Node& node, std::uint64_t key = access_key)
            : srq({.state = node.state(), .domain = &domain, .number = 1, .max_requests = 64, .max_sges = 1}),
              queue(node, {.type = IBV_QPT_DRIVER, .srq = &srq, .dc = DcSpec{.end = MLX5DV_DCTYPE_DCT, .access_key = key}}),
              buffers(1 << 18) {
            region = {reinterpret_cast<std::uint64_t>(buffers.data()), buffers.size(), buffers.data(),
                      IBV_ACCESS_LOCAL_WRITE, &domain};
            EXPECT_EQ(node.state().memory().add(region), 0);
            ibv_qp_attr attr = Queue::usual();
            attr.port_num = attr.ah_attr.port_num = 1;
            attr.ah_attr.is_global = 1;
            attr.ah_attr.grh.sgid_index = 1;
            EXPECT_EQ(queue.to(IBV_QPS_INIT, attr, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), 0);
            EXPECT_EQ(queue.to(IBV_QPS_RTR, attr, IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_MIN_RNR_TIMER), 0);
        }
        ~Target() { queue.node.state().memory().remove(region.key); }
        void post(std::uint64_t wr_id) {
            ibv_sge sge{region.iova + wr_id * 4096, 4096, region.key};
            ibv_recv_wr work{wr_id, nullptr, &sge, 1}, *bad = nullptr;
            ASSERT_EQ(srq.post(&work, &bad), 0);
        }
        int domain = 0;
        SharedReceiveQueue srq;
        Queue queue;
        std::vector<std::byte> buffers;
        MemoryRegion region{};
    };
    /// A DCI in RTS.
    struct Initiator : Queue {
        explicit Initiator(Node& node, DcSpec dc = {.end = MLX5DV_DCTYPE_DCI}, ibv_qp_attr attr = usual())
            : Queue(node, {.type = IBV_QPT_DRIVER, .dc = dc}) {
            to_rts(attr);
        }
        void to_rts(ibv_qp_attr attr = usual()) {
            attr.port_num = 1;
            ASSERT_EQ(to(IBV_QPS_INIT, attr, IBV_QP_PKEY_INDEX | IBV_QP_PORT), 0);
            ASSERT_EQ(to(IBV_QPS_RTR, attr, IBV_QP_PATH_MTU), 0);
            ASSERT_EQ(to(IBV_QPS_RTS, attr, IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                                                IBV_QP_MAX_QP_RD_ATOMIC), 0);
        }
    };
    static DcSpec streams(std::uint8_t log_streams, std::uint8_t log_errored) {
        return {.end = MLX5DV_DCTYPE_DCI, .log_streams = log_streams, .log_errored = log_errored};
    }
    /// The address vector of a target as seen from the left node.
    mlx5_wqe_av vector_to(Queue& target, std::uint64_t key = access_key) {
        mlx5_wqe_av vector{};
        ibv_ah_attr attr{};
        attr.is_global = 1;
        attr.port_num = 1;
        attr.grh.sgid_index = 1;
        attr.grh.dgid = target.node.gid(1);
        EXPECT_EQ(resolve(left.state(), attr, vector), 0);
        vector.dqp_dct = htobe32(target.number() | MLX5_EXTENDED_UD_AV);
        vector.key.dc_key = htobe64(key);
        return vector;
    }
    /// The opcodes that cross the wire from now on, and the packets themselves.
    std::vector<std::uint8_t> opcodes;
    std::vector<Frame> packets;
    void watch() {
        wire = [this](const Frame& frame, bool) {
            Arrival arrival;
            if (read_frame(frame.data(), frame.size(), arrival)) {
                opcodes.push_back(arrival.bth.opcode);
                packets.push_back(frame);
            }
            return 1u;
        };
    }
    static std::vector<ibv_wc_status> statuses(const std::vector<Completion>& completions) {
        std::vector<ibv_wc_status> all;
        for (const Completion& completion : completions) all.push_back(completion.status);
        return all;
    }

    Initiator initiator{left};
    Target target{right};
    mlx5_wqe_av to_target = vector_to(target.queue);
};

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
    initiator.post({.opcode = MLX5_OPCODE_RDMA_WRITE_IMM, .sges = {initiator.piece(0, 8)}, .remote = there.address(4096),
                    .rkey = there.region.key, .immediate = htobe32(8), .address = &to_target});
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
    initiator.post({.opcode = MLX5_OPCODE_SEND_IMM, .inlined = Frame(5, std::byte{0xaa}), .immediate = htobe32(0x01020304),
                    .address = &to_target});
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
    Queue::Work work{.opcode = MLX5_OPCODE_RDMA_WRITE, .sges = {initiator.piece(0, 10)}, .remote = target.queue.address(),
                     .rkey = target.queue.region.key + 0x100, .address = &to_target};
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
    Queue strict(right, {.type = IBV_QPT_DRIVER, .srq = &target.srq, .dc = DcSpec{.end = MLX5DV_DCTYPE_DCT, .access_key = 5}});
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
    EXPECT_EQ(statuses(sender.sends()), std::vector(2, IBV_WC_WR_FLUSH_ERR)) << "what comes to a stream that has failed";
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
    EXPECT_EQ(statuses(initiator.sends()), std::vector(2, IBV_WC_SUCCESS));
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
        initiator.post({.opcode = MLX5_OPCODE_ATOMIC_FA, .sges = {initiator.piece(0, 8)}, .remote = target.queue.address(),
                        .rkey = target.queue.region.key, .swap_add = 1, .address = &to_target});
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
    initiator.post({.opcode = MLX5_OPCODE_RDMA_WRITE, .sges = {initiator.piece(0, 8)}, .remote = target.queue.address(64),
                    .rkey = target.queue.region.key, .address = &to_target});
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
        for (rte_mbuf* one = nullptr; (one = rte_pktmbuf_alloc(soft::test::packet_pool())) != nullptr;) taken.push_back(one);
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
        EXPECT_EQ(byte(udp) << 8 | byte(udp + 1), ibv_flow_label_to_udp_sport(static_cast<std::uint32_t>(label & 0xfffff)));
    }
}

TEST_F(DcTest, EntriesOfStreamsThatAreNotSignaledAreFreedAndNotTold) {
    Initiator sender(left, streams(1, 1));
    for (std::uint64_t i = 0; i < 4; ++i) target.post(i);
    for (std::uint16_t i = 0; i < 4; ++i) {
        sender.post({.sges = {sender.piece(0, 10)}, .signaled = i == 2, .wr_id = i, .address = &to_target, .stream = i});
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
