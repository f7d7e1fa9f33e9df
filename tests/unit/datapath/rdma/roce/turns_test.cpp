// How much an engine does before others have their turn.
#include <chrono>
#include <set>

#include "two_nodes.hpp"

namespace ovsdr::soft::roce::test {
namespace {

struct TurnsTest : TwoNodes {};

TEST_F(TurnsTest, NoneSendsMoreThanAnEngineReceivesAndQueuePairsShareIt) {
    constexpr std::size_t size = 200 << 10;
    constexpr unsigned queues = 6, most = 128, most_of_one = 32;
    std::vector<std::unique_ptr<Queue>> clients, servers;
    for (unsigned i = 0; i < queues; ++i) {
        clients.push_back(std::make_unique<Queue>(left, Queue::Options{.memory = size}));
        servers.push_back(std::make_unique<Queue>(right, Queue::Options{.memory = size}));
        clients[i]->connect(*servers[i]);
        servers[i]->connect(*clients[i]);
        fill(servers[i]->memory, i);
        clients[i]->post({.opcode = MLX5_OPCODE_RDMA_READ, .sges = {clients[i]->piece(0, size)},
                          .remote = servers[i]->address(), .rkey = servers[i]->region.key});
    }
    std::size_t largest = 0, partners = 0;
    for (unsigned work = 1; work != 0;) {
        now += 1000;
        work = left.turn(now);
        carry(left, right);
        work += right.turn(now);
        if (right.sent.size() > largest) {
            largest = right.sent.size();
            std::set<std::byte> numbers;  // the last byte of the BTH's destination, behind Ethernet, IPv4 and UDP
            for (const Frame& frame : right.sent) numbers.insert(frame.at(14 + 20 + 8 + 7));
            partners = numbers.size();
        }
        carry(right, left);
    }
    EXPECT_EQ(largest, most);
    EXPECT_EQ(partners, most / most_of_one);
    for (unsigned i = 0; i < queues; ++i) {
        const auto done = clients[i]->sends();
        ASSERT_EQ(done.size(), 1U);
        EXPECT_EQ(done[0].status, IBV_WC_SUCCESS);
        EXPECT_EQ(clients[i]->memory, servers[i]->memory);
    }
}

TEST_F(TurnsTest, WhoHasNothingToDoTakesNoLock) {
    Queue client(left, {}), server(right, {});
    client.connect(server);
    server.connect(client);
    client.post({.opcode = MLX5_OPCODE_RDMA_WRITE, .sges = {client.piece(0, 8)}, .remote = server.address(),
                 .rkey = server.region.key});
    run();
    ASSERT_EQ(client.sends().size(), 1U);
    now += 1000;
    std::future<unsigned> turn;
    bool ended = false;
    {
        const Engine::Control changing(left.transport().engine_of(client.number()));
        turn = std::async(std::launch::async, [this] { return left.turn(now); });
        ended = turn.wait_for(std::chrono::seconds(2)) == std::future_status::ready;
    }
    EXPECT_EQ(turn.get(), 0U);
    EXPECT_TRUE(ended) << "it waited for the lock";
}

TEST_F(TurnsTest, WhoWaitsForDoorbellsWaitsForTwoTurnsAtMost) {
    using namespace std::chrono_literals;
    constexpr std::size_t size = 600 << 10;  // five turns
    Queue client(left, {.memory = size}), server(right, {.memory = size});
    client.connect(server);
    server.connect(client);
    const auto settled = [this] { return std::async(std::launch::async, [this] { left.state().answer_doorbells(); }); };
    EXPECT_EQ(settled().wait_for(5s), std::future_status::ready) << "nothing has rung";
    client.post({.opcode = MLX5_OPCODE_RDMA_WRITE, .sges = {client.piece(0, size)}, .remote = server.address(),
                 .rkey = server.region.key});
    const auto waits = settled();
    EXPECT_EQ(waits.wait_for(50ms), std::future_status::timeout);
    (void)left.turn(now += 1000);
    EXPECT_EQ(waits.wait_for(50ms), std::future_status::timeout);
    (void)left.turn(now += 1000);
    EXPECT_EQ(waits.wait_for(5s), std::future_status::ready);
    client.post({.opcode = MLX5_OPCODE_RDMA_WRITE, .sges = {client.piece(0, 8)}, .remote = server.address(),
                 .rkey = server.region.key});
    const auto begin = std::chrono::steady_clock::now();
    left.state().answer_doorbells();
    const auto spent = std::chrono::steady_clock::now() - begin;
    EXPECT_GE(spent, 900ms) << "it waits for a worker that does not come";
    EXPECT_LT(spent, 20s);
    run();
    EXPECT_EQ(client.sends().size(), 2U);
}

}  // namespace
}  // namespace ovsdr::soft::roce::test
