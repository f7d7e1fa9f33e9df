// Reliable connections: two nodes over a wire, and one device to itself.
#include "two_nodes.hpp"

namespace ovsdr::soft::roce::test {
namespace {

struct ReliableTest : TwoNodes, testing::WithParamInterface<unsigned> {
    Queue client{left, {}}, server{right, {}};
    void SetUp() override {
        client.connect(server, GetParam());
        server.connect(client, GetParam());
    }
    void expect_equal(std::size_t from, std::size_t to, std::size_t size) {
        EXPECT_TRUE(std::equal(client.memory.begin() + static_cast<long>(from),
                               client.memory.begin() + static_cast<long>(from + size),
                               server.memory.begin() + static_cast<long>(to)));
    }
};

TEST_P(ReliableTest, SendsArriveInOrderWithTheirBytes) {
    fill(client.memory, 1);
    server.post_receive(100, {server.piece(0, 3000), server.piece(3000, 3000)});
    server.post_receive(101, {server.piece(8000, 10)});
    client.post({.sges = {client.piece(0, 1000), client.piece(1000, 3500)}, .wr_id = 1});
    client.post({.opcode = MLX5_OPCODE_SEND_IMM, .sges = {client.piece(9000, 7)}, .immediate = htobe32(0xabcdef01),
                 .solicited = true, .wr_id = 2});
    run();
    const auto sent = client.sends();
    ASSERT_EQ(sent.size(), 2U);
    EXPECT_EQ(sent[0].wr_id, 1U);
    EXPECT_EQ(sent[0].status, IBV_WC_SUCCESS);
    EXPECT_EQ(sent[0].opcode, IBV_WC_SEND);
    EXPECT_EQ(sent[1].wr_id, 2U);
    const auto got = server.receives_done();
    ASSERT_EQ(got.size(), 2U);
    EXPECT_EQ(got[0].wr_id, 100U);
    EXPECT_EQ(got[0].opcode, IBV_WC_RECV);
    EXPECT_EQ(got[0].byte_len, 4500U);
    EXPECT_EQ(got[0].wc_flags, 0U);
    EXPECT_FALSE(got[0].solicited);
    EXPECT_EQ(got[0].qp_num, server.number());
    EXPECT_EQ(got[1].wr_id, 101U);
    EXPECT_EQ(got[1].byte_len, 7U);
    EXPECT_EQ(got[1].wc_flags, static_cast<unsigned>(IBV_WC_WITH_IMM));
    EXPECT_EQ(got[1].imm_data, htobe32(0xabcdef01));
    EXPECT_TRUE(got[1].solicited);
    expect_equal(0, 0, 4500);
    expect_equal(9000, 8000, 7);
}

TEST_P(ReliableTest, WritesArriveWithoutAReceiveEntry) {
    fill(client.memory, 2);
    client.post({.opcode = MLX5_OPCODE_RDMA_WRITE, .sges = {client.piece(0, 5000)}, .remote = server.address(123),
                 .rkey = server.region.key, .wr_id = 1});
    client.post({.opcode = MLX5_OPCODE_RDMA_WRITE, .sges = {}, .remote = 0, .rkey = 0, .wr_id = 2});
    run();
    const auto sent = client.sends();
    ASSERT_EQ(sent.size(), 2U);
    EXPECT_EQ(sent[0].opcode, IBV_WC_RDMA_WRITE);
    EXPECT_EQ(sent[0].status, IBV_WC_SUCCESS);
    EXPECT_EQ(sent[1].status, IBV_WC_SUCCESS) << "a write of nothing needs no key";
    EXPECT_TRUE(server.receives_done().empty());
    expect_equal(0, 123, 5000);
}

TEST_P(ReliableTest, AWriteWithImmediateTakesAReceiveEntry) {
    fill(client.memory, 3);
    server.post_receive(7, {});
    client.post({.opcode = MLX5_OPCODE_RDMA_WRITE_IMM, .sges = {client.piece(0, 2048)}, .remote = server.address(),
                 .rkey = server.region.key, .immediate = 0x1234});
    run();
    ASSERT_EQ(client.sends().size(), 1U);
    const auto got = server.receives_done();
    ASSERT_EQ(got.size(), 1U);
    EXPECT_EQ(got[0].opcode, IBV_WC_RECV_RDMA_WITH_IMM);
    EXPECT_EQ(got[0].byte_len, 2048U);
    EXPECT_EQ(got[0].imm_data, 0x1234U);
    expect_equal(0, 0, 2048);
}

TEST_P(ReliableTest, ReadsBringTheRemoteBytes) {
    fill(server.memory, 4);
    for (std::uint64_t i = 0; i < 8; ++i) {  // more than may wait
        client.post({.opcode = MLX5_OPCODE_RDMA_READ,
                     .sges = {client.piece(i * 4000, 1500), client.piece(i * 4000 + 1500, 1500)},
                     .remote = server.address(i * 4000), .rkey = server.region.key, .wr_id = i});
    }
    run();
    const auto done = client.sends();
    ASSERT_EQ(done.size(), 8U);
    for (std::uint64_t i = 0; i < 8; ++i) {
        EXPECT_EQ(done[i].wr_id, i);
        EXPECT_EQ(done[i].status, IBV_WC_SUCCESS);
        EXPECT_EQ(done[i].opcode, IBV_WC_RDMA_READ);
        EXPECT_EQ(done[i].byte_len, 3000U);
        expect_equal(i * 4000, i * 4000, 3000);
    }
}

TEST_P(ReliableTest, AtomicsReturnWhatWasThere) {
    auto* const word = reinterpret_cast<std::uint64_t*>(server.memory.data() + 64);
    *word = 40;
    const auto result = [&](std::size_t offset) {
        std::uint64_t value = 0;
        std::memcpy(&value, client.memory.data() + offset, 8);
        return value;
    };
    client.post({.opcode = MLX5_OPCODE_ATOMIC_FA, .sges = {client.piece(0, 8)}, .remote = server.address(64),
                 .rkey = server.region.key, .swap_add = 2});
    client.post({.opcode = MLX5_OPCODE_ATOMIC_CS, .sges = {client.piece(8, 8)}, .remote = server.address(64),
                 .rkey = server.region.key, .swap_add = 99, .compare = 41});
    client.post({.opcode = MLX5_OPCODE_ATOMIC_CS, .sges = {client.piece(16, 8)}, .remote = server.address(64),
                 .rkey = server.region.key, .swap_add = 77, .compare = 42});
    run();
    const auto done = client.sends();
    ASSERT_EQ(done.size(), 3U);
    EXPECT_EQ(done[0].opcode, IBV_WC_FETCH_ADD);
    EXPECT_EQ(done[1].opcode, IBV_WC_COMP_SWAP);
    EXPECT_EQ(done[2].status, IBV_WC_SUCCESS);
    EXPECT_EQ(result(0), 40U);
    EXPECT_EQ(result(8), 42U);
    EXPECT_EQ(result(16), 42U);
    EXPECT_EQ(*word, 77U);
}

TEST_P(ReliableTest, InlineBytesAreSentAsTheyWere) {
    std::vector<std::byte> bytes(100);
    fill(bytes, 5);
    server.post_receive(1, {server.piece(0, 200)});
    client.post({.inlined = bytes});
    run();
    ASSERT_EQ(server.receives_done().size(), 1U);
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), server.memory.begin()));
}

TEST_P(ReliableTest, UnsignaledRequestsAreFreedByTheNextCompletion) {
    for (int i = 0; i < 3; ++i) server.post_receive(1, {server.piece(0, 8)});
    client.post({.sges = {client.piece(0, 8)}, .signaled = false});
    client.post({.sges = {client.piece(0, 8)}, .signaled = false});
    client.post({.sges = {client.piece(0, 8)}, .wr_id = 3});
    run();
    const auto done = client.sends();
    ASSERT_EQ(done.size(), 1U);
    EXPECT_EQ(done[0].wr_id, 3U);
    EXPECT_EQ(client.send_freed, 3U);
}

TEST_P(ReliableTest, AReceiverWithoutAnEntryIsTriedAgain) {
    client.post({.sges = {client.piece(0, 5000)}});
    unsigned turns = 0;
    run([&] { return ++turns == 300; });
    EXPECT_TRUE(client.sends().empty());
    EXPECT_TRUE(server.receives_done().empty());
    server.post_receive(1, {server.piece(0, 5000)});
    run();
    ASSERT_EQ(client.sends().size(), 1U);
    ASSERT_EQ(server.receives_done().size(), 1U);
}

INSTANTIATE_TEST_SUITE_P(Addresses, ReliableTest, testing::Values(0u, 1u, 2u), [](const auto& gid) {
    return std::string(gid.param == 0 ? "LinkLocal" : gid.param == 1 ? "Ipv4" : "Ipv6");
});

}  // namespace
}  // namespace ovsdr::soft::roce::test
