// Copies from memory to memory by the queue's DMA engine.
#include "datapath/rdma/roce/memory_copy.hpp"

#include "two_nodes.hpp"

namespace ovsdr::soft::roce::test {
namespace {

struct MemoryCopyTest : TwoNodes {
    static constexpr std::size_t size = 1 << 20, metadata_at = 3 << 20;
    Queue client{left, {.memory = 4 << 20}}, server{right, {}};

    void SetUp() override {
        client.connect(server);
        server.connect(client);
        fill(client.memory, 1);
    }
    /// The metadata stands where a piece would: a word, a key, an address.
    [[nodiscard]] ibv_sge metadata() const { return {client.address(metadata_at), 0, client.region.key}; }
    [[nodiscard]] Queue::Work copy(const ibv_sge& from, const ibv_sge& to) const {
        return {.opcode = MemoryCopy::opcode, .opmod = MemoryCopy::dma, .sges = {metadata(), from, to}, .wr_id = 7};
    }
    [[nodiscard]] ibv_wc_status status_of(const Queue::Work& work) {
        client.post(work);
        run();
        const auto done = client.sends();
        EXPECT_EQ(done.size(), 1U);
        return done.empty() ? IBV_WC_GENERAL_ERR : done[0].status;
    }
};

TEST_F(MemoryCopyTest, MovesEveryByteAndCompletesAsACopy) {
    const std::vector<std::byte> before = client.memory;
    client.post(copy(client.piece(5, size), client.piece(size + 11, size)));
    run();
    const auto done = client.sends();
    ASSERT_EQ(done.size(), 1U);
    EXPECT_EQ(done[0].status, IBV_WC_SUCCESS);
    EXPECT_EQ(done[0].opcode, static_cast<ibv_wc_opcode>(MLX5DV_WC_MEMCPY));
    EXPECT_EQ(done[0].wr_id, 7U);
    std::vector<std::byte> expected = before;
    std::copy_n(before.begin() + 5, size, expected.begin() + size + 11);
    EXPECT_TRUE(client.memory == expected);
}

TEST_F(MemoryCopyTest, ALongOneTakesSeveralTurnsOfTheWorker) {
    constexpr unsigned expected = size / MemoryCopy::slice / 4;  // a slice counts as 32 of 128 packets
    fill(client.memory, 2);
    client.post(copy(client.piece(0, size), client.piece(size, size)));
    client.post({.opcode = MLX5_OPCODE_RDMA_WRITE, .sges = {client.piece(2 * size - 8, 8)}, .remote = server.address(),
                 .rkey = server.region.key, .wr_id = 8});
    unsigned turns = 0;
    while (client.send_freed == 0 && turns < 100) {
        (void)left.turn(now += 1000);
        ++turns;
        const auto done = client.sends();
        const bool copied = !done.empty();
        EXPECT_EQ(copied, turns == expected) << turns;
        EXPECT_EQ(left.sent.empty(), !copied) << "what follows a copy waits for it";
        if (copied) break;
    }
    EXPECT_EQ(turns, expected);
    run();
    ASSERT_EQ(client.sends().size(), 1U);
    EXPECT_TRUE(std::equal(server.memory.begin(), server.memory.begin() + 8, client.memory.begin() + size - 8));
}

TEST_F(MemoryCopyTest, ADrainingQueueFinishesTheCopyThatItHasBegun) {
    client.post(copy(client.piece(0, size), client.piece(size, size)));
    client.post(copy(client.piece(0, 8), client.piece(size, 8)));
    (void)left.turn(now += 1000);
    ASSERT_EQ(client.to(IBV_QPS_SQD), 0);
    EXPECT_FALSE(client.pair->drained_at());
    run();
    EXPECT_EQ(client.sends().size(), 1U);
    EXPECT_TRUE(client.pair->drained_at());
}

TEST_F(MemoryCopyTest, TheSourceMustBeOfTheDomain) {
    Queue other(left, {});
    EXPECT_EQ(status_of(copy(other.piece(0, 8), client.piece(0, 8))), IBV_WC_LOC_PROT_ERR);
    EXPECT_EQ(client.pair->state(), IBV_QPS_ERR);
}

TEST_F(MemoryCopyTest, TheDestinationMustBeOfTheDomain) {
    Queue other(left, {});
    EXPECT_EQ(status_of(copy(client.piece(0, 8), other.piece(0, 8))), IBV_WC_LOC_PROT_ERR);
}

TEST_F(MemoryCopyTest, TheDestinationMustBeWritableAndTheSourceNeedNot) {
    MemoryRegion readable{client.address(), client.memory.size(), client.memory.data(), IBV_ACCESS_REMOTE_READ,
                          &client};
    ASSERT_EQ(left.state().memory().add(readable), 0);
    ibv_sge piece = client.piece(0, 8);
    piece.lkey = readable.key;
    EXPECT_EQ(status_of(copy(piece, client.piece(64, 8))), IBV_WC_SUCCESS);
    EXPECT_EQ(status_of(copy(client.piece(64, 8), piece)), IBV_WC_LOC_PROT_ERR);
    left.state().memory().remove(readable.key);
}

TEST_F(MemoryCopyTest, MetadataMustBeWritable) {
    Queue::Work work = copy(client.piece(0, 8), client.piece(64, 8));
    work.sges[0].lkey = 0xffff00;
    EXPECT_EQ(status_of(work), IBV_WC_LOC_PROT_ERR);
}

TEST_F(MemoryCopyTest, LengthsMustAgree) {
    EXPECT_EQ(status_of(copy(client.piece(0, 8), client.piece(64, 16))), IBV_WC_LOC_QP_OP_ERR);
}

TEST_F(MemoryCopyTest, TheLargestCopyIsAsLongAsTheCapabilitySays) {
    EXPECT_EQ(status_of(copy(client.piece(0, MemoryCopy::most + 1), client.piece(0, MemoryCopy::most + 1))),
              IBV_WC_LOC_LEN_ERR);
}

TEST_F(MemoryCopyTest, ACopyOfNothingIsALengthError) {
    EXPECT_EQ(status_of(copy(client.piece(0, 0), client.piece(64, 0))), IBV_WC_LOC_LEN_ERR);
}

TEST_F(MemoryCopyTest, TheLargestCopyGoesThrough) {
    EXPECT_EQ(status_of(copy(client.piece(0, MemoryCopy::most), client.piece(MemoryCopy::most, MemoryCopy::most))),
              IBV_WC_SUCCESS);
    EXPECT_TRUE(std::equal(client.memory.begin(), client.memory.begin() + MemoryCopy::most,
                           client.memory.begin() + MemoryCopy::most));
}

TEST_F(MemoryCopyTest, AnEntryHasFourSegments) {
    Queue::Work work = copy(client.piece(0, 8), client.piece(64, 8));
    work.sges.push_back(client.piece(0, 8));
    EXPECT_EQ(status_of(work), IBV_WC_LOC_QP_OP_ERR);
}

TEST_F(MemoryCopyTest, OtherEnginesAreNotThere) {
    Queue::Work work = copy(client.piece(0, 8), client.piece(64, 8));
    work.opmod = 2;
    EXPECT_EQ(status_of(work), IBV_WC_LOC_QP_OP_ERR);
}

TEST_F(MemoryCopyTest, OtherTypesOfQueuesHaveNone) {
    Queue one(left, {.type = IBV_QPT_UC}), two(right, {.type = IBV_QPT_UC});
    one.connect(two);
    one.post({.opcode = MemoryCopy::opcode, .opmod = MemoryCopy::dma,
              .sges = {{one.address(), 0, one.region.key}, one.piece(0, 8), one.piece(64, 8)}});
    run();
    const auto done = one.sends();
    ASSERT_EQ(done.size(), 1U);
    EXPECT_EQ(done[0].status, IBV_WC_LOC_QP_OP_ERR);
}

}  // namespace
}  // namespace ovsdr::soft::roce::test
