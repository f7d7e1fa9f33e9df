// Unreliable connections and datagrams.
#include "two_nodes.hpp"

#include <thread>

namespace ovsdr::soft::roce::test {
namespace {

struct UnreliableTest : TwoNodes {
    Queue client{left, {.type = IBV_QPT_UC}}, server{right, {.type = IBV_QPT_UC}};
    void SetUp() override {
        client.connect(server);
        server.connect(client);
    }
};

TEST_F(UnreliableTest, SendsAndWritesArriveAndNobodyAnswers) {
    fill(client.memory, 1);
    unsigned answers = 0;
    wire = [&](const Frame&, bool from_left) {
        answers += !from_left;
        return 1u;
    };
    server.post_receive(1, {server.piece(0, 4000)});
    server.post_receive(2, {});
    client.post({.opcode = MLX5_OPCODE_SEND_IMM, .sges = {client.piece(0, 4000)}, .immediate = 7});
    client.post({.opcode = MLX5_OPCODE_RDMA_WRITE, .sges = {client.piece(4000, 2000)}, .remote = server.address(4000),
                 .rkey = server.region.key});
    client.post({.opcode = MLX5_OPCODE_RDMA_WRITE_IMM, .sges = {client.piece(6000, 2000)},
                 .remote = server.address(6000), .rkey = server.region.key, .immediate = 8});
    run();
    EXPECT_EQ(client.sends().size(), 3U);
    const auto got = server.receives_done();
    ASSERT_EQ(got.size(), 2U);
    EXPECT_EQ(got[0].imm_data, 7U);
    EXPECT_EQ(got[0].byte_len, 4000U);
    EXPECT_EQ(got[1].opcode, IBV_WC_RECV_RDMA_WITH_IMM);
    EXPECT_EQ(got[1].imm_data, 8U);
    EXPECT_TRUE(std::equal(server.memory.begin(), server.memory.begin() + 8000, client.memory.begin()));
    EXPECT_EQ(answers, 0U);
}

TEST_F(UnreliableTest, AMessageThatLostAPacketIsDroppedWhole) {
    unsigned packet = 0;
    wire = [&](const Frame&, bool) { return packet++ == 1 ? 0u : 1u; };
    server.post_receive(1, {server.piece(0, 5000)});
    client.post({.sges = {client.piece(0, 5000)}, .wr_id = 1});
    client.post({.sges = {client.piece(0, 3000)}, .wr_id = 2});
    run();
    EXPECT_EQ(client.sends().size(), 2U) << "the sender does not know";
    const auto got = server.receives_done();
    ASSERT_EQ(got.size(), 1U) << "the entry of the first message is the second one's";
    EXPECT_EQ(got[0].byte_len, 3000U);
    EXPECT_EQ(got[0].wr_id, 1U);
}

TEST_F(UnreliableTest, WithoutAReceiveEntryAMessageIsDropped) {
    client.post({.sges = {client.piece(0, 3000)}});
    run();
    server.post_receive(1, {server.piece(0, 100)});
    client.post({.sges = {client.piece(0, 50)}});
    run();
    const auto got = server.receives_done();
    ASSERT_EQ(got.size(), 1U);
    EXPECT_EQ(got[0].byte_len, 50U);
    EXPECT_EQ(server.pair->state(), IBV_QPS_RTS);
}

TEST_F(UnreliableTest, AWriteWithoutTheRightIsDropped) {
    client.post({.opcode = MLX5_OPCODE_RDMA_WRITE, .sges = {client.piece(0, 10)}, .remote = server.address(),
                 .rkey = server.region.key + 1});
    run();
    EXPECT_EQ(client.sends().at(0).status, IBV_WC_SUCCESS);
    EXPECT_EQ(server.pair->state(), IBV_QPS_RTS);
    EXPECT_EQ(server.memory, std::vector<std::byte>(server.memory.size()));
}

TEST_F(UnreliableTest, ALocalErrorStopsTheSendQueueOnly) {
    client.post({.sges = {{client.address(), 10, 0}}, .wr_id = 1});
    client.post({.sges = {client.piece(0, 10)}, .wr_id = 2});
    run();
    const auto done = client.sends();
    ASSERT_EQ(done.size(), 2U);
    EXPECT_EQ(done[0].status, IBV_WC_LOC_PROT_ERR);
    EXPECT_EQ(done[1].status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(client.pair->state(), IBV_QPS_SQE);
    client.post_receive(3, {client.piece(0, 10)});
    server.post({.sges = {server.piece(0, 10)}});
    run();
    EXPECT_EQ(client.receives_done().size(), 1U) << "it receives on";
    ASSERT_EQ(client.to(IBV_QPS_RTS), 0);
    server.post_receive(4, {server.piece(0, 10)});
    client.post({.sges = {client.piece(0, 10)}, .wr_id = 5});
    run();
    ASSERT_EQ(client.sends().size(), 1U);
    EXPECT_EQ(server.receives_done().size(), 1U);
}

TEST_F(UnreliableTest, ReadsDoNotExist) {
    client.post({.opcode = MLX5_OPCODE_RDMA_READ, .sges = {client.piece(0, 8)}, .remote = server.address(),
                 .rkey = server.region.key});
    run();
    EXPECT_EQ(client.sends().at(0).status, IBV_WC_LOC_QP_OP_ERR);
}

struct DatagramTest : TwoNodes, testing::WithParamInterface<unsigned> {
    Queue client{left, {.type = IBV_QPT_UD}}, server{right, {.type = IBV_QPT_UD}};
    mlx5_wqe_av address{};
    void SetUp() override {
        client.connect(server);
        server.connect(client);
        address = address_of(client, server);
    }
    mlx5_wqe_av address_of(Queue& from, Queue& to) {
        ibv_ah_attr attr{};
        attr.is_global = 1;
        attr.port_num = 1;
        attr.grh.dgid = to.node.gid(GetParam());
        attr.grh.sgid_index = static_cast<std::uint8_t>(GetParam());
        attr.grh.hop_limit = 9;
        attr.grh.traffic_class = 0x48;
        mlx5_wqe_av vector{};
        EXPECT_EQ(resolve(from.node.state(), attr, vector), 0);
        vector.key.qkey.qkey = htobe32(Queue::usual().qkey);
        vector.dqp_dct = htobe32(to.number());
        return vector;
    }
};

TEST_P(DatagramTest, ACommandComesBehindTheDoorbellsThatRangBefore) {
    for (unsigned i = 0; i < 6; ++i) client.post({.sges = {client.piece(0, 10)}, .address = &address});
    auto completed = std::async(std::launch::async, [&] {
        left.state().answer_doorbells();
        return client.sends().size();
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    while (completed.wait_for(std::chrono::milliseconds(0)) != std::future_status::ready) run({}, 0);
    EXPECT_EQ(completed.get(), 6U);
}

TEST_P(DatagramTest, BringsTheGrhTheSourceAndTheBytes) {
    fill(client.memory, 1);
    server.post_receive(1, {server.piece(0, 20), server.piece(20, 1020)});
    client.post(
        {.opcode = MLX5_OPCODE_SEND_IMM, .sges = {client.piece(0, 1000)}, .immediate = 99, .address = &address});
    run();
    ASSERT_EQ(client.sends().size(), 1U);
    const auto got = server.receives_done();
    ASSERT_EQ(got.size(), 1U);
    EXPECT_EQ(got[0].byte_len, 1040U);
    EXPECT_EQ(got[0].src_qp, client.number());
    EXPECT_EQ(got[0].sl, GetParam() == 1 ? 2 : 1) << "the L3 type";
    EXPECT_EQ(got[0].wc_flags, static_cast<unsigned>(IBV_WC_GRH | IBV_WC_WITH_IMM));
    EXPECT_EQ(got[0].imm_data, 99U);
    EXPECT_TRUE(std::equal(client.memory.begin(), client.memory.begin() + 1000, server.memory.begin() + 40));
    if (GetParam() == 1) {
        EXPECT_TRUE(std::all_of(server.memory.begin(), server.memory.begin() + 20,
                                [](std::byte b) { return b == std::byte{0}; }));
        EXPECT_EQ(server.memory[20], std::byte{0x45});
        EXPECT_EQ(server.memory[21], std::byte{0x48});
        EXPECT_EQ(server.memory[28], std::byte{9});
        EXPECT_EQ(std::memcmp(server.memory.data() + 32, left.gid(1).raw + 12, 4), 0);
    } else {
        EXPECT_EQ(server.memory[0], std::byte{0x64});
        EXPECT_EQ(server.memory[7], std::byte{9});
        EXPECT_EQ(std::memcmp(server.memory.data() + 8, left.gid(GetParam()).raw, 16), 0);
        EXPECT_EQ(std::memcmp(server.memory.data() + 24, right.gid(GetParam()).raw, 16), 0);
    }
}

TEST_P(DatagramTest, AWrongQkeyIsDropped) {
    server.post_receive(1, {server.piece(0, 1040)});
    mlx5_wqe_av wrong = address;
    wrong.key.qkey.qkey = htobe32(1);
    client.post({.sges = {client.piece(0, 10)}, .address = &wrong});
    run();
    EXPECT_TRUE(server.receives_done().empty());
    wrong.key.qkey.qkey = htobe32(0x80000000);  // the queue's own
    client.post({.sges = {client.piece(0, 10)}, .address = &wrong});
    run();
    EXPECT_EQ(server.receives_done().size(), 1U);
}

TEST_P(DatagramTest, IsOnePacket) {
    client.post({.sges = {client.piece(0, 4097)}, .address = &address});
    run();
    EXPECT_EQ(client.sends().at(0).status, IBV_WC_LOC_LEN_ERR);
    EXPECT_EQ(client.pair->state(), IBV_QPS_SQE);
}

TEST_P(DatagramTest, WithoutAReceiveEntryItIsDropped) {
    client.post({.sges = {client.piece(0, 10)}, .address = &address});
    run();
    server.post_receive(1, {server.piece(0, 1040)});
    run();
    EXPECT_TRUE(server.receives_done().empty());
}

TEST_P(DatagramTest, ReachesAQueueOfItsOwnDevice) {
    Queue other(left, {.type = IBV_QPT_UD});
    other.connect(client);
    const mlx5_wqe_av own = address_of(client, other);
    other.post_receive(1, {other.piece(0, 1040)});
    client.post({.sges = {client.piece(0, 10)}, .address = &own});
    frames = 0;
    run();
    EXPECT_EQ(other.receives_done().size(), 1U);
    EXPECT_EQ(frames, 0U) << "it does not leave";
}

INSTANTIATE_TEST_SUITE_P(Addresses, DatagramTest, testing::Values(0u, 1u, 2u));

}  // namespace
}  // namespace ovsdr::soft::roce::test
