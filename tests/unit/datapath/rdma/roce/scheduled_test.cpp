// Queue pairs of the transport under leaves of the device's scheduler.
#include "datapath/rdma/pacing/scheduler.hpp"
#include "two_nodes.hpp"

namespace ovsdr::soft::roce::test {
namespace {

constexpr std::size_t message = 60'000;
constexpr std::uint64_t millisecond = 1'000'000;

struct ScheduledTest : TwoNodes {
    std::unique_ptr<Scheduler::Element> root_of(Node& node, std::unique_ptr<Scheduler::Element>& leaf,
                                                std::uint32_t megabits) {
        std::unique_ptr<Scheduler::Element> root;
        EXPECT_EQ(node.state().scheduler().add(nullptr, Scheduler::Kind::node, {}, root), 0);
        EXPECT_EQ(node.state().scheduler().add(root.get(), Scheduler::Kind::leaf, {.megabits = megabits}, leaf), 0);
        return root;
    }
    /// How long the client needs for what it has posted.
    std::uint64_t time_of(Queue& client) {
        const std::uint64_t begin = now;
        std::size_t done = 0;
        run([&] {
            for (const Completion& completion : client.sends()) {
                EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
                ++done;
            }
            return done != 0;
        });
        EXPECT_EQ(done, 1u);
        return now - begin;
    }
    std::unique_ptr<Scheduler::Element> leaf, right_leaf;
    std::unique_ptr<Scheduler::Element> root = root_of(left, leaf, 10), right_root = root_of(right, right_leaf, 10);
};

/// 60 kB are 59 packets of 1,024 bytes and headers: some 3.9 kB more.
constexpr double slow = (message + 3'900) * 8 / 10e6 * 1e9;

TEST_F(ScheduledTest, RequestsKeepToTheLimitAndNothingIsSentTwice) {
    for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UC}) {
        Queue client{left, {.type = type}}, server{right, {.type = type}};
        client.connect(server);
        server.connect(client);
        ASSERT_EQ(client.pair->schedule(leaf.get(), nullptr), 0);
        fill(client.memory, 1);
        now += 1'000 * millisecond;
        frames = 0;
        client.post({.opcode = MLX5_OPCODE_RDMA_WRITE, .sges = {client.piece(0, message)}, .remote = server.address(),
                     .rkey = server.region.key});
        EXPECT_NEAR(static_cast<double>(time_of(client)), slow, slow * 0.06);
        run();
        EXPECT_LE(frames, type == IBV_QPT_RC ? 2 * 59u : 59u) << "packets and their acknowledgements";
        EXPECT_TRUE(std::equal(server.memory.begin(), server.memory.begin() + message, client.memory.begin()));
        ASSERT_EQ(client.pair->schedule(nullptr, nullptr), 0);
        client.post({.opcode = MLX5_OPCODE_RDMA_WRITE, .sges = {client.piece(0, message)}, .remote = server.address(),
                     .rkey = server.region.key});
        EXPECT_LE(time_of(client), millisecond) << "free again";
    }
}

TEST_F(ScheduledTest, AnswersKeepToTheirOwnLimit) {
    Queue client{left, {}}, server{right, {}};
    client.connect(server);
    server.connect(client);
    ASSERT_EQ(server.pair->schedule(nullptr, right_leaf.get()), 0);
    fill(server.memory, 2);
    now += 1'000 * millisecond;
    client.post({.opcode = MLX5_OPCODE_RDMA_READ, .sges = {client.piece(0, message)}, .remote = server.address(),
                 .rkey = server.region.key});
    EXPECT_NEAR(static_cast<double>(time_of(client)), slow, slow * 0.08);
    EXPECT_TRUE(std::equal(client.memory.begin(), client.memory.begin() + message, server.memory.begin()));
    server.post({.opcode = MLX5_OPCODE_RDMA_WRITE, .sges = {server.piece(0, message)}, .remote = client.address(),
                 .rkey = client.region.key});
    EXPECT_LE(time_of(server), millisecond) << "what it asks for is not limited";
}

TEST_F(ScheduledTest, WaitingIsNotSilence) {
    // A packet in eight milliseconds, and 4 ms to the timeout: none may be taken for lost, nor a retry be used up.
    ASSERT_EQ(left.state().scheduler().modify(*leaf, {.share = {}, .megabits = 1}), 0);
    Queue client{left, {}}, server{right, {}};
    ibv_qp_attr attr = Queue::usual();
    attr.timeout = 10;
    attr.retry_cnt = 0;
    client.connect(server, 1, attr);
    server.connect(client);
    ASSERT_EQ(client.pair->schedule(leaf.get(), nullptr), 0);
    frames = 0;
    client.post({.opcode = MLX5_OPCODE_RDMA_WRITE, .sges = {client.piece(0, message)}, .remote = server.address(),
                 .rkey = server.region.key});
    EXPECT_GE(time_of(client), 400 * millisecond);
    run();
    EXPECT_LE(frames, 2 * 59u);
}

TEST_F(ScheduledTest, LossesAreRepairedWithinTheLimit) {
    Queue client{left, {}}, server{right, {}};
    client.connect(server);
    server.connect(client);
    ASSERT_EQ(client.pair->schedule(leaf.get(), nullptr), 0);
    fill(client.memory, 3);
    std::mt19937 random(5);
    wire = [&](const Frame&, bool) { return random() % 10 == 0 ? 0u : 1u; };
    client.post({.opcode = MLX5_OPCODE_RDMA_WRITE, .sges = {client.piece(0, message)}, .remote = server.address(),
                 .rkey = server.region.key});
    EXPECT_GE(static_cast<double>(time_of(client)), slow * 0.95);
    EXPECT_TRUE(std::equal(server.memory.begin(), server.memory.begin() + message, client.memory.begin()));
}

TEST_F(ScheduledTest, QueuePairsLetGoAtResetAndAreAttachedInInitAndRts) {
    Queue client{left, {}}, server{right, {}};
    EXPECT_EQ(client.pair->schedule(leaf.get(), nullptr), EINVAL) << "RESET";
    client.connect(server);
    ASSERT_EQ(client.pair->schedule(leaf.get(), leaf.get()), 0);
    EXPECT_EQ(left.state().scheduler().remove(*leaf), EBUSY);
    ASSERT_EQ(client.to(IBV_QPS_RESET), 0);
    EXPECT_EQ(left.state().scheduler().remove(*leaf), 0);
    leaf.reset();
}

}  // namespace
}  // namespace ovsdr::soft::roce::test
