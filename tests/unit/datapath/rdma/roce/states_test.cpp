// States and their attributes, SRQs, XRC, loopback, polled queues, fences, and who answers for addresses.
#include "two_nodes.hpp"

namespace ovsdr::soft::roce::test {
namespace {

struct StatesTest : TwoNodes {};

TEST_F(StatesTest, TransitionsRequireTheirAttributes) {
    Queue queue(left, {});
    ibv_qp_attr attr = Queue::usual();
    attr.port_num = 1;
    attr.ah_attr = {};
    attr.ah_attr.is_global = 1;
    attr.ah_attr.port_num = 1;
    attr.ah_attr.grh.dgid = left.gid(0);
    const int init = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    const int rtr = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                    IBV_QP_MIN_RNR_TIMER;
    const int rts = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
    const auto each_is_required = [&](ibv_qp_state to, int mask) {
        for (int bit = 1; bit <= mask; bit <<= 1) {
            if (mask & bit) {
                EXPECT_EQ(queue.to(to, attr, mask & ~bit), EINVAL) << to << ' ' << bit;
            }
        }
        EXPECT_EQ(queue.to(to, attr, mask | IBV_QP_QKEY), EINVAL);
        ASSERT_EQ(queue.to(to, attr, mask), 0);
        EXPECT_EQ(queue.pair->state(), to);
    };
    EXPECT_EQ(queue.to(IBV_QPS_RTR, attr, rtr), EINVAL);
    each_is_required(IBV_QPS_INIT, init);
    EXPECT_EQ(queue.to(IBV_QPS_RTS, attr, rts), EINVAL);
    each_is_required(IBV_QPS_RTR, rtr);
    each_is_required(IBV_QPS_RTS, rts);
    EXPECT_EQ(queue.to(IBV_QPS_INIT, attr, init), EINVAL);
    EXPECT_EQ(queue.to(IBV_QPS_SQD), 0);
    EXPECT_EQ(queue.to(IBV_QPS_RTS), 0);
    EXPECT_EQ(queue.to(IBV_QPS_ERR), 0);
    EXPECT_EQ(queue.to(IBV_QPS_RTS), EINVAL);
    EXPECT_EQ(queue.to(IBV_QPS_RESET), 0);
}

TEST_F(StatesTest, ValuesAreChecked) {
    Queue queue(left, {});
    const int init = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    ibv_qp_attr attr{};
    attr.port_num = 2;
    EXPECT_EQ(queue.to(IBV_QPS_INIT, attr, init), EINVAL) << "a representor has no RoCE";
    attr.port_num = 1;
    attr.pkey_index = 1;
    EXPECT_EQ(queue.to(IBV_QPS_INIT, attr, init), EINVAL);
    attr.pkey_index = 0;
    attr.qp_access_flags = IBV_ACCESS_ZERO_BASED;
    EXPECT_EQ(queue.to(IBV_QPS_INIT, attr, init), EINVAL);
    attr.qp_access_flags = 0;
    attr.cur_qp_state = IBV_QPS_RTR;
    EXPECT_EQ(queue.to(IBV_QPS_INIT, attr, init | IBV_QP_CUR_STATE), EINVAL);
    EXPECT_EQ(queue.to(IBV_QPS_INIT, attr, init), 0);
}

TEST_F(StatesTest, AddressesThatCannotBeReachedAreRefused) {
    ibv_ah_attr attr{};
    attr.port_num = 1;
    attr.grh.sgid_index = 1;
    attr.grh.dgid = right.gid(1);
    mlx5_wqe_av vector{};
    EXPECT_EQ(resolve(left.state(), attr, vector), EINVAL) << "RoCE has a GRH always";
    attr.is_global = 1;
    EXPECT_EQ(resolve(left.state(), attr, vector), 0);
    const std::uint8_t mac[6] = {2, 0, 0, 0, 7, 2};
    EXPECT_TRUE(std::equal(std::begin(mac), std::end(mac), vector.rmac));
    attr.grh.dgid.raw[14] ^= 1;
    EXPECT_EQ(resolve(left.state(), attr, vector), EHOSTUNREACH) << "behind a gateway";
    attr.grh.dgid = right.gid(2);
    EXPECT_EQ(resolve(left.state(), attr, vector), EINVAL) << "of another family than its source";
    attr.grh.sgid_index = 5;
    EXPECT_EQ(resolve(left.state(), attr, vector), EINVAL);
    attr.grh.sgid_index = 1;
    attr.grh.dgid = right.gid(1);
    attr.grh.dgid.raw[15] = 200;
    EXPECT_EQ(resolve(left.state(), attr, vector), ETIMEDOUT) << "nobody answers";
}

TEST_F(StatesTest, ResetForgetsAndBeginsAnew) {
    Queue client(left, {}), server(right, {});
    for (int round = 0; round < 3; ++round) {
        client.connect(server);
        server.connect(client);
        server.post_receive(1, {server.piece(0, 100)});
        client.post({.sges = {client.piece(0, 100)}});
        run();
        EXPECT_EQ(client.sends().size(), 1U);
        EXPECT_EQ(server.receives_done().size(), 1U);
        client.post({.sges = {client.piece(0, 100)}});  // finds no entry: never completes
        run({}, 1'000'000);
        for (Queue* queue : {&client, &server}) {
            ASSERT_EQ(queue->to(IBV_QPS_RESET), 0);
            queue->posted = queue->receives = 0;
            queue->send_doorbell = queue->receive_doorbell = 0;
            queue->send_freed = queue->receive_freed = 0;
        }
        run();
        EXPECT_TRUE(client.sends().empty());
    }
}

TEST_F(StatesTest, TheFirstPacketInRtrIsTold) {
    Queue client(left, {}), server(right, {});
    client.connect(server);
    server.connect(client);
    ASSERT_EQ(server.to(IBV_QPS_RESET), 0);
    ibv_qp_attr attr = Queue::usual();
    attr.port_num = attr.ah_attr.port_num = 1;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.grh.dgid = left.gid(1);
    attr.ah_attr.grh.sgid_index = 1;
    attr.dest_qp_num = client.number();
    ASSERT_EQ(server.to(IBV_QPS_INIT, attr, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), 0);
    ASSERT_EQ(server.to(IBV_QPS_RTR, attr, IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                               IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), 0);
    for (int i = 0; i < 2; ++i) {
        client.post({.opcode = MLX5_OPCODE_RDMA_WRITE, .sges = {client.piece(0, 8)}, .remote = server.address(),
                     .rkey = server.region.key});
    }
    run();
    EXPECT_EQ(client.sends().size(), 2U);
    EXPECT_EQ(server.events, std::vector{IBV_EVENT_COMM_EST});
}

TEST_F(StatesTest, SqdFinishesWhatWasBegunAndHoldsTheRest) {
    Queue client(left, {}), server(right, {});
    client.connect(server);
    server.connect(client);
    server.post_receive(1, {server.piece(0, 3000)});
    client.post({.sges = {client.piece(0, 3000)}});
    unsigned turns = 0;
    run([&] { return ++turns == 2; });
    ibv_qp_attr attr{};
    attr.en_sqd_async_notify = 1;
    ASSERT_EQ(client.to(IBV_QPS_SQD, attr, IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
    client.post({.sges = {client.piece(0, 8)}, .wr_id = 2});
    server.post_receive(2, {server.piece(0, 8)});
    run();
    EXPECT_EQ(client.sends().size(), 1U);
    EXPECT_EQ(client.events, std::vector{IBV_EVENT_SQ_DRAINED});
    ASSERT_EQ(client.to(IBV_QPS_RTS), 0);
    run();
    EXPECT_EQ(client.sends().size(), 1U);
}

TEST_F(StatesTest, AFenceWaitsForReads) {
    Queue client(left, {}), server(right, {});
    client.connect(server);
    server.connect(client);
    std::vector<std::uint8_t> opcodes;
    wire = [&](const Frame& frame, bool from_left) {
        Arrival arrival;
        EXPECT_TRUE(read_frame(frame.data(), frame.size(), arrival));
        opcodes.push_back(static_cast<std::uint8_t>(arrival.bth.opcode | (from_left ? 0 : 0x80)));
        return 1u;
    };
    const auto order = [&](std::uint8_t fence) {
        opcodes.clear();
        client.post({.opcode = MLX5_OPCODE_RDMA_READ, .sges = {client.piece(0, 8)}, .remote = server.address(),
                     .rkey = server.region.key});
        client.post({.opcode = MLX5_OPCODE_RDMA_WRITE, .sges = {client.piece(0, 8)}, .remote = server.address(),
                     .rkey = server.region.key, .fence = fence});
        run();
        EXPECT_EQ(client.sends().size(), 2U);
        return opcodes;
    };
    EXPECT_EQ(order(0), (std::vector<std::uint8_t>{0x0c, 0x0a, 0x90, 0x91}));
    for (const std::uint8_t fence : {2, 3, 4}) {
        EXPECT_EQ(order(fence), (std::vector<std::uint8_t>{0x0c, 0x90, 0x0a, 0x91})) << int{fence};
    }
}

TEST_F(StatesTest, LoopbackStaysInTheDevice) {
    Queue client(left, {}), server(left, {});
    client.connect(server, 0);
    server.connect(client, 0);
    fill(client.memory, 1);
    server.post_receive(1, {server.piece(0, 50000)});
    client.post({.sges = {client.piece(0, 50000)}});
    run();
    EXPECT_EQ(client.sends().size(), 1U);
    EXPECT_EQ(server.receives_done().size(), 1U);
    EXPECT_TRUE(std::equal(client.memory.begin(), client.memory.begin() + 50000, server.memory.begin()));
    EXPECT_EQ(frames, 0U);
}

TEST_F(StatesTest, PolledQueuesNeedNoDoorbell) {
    Queue client(left, {.polled = true}), server(right, {});
    client.connect(server);
    server.connect(client);
    run({}, 1'000'000);
    const std::uint64_t soon = left.device().next_turn(now) - now;
    EXPECT_GE(soon, 10'000U);
    EXPECT_LE(soon, 100'000U);
    run({}, 10'000'000'000);
    EXPECT_LE(left.device().next_turn(now) - now, 1'000'000U) << "seldom, but it is looked at";
    server.post_receive(1, {server.piece(0, 8)});
    const unsigned rings = left.device().rings;
    client.post({.sges = {client.piece(0, 8)}});
    EXPECT_EQ(left.device().rings, rings);
    run({}, 10'000'000);
    EXPECT_EQ(client.sends().size(), 1U);
}

TEST_F(StatesTest, AnIdleQueueAsksForNoTurn) {
    Queue client(left, {}), server(right, {});
    client.connect(server);
    server.connect(client);
    client.post({.opcode = MLX5_OPCODE_RDMA_WRITE, .sges = {client.piece(0, 8)}, .remote = server.address(),
                 .rkey = server.region.key});
    run();
    EXPECT_EQ(left.device().next_turn(now), Service::never);
    EXPECT_EQ(right.device().next_turn(now), Service::never);
    EXPECT_EQ(left.turn(now), 0U);
}

struct SharedTest : TwoNodes {
    std::vector<std::byte> buffers = std::vector<std::byte>(1 << 16);
    MemoryRegion region{reinterpret_cast<std::uint64_t>(buffers.data()), buffers.size(), buffers.data(),
                        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ, this};
    void SetUp() override { ASSERT_EQ(right.state().memory().add(region), 0); }
    void TearDown() override { right.state().memory().remove(region.key); }
    void post(SharedReceiveQueue& queue, std::uint64_t wr_id) {
        ibv_sge sge{region.iova + wr_id * 4096, 4096, region.key};
        ibv_recv_wr work{wr_id, nullptr, &sge, 1}, *bad = nullptr;
        ASSERT_EQ(queue.post(&work, &bad), 0);
    }
};

TEST_F(SharedTest, QueuePairsTakeFromOneQueue) {
    SharedReceiveQueue srq({.state = right.state(), .domain = this, .number = 1, .max_requests = 16, .max_sges = 1});
    Queue one(left, {}), two(left, {}), first(right, {.srq = &srq}), second(right, {.srq = &srq});
    one.connect(first);
    first.connect(one);
    two.connect(second);
    second.connect(two);
    for (std::uint64_t i = 0; i < 4; ++i) post(srq, i);
    fill(one.memory, 1);
    for (int i = 0; i < 2; ++i) {
        one.post({.sges = {one.piece(0, 4000)}});
        two.post({.sges = {two.piece(0, 10)}});
        run();
    }
    const auto of_first = first.receives_done(), of_second = second.receives_done();
    ASSERT_EQ(of_first.size(), 2U);
    ASSERT_EQ(of_second.size(), 2U);
    EXPECT_EQ(of_first[0].wr_id + of_first[1].wr_id + of_second[0].wr_id + of_second[1].wr_id, 6U);
    EXPECT_TRUE(std::equal(one.memory.begin(), one.memory.begin() + 4000,
                           buffers.begin() + static_cast<long>(of_first[0].wr_id * 4096)));
    SharedReceiveQueue::Request none;
    EXPECT_FALSE(srq.take(none));
    // A failed queue pair leaves the SRQ's entries alone and says that it takes no more.
    post(srq, 9);
    ASSERT_EQ(first.to(IBV_QPS_ERR), 0);
    EXPECT_TRUE(srq.take(none));
    EXPECT_EQ(first.events, std::vector{IBV_EVENT_QP_LAST_WQE_REACHED});
    EXPECT_TRUE(first.receives_done().empty());
}

TEST_F(SharedTest, XrcRequestsNameTheirQueue) {
    CompletionQueue completions(64, false, {});
    const int domain = 0, other = 1;
    SharedReceiveQueue srq({.state = right.state(), .domain = this, .number = 0x77, .max_requests = 16, .max_sges = 1,
                            .completions = &completions, .xrc_domain = &domain});
    SharedReceiveQueue foreign({.state = right.state(), .domain = this, .number = 0x78, .max_requests = 16,
                                .max_sges = 1, .completions = &completions, .xrc_domain = &other});
    Queue client(left, {.type = IBV_QPT_XRC_SEND}), server(right, {.type = IBV_QPT_XRC_RECV, .xrc_domain = &domain});
    client.connect(server);
    server.connect(client);
    post(srq, 3);
    post(foreign, 4);
    fill(client.memory, 1);
    client.post({.sges = {client.piece(0, 3000)}, .xrc_srq = 0x77});
    // The memory is that of the SRQ's protection domain (annex A14).
    client.post({.opcode = MLX5_OPCODE_RDMA_WRITE, .sges = {client.piece(0, 3000)}, .remote = region.iova + 0x8000,
                 .rkey = region.key, .xrc_srq = 0x77});
    client.post({.opcode = MLX5_OPCODE_RDMA_READ, .sges = {client.piece(4000, 3000)}, .remote = region.iova + 0x8000,
                 .rkey = region.key, .xrc_srq = 0x77});
    run();
    EXPECT_EQ(client.sends().size(), 3U);
    std::vector<Completion> got(4);
    ASSERT_EQ(completions.take(got), 1);
    EXPECT_EQ(got[0].wr_id, 3U);
    EXPECT_EQ(got[0].qp_num, server.number());
    EXPECT_TRUE(std::equal(client.memory.begin(), client.memory.begin() + 3000, buffers.begin() + 3 * 4096));
    EXPECT_TRUE(std::equal(client.memory.begin(), client.memory.begin() + 3000, client.memory.begin() + 4000));
    client.post({.sges = {client.piece(0, 3000)}, .xrc_srq = 0x78});
    run();
    EXPECT_EQ(client.sends().at(0).status, IBV_WC_REM_INV_REQ_ERR) << "another domain's queue";
}

TEST_F(SharedTest, AnXrcQueueThatIsGoneIsNamedInVain) {
    CompletionQueue completions(64, false, {});
    const int domain = 0;
    Queue client(left, {.type = IBV_QPT_XRC_SEND}), server(right, {.type = IBV_QPT_XRC_RECV, .xrc_domain = &domain});
    client.connect(server);
    server.connect(client);
    {
        const SharedReceiveQueue gone({.state = right.state(), .domain = this, .number = 0x79, .max_requests = 16,
                                       .max_sges = 1, .completions = &completions, .xrc_domain = &domain});
    }
    client.post({.sges = {client.piece(0, 3000)}, .xrc_srq = 0x79});
    run();
    EXPECT_EQ(client.sends().at(0).status, IBV_WC_REM_INV_REQ_ERR);
}

}  // namespace
}  // namespace ovsdr::soft::roce::test
