// Memory that cannot be reached though its key is good, keys that go away, entries that change while they wait.
#include <sys/mman.h>

#include "datapath/ports/guarded_copy.hpp"
#include "datapath/rdma/roce/memory_copy.hpp"
#include "two_nodes.hpp"

namespace ovsdr::soft::roce::test {
namespace {

/// Two pages of a queue's with a good key, of which the second is not there.
class Hole {
public:
    static constexpr std::size_t page = 4096;

    explicit Hole(Queue& queue)
        : queue_(queue), pages_(mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
        guard_copies();
        EXPECT_EQ(mprotect(static_cast<char*>(pages_) + page, page, PROT_NONE), 0);
        region_ = queue.region;
        region_.iova = reinterpret_cast<std::uint64_t>(pages_);
        region_.base = static_cast<std::byte*>(pages_);
        region_.size = 2 * page;
        EXPECT_EQ(queue.node.state().memory().add(region_), 0);
    }
    ~Hole() {
        queue_.node.state().memory().remove(region_.key);
        munmap(pages_, 2 * page);
    }
    /// So many bytes of which the first `there` are there.
    [[nodiscard]] ibv_sge piece(std::size_t there, std::size_t size) const {
        return {region_.iova + page - there, static_cast<std::uint32_t>(size), region_.key};
    }

private:
    Queue& queue_;
    void* pages_;
    MemoryRegion region_;
};

struct FaultsTest : TwoNodes {
    Queue client{left, {.memory = 1 << 18}}, server{right, {.memory = 1 << 18}};
    Hole of_client{client}, of_server{server};
    const unsigned buffers = rte_mempool_avail_count(soft::test::packet_pool());

    void SetUp() override {
        client.connect(server);
        server.connect(client);
        fill(client.memory, 1);
    }
    /// Every buffer has come back, of which each core may keep some.
    void TearDown() override { EXPECT_EQ(rte_mempool_avail_count(soft::test::packet_pool()), buffers); }

    ibv_wc_status outcome(Queue& queue, const Queue::Work& work) {
        queue.post(work);
        run();
        const auto done = queue.sends();
        EXPECT_EQ(done.size(), 1U);
        return done.empty() ? IBV_WC_GENERAL_ERR : done[0].status;
    }
    Queue::Work of(std::uint8_t opcode, const ibv_sge& local, const ibv_sge& remote) {
        return {.opcode = opcode, .sges = {local}, .remote = remote.addr, .rkey = remote.lkey};
    }
    /// What a message to `queue` and its receive entry end with.
    static void expect_failed(Queue& queue, ibv_wc_status status) {
        const auto got = queue.receives_done();
        ASSERT_EQ(got.size(), 1U);
        EXPECT_EQ(got[0].status, status);
        EXPECT_EQ(got[0].byte_len, 0U);
        EXPECT_EQ(got[0].wc_flags, 0U);
        EXPECT_EQ(queue.pair->state(), IBV_QPS_ERR);
    }
};


TEST_F(FaultsTest, WhatCannotBeSentIsAProtectionErrorAndStopsTheQueue) {
    server.post_receive(1, {server.piece(0, 8000)});
    client.post(
        {.opcode = a_write, .sges = {client.piece(0, 8)}, .remote = server.address(), .rkey = server.region.key});
    client.post({.sges = {of_client.piece(1100, 3000)}, .wr_id = 1});
    client.post({.sges = {client.piece(0, 8)}, .wr_id = 2});
    run();
    const auto done = client.sends();
    ASSERT_EQ(done.size(), 3U);
    EXPECT_EQ(done[0].status, IBV_WC_SUCCESS);
    EXPECT_EQ(done[1].status, IBV_WC_LOC_PROT_ERR);
    EXPECT_EQ(done[2].status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(client.pair->state(), IBV_QPS_ERR);
    EXPECT_TRUE(server.receives_done().empty()) << "a packet of it has come";
}

TEST_F(FaultsTest, ADatagramThatCannotBeSentStopsItsSendQueue) {
    Queue sender{left, {.type = IBV_QPT_UD}}, receiver{right, {.type = IBV_QPT_UD}};
    sender.connect(receiver);
    receiver.connect(sender);
    ibv_ah_attr attr{};
    attr.is_global = attr.port_num = 1;
    attr.grh.sgid_index = 1;
    attr.grh.dgid = right.gid(1);
    mlx5_wqe_av address{};
    ASSERT_EQ(resolve(left.state(), attr, address), 0);
    const Hole hole(sender);
    EXPECT_EQ(outcome(sender, {.sges = {hole.piece(100, 200)}, .address = &address}), IBV_WC_LOC_PROT_ERR);
    EXPECT_EQ(sender.pair->state(), IBV_QPS_SQE);
}

TEST_F(FaultsTest, AWriteThatCannotBeMadeIsARemoteAccessError) {
    EXPECT_EQ(outcome(client, of(a_write, client.piece(0, 3000), of_server.piece(2000, 3000))), IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(server.events, std::vector{IBV_EVENT_QP_ACCESS_ERR});
    EXPECT_EQ(server.pair->state(), IBV_QPS_ERR);
}

TEST_F(FaultsTest, ASendThatCannotBeReceivedIsARemoteOperationError) {
    server.post_receive(1, {of_server.piece(2000, 4000)});
    EXPECT_EQ(outcome(client, {.sges = {client.piece(0, 3000)}}), IBV_WC_REM_OP_ERR);
    EXPECT_TRUE(server.events.empty());
    expect_failed(server, IBV_WC_LOC_PROT_ERR);
}

TEST_F(FaultsTest, AReadThatBreaksOffIsARemoteAccessErrorOfThePacketThatIsMissing) {
    std::vector<std::uint32_t> numbers;
    wire = [&](const Frame& frame, bool from_left) {
        Arrival arrival;
        EXPECT_TRUE(read_frame(frame.data(), frame.size(), arrival));
        if (!from_left) numbers.push_back(arrival.psn);
        return 1u;
    };
    EXPECT_EQ(outcome(client, of(a_read, client.piece(0, 4000), of_server.piece(2100, 4000))), IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(numbers, (std::vector{0xfffff0U, 0xfffff1U, 0xfffff2U})) << "two answers and the refusal";
    EXPECT_EQ(server.events, std::vector{IBV_EVENT_QP_ACCESS_ERR});
    EXPECT_EQ(server.pair->state(), IBV_QPS_ERR);
}

TEST_F(FaultsTest, AnAnswerThatHasNoPlaceIsAProtectionError) {
    EXPECT_EQ(outcome(client, of(a_read, of_client.piece(2000, 3000), server.piece(0, 3000))), IBV_WC_LOC_PROT_ERR);
    EXPECT_EQ(client.pair->state(), IBV_QPS_ERR);
    Queue other{left, {}}, peer{right, {}};
    other.connect(peer);
    peer.connect(other);
    const Hole hole(other);
    EXPECT_EQ(outcome(other, of(an_atomic, hole.piece(4, 8), peer.piece(0, 8))), IBV_WC_LOC_PROT_ERR);
}

TEST_F(FaultsTest, AMessageOfAnUnreliableConnectionThatCannotBeReceivedFailsIt) {
    struct Case {
        std::vector<ibv_sge> (*pieces)(Queue&, const Hole&);
        ibv_wc_status status;
    };
    const Case cases[] = {
        {[](Queue&, const Hole& hole) { return std::vector{hole.piece(100, 4000)}; }, IBV_WC_LOC_PROT_ERR},
        {[](Queue&, const Hole& hole) { return std::vector{hole.piece(2000, 4000)}; }, IBV_WC_LOC_PROT_ERR},
        {[](Queue& queue, const Hole&) { return std::vector{ibv_sge{queue.address(), 4000, 0}}; }, IBV_WC_LOC_PROT_ERR},
        {[](Queue& queue, const Hole&) { return std::vector{queue.piece(0, 1000)}; }, IBV_WC_LOC_LEN_ERR},
        {[](Queue& queue, const Hole&) { return std::vector{queue.piece(0, 2999)}; }, IBV_WC_LOC_LEN_ERR},
    };
    for (const Case& one : cases) {
        Queue from{left, {.type = IBV_QPT_UC}}, to{right, {.type = IBV_QPT_UC}};
        const Hole hole(to);
        from.connect(to);
        to.connect(from);
        to.post_receive(1, one.pieces(to, hole));
        EXPECT_EQ(outcome(from, {.sges = {from.piece(0, 3000)}}), IBV_WC_SUCCESS);
        expect_failed(to, one.status);
    }
}

TEST_F(FaultsTest, ADatagramThatCannotBeReceivedFailsItsQueue) {
    struct Case {
        std::vector<ibv_sge> (*pieces)(Queue&, const Hole&);
        ibv_wc_status status;
    };
    const Case cases[] = {
        {[](Queue&, const Hole& hole) { return std::vector{hole.piece(30, 200)}; }, IBV_WC_LOC_PROT_ERR},
        {[](Queue&, const Hole& hole) { return std::vector{hole.piece(100, 200)}; }, IBV_WC_LOC_PROT_ERR},
        {[](Queue& queue, const Hole&) { return std::vector{ibv_sge{queue.address(), 200, 0}}; }, IBV_WC_LOC_PROT_ERR},
        {[](Queue& queue, const Hole&) { return std::vector{queue.piece(0, 139)}; }, IBV_WC_LOC_LEN_ERR},
        {[](Queue& queue, const Hole&) { return std::vector{queue.piece(0, 140)}; }, IBV_WC_SUCCESS},
    };
    ibv_ah_attr attr{};
    attr.is_global = attr.port_num = 1;
    attr.grh.sgid_index = 1;
    attr.grh.dgid = right.gid(1);
    mlx5_wqe_av address{};
    ASSERT_EQ(resolve(left.state(), attr, address), 0);
    address.key.qkey.qkey = htobe32(Queue::usual().qkey);
    for (const Case& one : cases) {
        Queue from{left, {.type = IBV_QPT_UD}}, to{right, {.type = IBV_QPT_UD}};
        const Hole hole(to);
        from.connect(to);
        to.connect(from);
        to.post_receive(1, one.pieces(to, hole));
        address.dqp_dct = htobe32(to.number());
        EXPECT_EQ(outcome(from, {.sges = {from.piece(0, 100)}, .address = &address}), IBV_WC_SUCCESS);
        if (one.status == IBV_WC_SUCCESS) {
            EXPECT_EQ(to.receives_done().at(0).byte_len, 140U);
        } else {
            expect_failed(to, one.status);
        }
    }
}

TEST_F(FaultsTest, ACopyThatBreaksOffIsAProtectionErrorAndOver) {
    const ibv_sge metadata{client.address(8192), 0, client.region.key};
    const auto copy = [&](Queue& queue, const ibv_sge& from, const ibv_sge& to) {
        return outcome(queue, {.opcode = MemoryCopy::opcode, .opmod = MemoryCopy::dma, .sges = {metadata, from, to}});
    };
    EXPECT_EQ(copy(client, of_client.piece(100, 200), client.piece(0, 200)), IBV_WC_LOC_PROT_ERR);
    EXPECT_EQ(client.pair->state(), IBV_QPS_ERR);
    ASSERT_EQ(client.to(IBV_QPS_RESET), 0);
    client.posted = 0;
    client.send_doorbell = 0;
    client.send_freed = 0;
    client.connect(server);
    EXPECT_EQ(copy(client, client.piece(0, 200), of_client.piece(100, 200)), IBV_WC_LOC_PROT_ERR);
}

/// The wire loses what the left node sends until the test has done something to the request.
struct ChangesTest : FaultsTest {
    ibv_wc_status outcome_after(const Queue::Work& work, const std::function<void()>& change) {
        bool lost = false;
        wire = [&](const Frame&, bool from_left) {
            lost = lost || from_left;
            return 0u;
        };
        client.post(work);
        client.post(work);  // which is read after it
        run([&] { return lost; });
        change();
        wire = [](const Frame&, bool) { return 1u; };
        run();
        const auto done = client.sends();
        EXPECT_EQ(done.size(), 2U);
        EXPECT_EQ(client.pair->state(), IBV_QPS_ERR);
        if (done.size() != 2) return IBV_WC_GENERAL_ERR;
        EXPECT_EQ(done[1].status, IBV_WC_WR_FLUSH_ERR);
        return done[0].status;
    }
    /// Writes over a byte of the entry in the ring.
    void change(std::size_t at, std::uint8_t value) { client.send_ring[at] = std::byte{value}; }
    static constexpr std::size_t opcode = 3, units = 7, first_piece = 32;  // behind control and remote address
};

TEST_F(ChangesTest, AnEntryWhoseOpcodeChangesBeforeItIsSentAgainIsNoGoodOne) {
    EXPECT_EQ(outcome_after(of(a_write, client.piece(0, 8), server.piece(0, 8)),
                            [&] { change(opcode, MLX5_OPCODE_RDMA_WRITE_IMM); }),
              IBV_WC_LOC_QP_OP_ERR);
}

TEST_F(ChangesTest, AnEntryThatIsMalformedBeforeItIsSentAgainIsNoGoodOne) {
    EXPECT_EQ(outcome_after(of(a_write, client.piece(0, 8), server.piece(0, 8)), [&] { change(units, 1); }),
              IBV_WC_LOC_QP_OP_ERR);
}

TEST_F(ChangesTest, AMessageThatGrowsBeforeItIsSentAgainIsNoGoodOne) {
    EXPECT_EQ(outcome_after(of(a_write, client.piece(0, 8), server.piece(0, 8)), [&] { change(first_piece + 3, 9); }),
              IBV_WC_LOC_QP_OP_ERR);
}

TEST_F(ChangesTest, AKeyThatGoesBeforeItsBytesAreSentAgainIsAProtectionError) {
    EXPECT_EQ(
        outcome_after(of(a_write, client.piece(0, 8), server.piece(0, 8)), [&] { change(first_piece + 7, 0xff); }),
        IBV_WC_LOC_PROT_ERR);
}

/// The entry is changed while its answer is under way.
struct AnswersTest : ChangesTest {
    ibv_wc_status outcome_after(const Queue::Work& work, const std::function<void()>& change) {
        wire = [&](const Frame&, bool from_left) {
            if (!from_left) change();
            return 1u;
        };
        const ibv_wc_status status = outcome(client, work);
        EXPECT_EQ(client.pair->state(), IBV_QPS_ERR);
        return status;
    }
};

TEST_F(AnswersTest, AReadWhoseOpcodeChangesTakesNoAnswer) {
    EXPECT_EQ(outcome_after(of(a_read, client.piece(0, 8), server.piece(0, 8)), [&] { change(opcode, a_write); }),
              IBV_WC_LOC_QP_OP_ERR);
}

TEST_F(AnswersTest, AReadThatIsMalformedTakesNoAnswer) {
    EXPECT_EQ(outcome_after(of(a_read, client.piece(0, 8), server.piece(0, 8)), [&] { change(units, 1); }),
              IBV_WC_LOC_QP_OP_ERR);
}

TEST_F(AnswersTest, AReadWhosePlaceHasAnotherSizeTakesNoAnswer) {
    EXPECT_EQ(outcome_after(of(a_read, client.piece(0, 8), server.piece(0, 8)), [&] { change(first_piece + 3, 16); }),
              IBV_WC_LOC_PROT_ERR);
}

TEST_F(AnswersTest, AReadWhoseKeyIsGoneTakesNoAnswer) {
    EXPECT_EQ(outcome_after(of(a_read, client.piece(0, 8), server.piece(0, 8)), [&] { change(first_piece + 7, 0xff); }),
              IBV_WC_LOC_PROT_ERR);
}

TEST_F(FaultsTest, AKeyThatGoesBeforeTheAnswerIsMadeIsARemoteAccessError) {
    // Two reads of more packets than go out in one turn.
    MemoryRegion second = server.region;
    ASSERT_EQ(right.state().memory().add(second), 0);
    client.post(of(a_read, client.piece(0, 200'000), server.piece(0, 200'000)));
    client.post({.opcode = a_read,
                 .sges = {client.piece(200'000, 8)},
                 .remote = server.address(),
                 .rkey = second.key,
                 .wr_id = 1});
    (void)left.turn(now += 1000);
    carry(left, right);
    (void)right.turn(now += 1000);
    EXPECT_EQ(right.sent.size(), 128U);
    right.state().memory().remove(second.key);
    run();
    const auto done = client.sends();
    ASSERT_EQ(done.size(), 2U);
    EXPECT_EQ(done[0].status, IBV_WC_SUCCESS);
    EXPECT_EQ(done[1].status, IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(server.events, std::vector{IBV_EVENT_QP_ACCESS_ERR});
}

/// No packet buffer is to be had for a turn.
struct StarvedTest : TwoNodes {
    std::vector<rte_mbuf*> taken;
    void take_all() {
        for (rte_mbuf* one = nullptr; (one = rte_pktmbuf_alloc(soft::test::packet_pool())) != nullptr;) {
            taken.push_back(one);
        }
        ASSERT_FALSE(taken.empty());
    }
    void give_back() {
        for (rte_mbuf* one : taken) rte_pktmbuf_free(one);
        taken.clear();
    }
    /// Turns of `node` find none, and then all is well.
    void starve(Node& node) {
        take_all();
        for (int i = 0; i < 3; ++i) EXPECT_NE(node.turn(now += 1000), 0U) << "there is something to do";
        EXPECT_TRUE(node.sent.empty());
        give_back();
    }
};

TEST_F(StarvedTest, RequestsAreSentWhenThereAreBuffersAgain) {
    Queue client{left, {}}, server{right, {}};
    client.connect(server);
    server.connect(client);
    fill(client.memory, 1);
    for (const std::uint8_t opcode : {a_write, an_atomic, a_read}) {
        client.post(
            {.opcode = opcode, .sges = {client.piece(0, 8)}, .remote = server.address(), .rkey = server.region.key});
        starve(left);
        run();
        const auto done = client.sends();
        ASSERT_EQ(done.size(), 1U);
        EXPECT_EQ(done[0].status, IBV_WC_SUCCESS);
    }
}

TEST_F(StarvedTest, AnswersAreSentWhenThereAreBuffersAgain) {
    Queue client{left, {}}, server{right, {}};
    client.connect(server);
    server.connect(client);
    fill(server.memory, 1);
    for (const std::uint8_t opcode : {a_write, an_atomic, a_read}) {
        client.post(
            {.opcode = opcode, .sges = {client.piece(0, 8)}, .remote = server.address(), .rkey = server.region.key});
        (void)left.turn(now += 1000);
        ASSERT_EQ(left.sent.size(), 1U);
        // Past the node's port, as the buffer is to stay ours.
        rte_mbuf* const packet = rte_pktmbuf_alloc(soft::test::packet_pool());
        const Frame& frame = left.sent.front();
        std::memcpy(rte_pktmbuf_append(packet, static_cast<std::uint16_t>(frame.size())), frame.data(), frame.size());
        left.sent.clear();
        rte_mbuf_refcnt_update(packet, 1);
        ASSERT_TRUE(right.transport().engine_of(server.number()).post(packet));
        starve(right);
        rte_pktmbuf_free(packet);
        run();
        const auto done = client.sends();
        ASSERT_EQ(done.size(), 1U);
        EXPECT_EQ(done[0].status, IBV_WC_SUCCESS);
    }
    EXPECT_TRUE(std::equal(client.memory.begin(), client.memory.begin() + 8, server.memory.begin()));
}

TEST_F(StarvedTest, DatagramsAreSentWhenThereAreBuffersAgain) {
    Queue client{left, {.type = IBV_QPT_UD}}, server{right, {.type = IBV_QPT_UD}};
    client.connect(server);
    server.connect(client);
    ibv_ah_attr attr{};
    attr.is_global = attr.port_num = 1;
    attr.grh.sgid_index = 1;
    attr.grh.dgid = right.gid(1);
    mlx5_wqe_av address{};
    ASSERT_EQ(resolve(left.state(), attr, address), 0);
    address.key.qkey.qkey = htobe32(Queue::usual().qkey);
    address.dqp_dct = htobe32(server.number());
    server.post_receive(1, {server.piece(0, 200)});
    client.post({.sges = {client.piece(0, 8)}, .address = &address});
    starve(left);
    run();
    EXPECT_EQ(client.sends().size(), 1U);
    EXPECT_EQ(server.receives_done().size(), 1U);
}

}  // namespace
}  // namespace ovsdr::soft::roce::test
