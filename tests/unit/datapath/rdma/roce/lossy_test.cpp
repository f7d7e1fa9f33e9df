// A wire that loses, repeats and reorders: what was acknowledged has arrived, once, in order.
#include <array>

#include "two_nodes.hpp"

namespace ovsdr::soft::roce::test {
namespace {

struct LossyTest : TwoNodes {
    std::mt19937 random{20261121};
    std::uint64_t lost = 0, repeated = 0, overtaken = 0;

    /// Each of the three happens to one frame in `one_in`.
    void spoil(unsigned one_in) {
        wire = [this, one_in](const Frame&, bool) {
            if (random() % one_in == 0) return ++lost, 0u;
            if (random() % one_in == 0) return ++repeated, 2u;
            return 1u;
        };
        overtakes = [this, one_in] { return random() % one_in == 0 && ++overtaken != 0; };
    }
};

TEST_F(LossyTest, WritesAndReadsOfMegabytesAreExact) {
    constexpr std::size_t size = 4 << 20, chunk = 100'000;
    Queue client{left, {.memory = 2 * size}}, server{right, {.memory = size}};
    client.connect(server);
    server.connect(client);
    fill({client.memory.data(), size}, 1);
    spoil(100);
    std::uint64_t asked = 0, done = 0;
    const auto pump = [&](std::uint8_t opcode, std::size_t local) {
        asked = done = 0;
        run([&] {
            for (const Completion& completion : client.sends()) {
                EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
                EXPECT_EQ(completion.wr_id, done);
                ++done;
            }
            for (; asked * chunk < size && client.room(); ++asked) {
                const std::size_t at = asked * chunk;
                client.post({.opcode = opcode, .sges = {client.piece(local + at, std::min(chunk, size - at))},
                             .remote = server.address(at), .rkey = server.region.key, .wr_id = asked});
            }
            return done * chunk >= size;
        });
        ASSERT_EQ(done, (size + chunk - 1) / chunk);
    };
    pump(MLX5_OPCODE_RDMA_WRITE, 0);
    EXPECT_TRUE(std::equal(server.memory.begin(), server.memory.end(), client.memory.begin()));
    pump(MLX5_OPCODE_RDMA_READ, size);
    EXPECT_TRUE(std::equal(server.memory.begin(), server.memory.end(), client.memory.begin() + size));
    EXPECT_GT(lost, 50U);
    EXPECT_GT(repeated, 50U);
    EXPECT_GT(overtaken, 20U);
    EXPECT_TRUE(client.events.empty());
}

TEST_F(LossyTest, EachMessageArrivesOnceAndInOrder) {
    Queue client{left, {}}, server{right, {}};
    client.connect(server);
    server.connect(client);
    spoil(20);
    constexpr std::uint64_t messages = 2000;
    std::uint64_t sent = 0, acknowledged = 0, received = 0;
    const auto size_of = [](std::uint64_t i) { return 1 + i * 37 % 3000; };
    run([&] {
        for (const Completion& completion : server.receives_done()) {
            EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
            EXPECT_EQ(completion.imm_data, htobe32(static_cast<std::uint32_t>(received)));
            EXPECT_EQ(completion.byte_len, size_of(received));
            const std::byte* const at = server.memory.data() + received % 8 * 4000;
            EXPECT_EQ(at[0], static_cast<std::byte>(received));
            EXPECT_EQ(at[size_of(received) - 1], static_cast<std::byte>(received));
            ++received;
        }
        while (server.receives < messages && server.receives - received < 8) {
            server.post_receive(server.receives, {server.piece(server.receives % 8 * 4000, 4000)});
        }
        for (const Completion& completion : client.sends()) {
            EXPECT_EQ(completion.wr_id, acknowledged++);
            EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
        }
        for (; sent < messages && sent - acknowledged < 8; ++sent) {
            std::fill_n(client.memory.begin() + static_cast<long>(sent % 8 * 4000), size_of(sent),
                        static_cast<std::byte>(sent));
            client.post({.opcode = MLX5_OPCODE_SEND_IMM, .sges = {client.piece(sent % 8 * 4000, size_of(sent))},
                         .immediate = htobe32(static_cast<std::uint32_t>(sent)), .wr_id = sent});
        }
        return acknowledged == messages || HasFailure();
    });
    EXPECT_EQ(received, messages);
    EXPECT_EQ(acknowledged, messages);
}

TEST_F(LossyTest, AtomicsHappenOnce) {
    Queue client{left, {}}, server{right, {}};
    client.connect(server);
    server.connect(client);
    spoil(10);
    constexpr std::uint64_t times = 1000;
    std::uint64_t asked = 0, done = 0;
    run([&] {
        for (const Completion& completion : client.sends()) {
            EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
            std::uint64_t before = 0;
            std::memcpy(&before, client.memory.data() + done % 16 * 8, 8);
            EXPECT_EQ(before, done) << "what was there is the count of those before";
            ++done;
        }
        for (; asked < times && asked - done < 8; ++asked) {
            client.post({.opcode = MLX5_OPCODE_ATOMIC_FA, .sges = {client.piece(asked % 16 * 8, 8)},
                         .remote = server.address(), .rkey = server.region.key, .swap_add = 1});
        }
        return done == times || HasFailure();
    });
    std::uint64_t count = 0;
    std::memcpy(&count, server.memory.data(), 8);
    EXPECT_EQ(count, times);
}

TEST_F(LossyTest, MixedRequestsOnBothSidesComplete) {
    Queue one{left, {}}, other{right, {}};
    one.connect(other);
    other.connect(one);
    spoil(30);
    struct Side {
        Queue& queue;
        Queue& peer;
        std::uint64_t asked = 0, done = 0;
    };
    std::array sides{Side{one, other}, Side{other, one}};
    constexpr std::uint64_t requests = 600;
    run([&] {
        for (Side& side : sides) {
            (void)side.queue.receives_done();
            while (side.queue.receives < requests && side.queue.receive_freed + 16 > side.queue.receives) {
                side.queue.post_receive(0, {side.queue.piece(60000, 4000)});
            }
            for (const Completion& completion : side.queue.sends()) {
                EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
                EXPECT_EQ(completion.wr_id, side.done++);
            }
            for (; side.asked < requests && side.asked - side.done < 12; ++side.asked) {
                const std::uint64_t i = side.asked;
                Queue::Work work{.sges = {side.queue.piece(i % 7 * 100, 1 + i * 53 % 4000)}, .wr_id = i};
                work.remote = side.peer.address(30000);
                work.rkey = side.peer.region.key;
                switch (i % 4) {
                    case 0: work.opcode = MLX5_OPCODE_RDMA_WRITE; break;
                    case 1: work.opcode = MLX5_OPCODE_RDMA_READ; work.sges = {side.queue.piece(20000, 3000)}; break;
                    case 2: work.opcode = MLX5_OPCODE_SEND; break;
                    default: work.opcode = MLX5_OPCODE_ATOMIC_FA; work.sges = {side.queue.piece(40000, 8)}; break;
                }
                side.queue.post(work);
            }
        }
        return (sides[0].done == requests && sides[1].done == requests) || HasFailure();
    });
    EXPECT_EQ(sides[0].done, requests);
    EXPECT_EQ(sides[1].done, requests);
}

/// A connection whose round trip is known, on which the test decides what becomes of each request.
struct RepairTest : TwoNodes {
    Queue client{left, {.memory = 1 << 18}}, server{right, {.memory = 1 << 18}};
    static constexpr std::uint64_t timeout = 4096ull << 14;  // ns

    RepairTest() {
        client.connect(server);
        server.connect(client);
        fill(server.memory, 7);
        post(MLX5_OPCODE_RDMA_WRITE, 0, 8);
        run();
        EXPECT_EQ(client.sends().size(), 1U);
    }
    void post(std::uint8_t opcode, std::size_t at, std::size_t size) {
        client.post({.opcode = opcode, .sges = {client.piece(at, size)}, .remote = server.address(at),
                     .rkey = server.region.key});
    }
    /// Until `length` requests are complete; how long it took.
    std::uint64_t complete(std::size_t length) {
        const std::uint64_t begin = now;
        std::size_t done = 0;
        run([&] {
            for (const Completion& completion : client.sends()) {
                EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
                ++done;
            }
            return done == length;
        });
        EXPECT_EQ(done, length);
        return now - begin;
    }
    static std::uint8_t opcode_of(const Frame& frame) {
        Arrival arrival;
        EXPECT_TRUE(read_frame(frame.data(), frame.size(), arrival));
        return arrival.bth.opcode;
    }
};

TEST_F(RepairTest, ALossThatNobodySeesCostsLessThanTheTimeout) {
    unsigned losses = 0;
    wire = [&](const Frame&, bool from_left) { return from_left && losses++ < 3 ? 0u : 1u; };
    post(MLX5_OPCODE_RDMA_WRITE, 0, 100);
    EXPECT_LT(complete(1), timeout / 2);
    // The NAK, and then what was sent again.
    losses = 0;
    unsigned sent = 0;
    wire = [&](const Frame&, bool from_left) {
        if (!from_left) return 1u;
        return ++sent == 3 || sent == 21 ? (++losses, 0u) : 1u;
    };
    post(MLX5_OPCODE_RDMA_WRITE, 0, 20 * 1024);
    EXPECT_LT(complete(1), timeout / 2);
    EXPECT_EQ(losses, 2U);
}

TEST_F(RepairTest, AReadThatTheWireRepeatsTakesNoAnswerAway) {
    constexpr std::uint8_t read_request = 0x0c;
    unsigned requests = 0;
    wire = [&](const Frame& frame, bool) { return opcode_of(frame) == read_request ? (++requests, 3u) : 1u; };
    for (std::size_t i = 0; i < 4; ++i) post(MLX5_OPCODE_RDMA_READ, i * 30'000, 30'000);
    EXPECT_LT(complete(4), timeout / 50);
    EXPECT_EQ(requests, 4U) << "nothing was asked for twice";
    EXPECT_TRUE(std::equal(client.memory.begin(), client.memory.begin() + 120'000, server.memory.begin()));
}

TEST_F(RepairTest, ALongReadKeepsToTheWindow) {
    constexpr std::uint8_t read_request = 0x0c, first_answer = 0x0d, only_answer = 0x10;
    std::int64_t asked = 0, answered = 0, most = 0;
    wire = [&](const Frame& frame, bool) {
        Arrival arrival;
        EXPECT_TRUE(read_frame(frame.data(), frame.size(), arrival));
        if (arrival.bth.opcode == read_request) {
            Reth header;
            std::memcpy(&header, arrival.extensions, sizeof header);
            asked += (be32toh(header.size) + 1023) / 1024;
        } else if (arrival.bth.opcode >= first_answer && arrival.bth.opcode <= only_answer) {
            ++answered;
        }
        most = std::max(most, asked - answered);
        return 1u;
    };
    post(MLX5_OPCODE_RDMA_READ, 100, 200'001);
    (void)complete(1);
    EXPECT_EQ(answered, 196) << "each packet once";
    EXPECT_LE(most, 192);
    EXPECT_TRUE(std::equal(client.memory.begin() + 100, client.memory.begin() + 200'101, server.memory.begin() + 100));
}

}  // namespace
}  // namespace ovsdr::soft::roce::test
