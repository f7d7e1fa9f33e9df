// What goes wrong: how each side hears of it, and what becomes of the rest.
#include "two_nodes.hpp"

namespace ovsdr::soft::roce::test {
namespace {

struct ErrorsTest : TwoNodes {
    Queue client{left, {}}, server{right, {}};

    void join(ibv_qp_attr attr = Queue::usual()) {
        client.connect(server, 1, attr);
        server.connect(client, 1, attr);
    }
    /// The status of the one request; what was posted behind it is flushed.
    ibv_wc_status outcome(const Queue::Work& work) {
        client.post(work);
        client.post({.sges = {client.piece(0, 8)}, .signaled = false, .wr_id = 77});
        run();
        const auto done = client.sends();
        EXPECT_EQ(done.size(), 2U);
        if (done.size() != 2) return IBV_WC_GENERAL_ERR;
        EXPECT_EQ(done[1].wr_id, 77U);
        EXPECT_EQ(done[1].status, IBV_WC_WR_FLUSH_ERR);
        EXPECT_EQ(client.pair->state(), IBV_QPS_ERR);
        EXPECT_EQ(client.send_freed, client.posted);
        return done[0].status;
    }
    Queue::Work write(std::size_t size = 3000) {
        return {.opcode = MLX5_OPCODE_RDMA_WRITE, .sges = {client.piece(0, size)}, .remote = server.address(),
                .rkey = server.region.key};
    }
};

TEST_F(ErrorsTest, AKeyThatIsUnknownIsARemoteAccessError) {
    join();
    Queue::Work work = write();
    work.rkey += 0x100;
    EXPECT_EQ(outcome(work), IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(server.pair->state(), IBV_QPS_ERR);
    EXPECT_EQ(server.events, std::vector{IBV_EVENT_QP_ACCESS_ERR});
}

TEST_F(ErrorsTest, BoundsOfTheRegionAreKept) {
    join();
    Queue::Work work = write();
    work.remote = server.address(server.memory.size() - 2999);
    EXPECT_EQ(outcome(work), IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(server.memory, std::vector<std::byte>(server.memory.size()));
}

TEST_F(ErrorsTest, TheQueuesAccessFlagsCount) {
    struct Case {
        std::uint8_t opcode;
        int flag;
    };
    for (const Case& one : {Case{MLX5_OPCODE_RDMA_WRITE, IBV_ACCESS_REMOTE_WRITE},
                            Case{MLX5_OPCODE_RDMA_READ, IBV_ACCESS_REMOTE_READ},
                            Case{MLX5_OPCODE_ATOMIC_FA, IBV_ACCESS_REMOTE_ATOMIC}}) {
        Queue from(left, {}), to(right, {});
        ibv_qp_attr attr = Queue::usual();
        attr.qp_access_flags &= ~static_cast<unsigned>(one.flag);
        from.connect(to, 1, attr);
        to.connect(from, 1, attr);
        from.post({.opcode = one.opcode, .sges = {from.piece(0, 8)}, .remote = to.address(), .rkey = to.region.key});
        run();
        const auto done = from.sends();
        ASSERT_EQ(done.size(), 1U);
        EXPECT_EQ(done[0].status, IBV_WC_REM_ACCESS_ERR) << int{one.opcode};
    }
}

TEST_F(ErrorsTest, TheRegionsAccessFlagsCount) {
    join();
    MemoryRegion local = server.region;
    local.access = IBV_ACCESS_LOCAL_WRITE;
    ASSERT_EQ(right.state().memory().add(local), 0);
    Queue::Work work = write();
    work.rkey = local.key;
    EXPECT_EQ(outcome(work), IBV_WC_REM_ACCESS_ERR);
    right.state().memory().remove(local.key);
}

TEST_F(ErrorsTest, AMisplacedAtomicIsAnInvalidRequest) {
    join();
    EXPECT_EQ(outcome({.opcode = MLX5_OPCODE_ATOMIC_FA, .sges = {client.piece(0, 8)}, .remote = server.address(4),
                       .rkey = server.region.key}),
              IBV_WC_REM_INV_REQ_ERR);
    EXPECT_EQ(server.events, std::vector{IBV_EVENT_QP_REQ_ERR});
}

TEST_F(ErrorsTest, AnAtomicIsEightBytes) {
    join();
    EXPECT_EQ(outcome({.opcode = MLX5_OPCODE_ATOMIC_FA, .sges = {client.piece(0, 16)}, .remote = server.address(),
                       .rkey = server.region.key}),
              IBV_WC_LOC_LEN_ERR);
}

TEST_F(ErrorsTest, ASendLongerThanItsReceiveFailsBoth) {
    join();
    server.post_receive(5, {server.piece(0, 2999)});
    server.post_receive(6, {server.piece(0, 10)});
    EXPECT_EQ(outcome({.sges = {client.piece(0, 3000)}}), IBV_WC_REM_INV_REQ_ERR);
    const auto got = server.receives_done();
    ASSERT_EQ(got.size(), 2U);
    EXPECT_EQ(got[0].wr_id, 5U);
    EXPECT_EQ(got[0].status, IBV_WC_LOC_LEN_ERR);
    EXPECT_EQ(got[1].wr_id, 6U);
    EXPECT_EQ(got[1].status, IBV_WC_WR_FLUSH_ERR);
}

TEST_F(ErrorsTest, AReceiveIntoMemoryThatIsNotOursIsARemoteOperationError) {
    join();
    server.post_receive(5, {{server.address(), 100, server.region.key + 1}});
    EXPECT_EQ(outcome({.sges = {client.piece(0, 100)}}), IBV_WC_REM_OP_ERR);
    const auto got = server.receives_done();
    ASSERT_EQ(got.size(), 1U);
    EXPECT_EQ(got[0].status, IBV_WC_LOC_PROT_ERR);
}

TEST_F(ErrorsTest, OurOwnKeysAreCheckedWhenTheRequestIsExecuted) {
    join();
    Queue::Work work = write();
    work.sges[0].lkey += 1;
    EXPECT_EQ(outcome(work), IBV_WC_LOC_PROT_ERR);
    EXPECT_EQ(server.pair->state(), IBV_QPS_RTS);
}

TEST_F(ErrorsTest, MaskedAtomicsAreNotThere) {
    constexpr std::uint8_t masked_compare_swap = 0x14, masked_fetch_add = 0x15;  // of the PRM
    join();
    EXPECT_EQ(outcome({.opcode = masked_compare_swap, .sges = {client.piece(0, 8)}}), IBV_WC_LOC_QP_OP_ERR);
    Queue other{left, {}}, peer{right, {}};
    other.connect(peer);
    peer.connect(other);
    other.post({.opcode = masked_fetch_add, .sges = {other.piece(0, 8)}});
    run();
    EXPECT_EQ(other.sends().at(0).status, IBV_WC_LOC_QP_OP_ERR);
}

TEST_F(ErrorsTest, AMalformedEntryIsALocalOperationError) {
    join();
    EXPECT_EQ(outcome({.opcode = MLX5_OPCODE_TSO, .sges = {client.piece(0, 8)}}), IBV_WC_LOC_QP_OP_ERR);
}

TEST_F(ErrorsTest, ReadsNeedAnInitiatorDepth) {
    ibv_qp_attr attr = Queue::usual();
    attr.max_rd_atomic = 0;
    join(attr);
    EXPECT_EQ(outcome({.opcode = MLX5_OPCODE_RDMA_READ, .sges = {client.piece(0, 8)}, .remote = server.address(),
                       .rkey = server.region.key}),
              IBV_WC_LOC_QP_OP_ERR);
}

TEST_F(ErrorsTest, MoreReadsThanTheResponderGrantsAreInvalid) {
    ibv_qp_attr attr = Queue::usual();
    client.connect(server, 1, attr);
    attr.max_dest_rd_atomic = 0;
    server.connect(client, 1, attr);
    EXPECT_EQ(outcome({.opcode = MLX5_OPCODE_RDMA_READ, .sges = {client.piece(0, 8)}, .remote = server.address(),
                       .rkey = server.region.key}),
              IBV_WC_REM_INV_REQ_ERR);
}

TEST_F(ErrorsTest, CompletionsBeforeTheFailureStayGood) {
    join();
    client.post(write());
    Queue::Work bad = write();
    bad.rkey = 0;
    bad.wr_id = 2;
    client.post(bad);
    run();
    const auto done = client.sends();
    ASSERT_EQ(done.size(), 2U);
    EXPECT_EQ(done[0].status, IBV_WC_SUCCESS);
    EXPECT_EQ(done[1].status, IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(done[1].wr_id, 2U);
}

TEST_F(ErrorsTest, ASilentPeerIsGivenUpAfterTheRetries) {
    ibv_qp_attr attr = Queue::usual();
    attr.timeout = 10;  // 4.19 ms
    attr.retry_cnt = 3;
    join(attr);
    unsigned packets = 0;
    wire = [&](const Frame&, bool from_left) {
        packets += from_left;
        return 0u;
    };
    const std::uint64_t begin = now;
    EXPECT_EQ(outcome(write(100)), IBV_WC_RETRY_EXC_ERR);
    EXPECT_GE(now - begin, 4 * (4096ull << 10));
    EXPECT_LE(now - begin, 4 * (4096ull << 10) + 100'000);
    EXPECT_EQ(packets, 2U + 3U) << "two requests, and the first again three times: the rest waits for its answer";
}

TEST_F(ErrorsTest, AReceiverThatIsNeverReadyIsGivenUpAfterTheRetries) {
    ibv_qp_attr attr = Queue::usual();
    attr.rnr_retry = 2;
    attr.min_rnr_timer = 12;  // 0.64 ms
    join(attr);
    const std::uint64_t begin = now;
    client.post({.sges = {client.piece(0, 8)}});
    std::vector<Completion> done;
    run([&] { return !(done = client.sends()).empty(); });
    ASSERT_EQ(done.size(), 1U);
    EXPECT_EQ(done[0].status, IBV_WC_RNR_RETRY_EXC_ERR);
    EXPECT_GE(now - begin, 2 * 640'000U);
    EXPECT_LE(now - begin, 2 * 640'000U + 100'000);
}

TEST_F(ErrorsTest, ErrFlushesBothQueuesAndWhatIsPostedLater) {
    join();
    server.post_receive(1, {server.piece(0, 8)});
    ASSERT_EQ(server.to(IBV_QPS_ERR), 0);
    server.post_receive(2, {server.piece(0, 8)});
    server.post({.sges = {server.piece(0, 8)}, .signaled = false, .wr_id = 3});
    run();
    const auto got = server.receives_done();
    ASSERT_EQ(got.size(), 2U);
    EXPECT_EQ(got[0].status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(got[1].wr_id, 2U);
    const auto sent = server.sends();
    ASSERT_EQ(sent.size(), 1U);
    EXPECT_EQ(sent[0].status, IBV_WC_WR_FLUSH_ERR);
}

TEST_F(ErrorsTest, PacketsFromSomebodyElseAreNotTaken) {
    join();
    wire = [&](const Frame& frame, bool from_left) {
        if (!from_left) return 1u;
        // The same packet from another address, ICRC and all.
        Frame forged = frame;
        forged[14 + 15] ^= std::byte{4};
        const std::uint32_t crc = icrc(forged.data() + 14, true, forged.size() - 18);
        std::memcpy(forged.data() + forged.size() - 4, &crc, 4);
        right.receive(forged);
        return 0u;
    };
    ibv_qp_attr attr{};
    client.post(write(8));
    fill(client.memory, 1);
    run({}, 10'000'000);
    EXPECT_EQ(server.memory, std::vector<std::byte>(server.memory.size()));
    client.pair->query(attr);
    EXPECT_EQ(attr.qp_state, IBV_QPS_RTS);
}

TEST_F(ErrorsTest, AWrongIcrcIsDroppedAndCounted) {
    join();
    unsigned spoiled = 0;
    wire = [&](const Frame& frame, bool from_left) {
        if (!from_left || spoiled != 0) return 1u;
        Frame bad = frame;
        bad[bad.size() - 6] ^= std::byte{1};
        right.receive(bad);
        ++spoiled;
        return 0u;
    };
    fill(client.memory, 1);
    client.post(write(64));
    run();
    EXPECT_EQ(right.transport().counters().bad_icrc, 1U);
    ASSERT_EQ(client.sends().size(), 1U);
    EXPECT_TRUE(std::equal(server.memory.begin(), server.memory.begin() + 64, client.memory.begin()));
}

}  // namespace
}  // namespace ovsdr::soft::roce::test
