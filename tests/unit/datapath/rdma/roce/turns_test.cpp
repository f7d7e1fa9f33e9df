// How much an engine does before others have their turn.
#include "two_nodes.hpp"

namespace ovsdr::soft::roce::test {
namespace {

struct TurnsTest : TwoNodes {};

TEST_F(TurnsTest, NoneSendsMoreThanAnEngineReceives) {
    constexpr std::size_t size = 600 << 10;
    constexpr unsigned most = 128;
    Queue client{left, {.memory = 2 * size}}, server{right, {.memory = 2 * size}};
    client.connect(server);
    server.connect(client);
    fill({server.memory.data(), size}, 1);
    fill({client.memory.data() + size, size}, 2);
    client.post({.opcode = MLX5_OPCODE_RDMA_READ, .sges = {client.piece(0, size)}, .remote = server.address(),
                 .rkey = server.region.key, .wr_id = 1});
    client.post({.opcode = MLX5_OPCODE_RDMA_WRITE, .sges = {client.piece(size, size)}, .remote = server.address(size),
                 .rkey = server.region.key, .wr_id = 2});
    std::size_t largest = 0;
    for (unsigned work = 1; work != 0;) {
        now += 1000;
        work = left.turn(now);
        largest = std::max(largest, left.sent.size());
        carry(left, right);
        work += right.turn(now);
        largest = std::max(largest, right.sent.size());
        carry(right, left);
    }
    EXPECT_LE(largest, most);
    EXPECT_GT(largest, most / 4);
    const auto done = client.sends();
    ASSERT_EQ(done.size(), 2U);
    for (const Completion& completion : done) EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
    EXPECT_EQ(client.memory, server.memory);
}

}  // namespace
}  // namespace ovsdr::soft::roce::test
