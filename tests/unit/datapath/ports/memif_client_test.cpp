// memif vports as clients with several rings each way, of servers of the test's own and of the soft NIC's.
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <string_view>

#include "datapath/ports/memif_connection.hpp"
#include "memif_talk.hpp"

namespace ovsdr::soft {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

struct Rings {
    unsigned to_server, to_client;
};

/// A server of the test's own.
class TestServer {
public:
    explicit TestServer(const std::string& path) : listener_(socket(AF_UNIX, SOCK_SEQPACKET, 0)) {
        const sockaddr_un address = socket_address(path);
        const timeval patience{.tv_sec = 5, .tv_usec = 0};
        EXPECT_EQ(setsockopt(listener_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience), 0);
        EXPECT_EQ(bind(listener_, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
        EXPECT_EQ(listen(listener_, 4), 0);
    }
    ~TestServer() { close(listener_); }
    TestServer(const TestServer&) = delete;
    TestServer& operator=(const TestServer&) = delete;

    struct Talk {
        std::vector<memif::AddRing> rings;
        std::uint64_t region = 0;
        bool connected = false;
        std::unique_ptr<MemifSocket> socket;  ///< the client is connected while it is there
    };

    /// With the next client. `last`: of HELLO. `takes`: how many rings; at the next it leaves, with `reason`; without
    /// one it only closes.
    Talk talk(Rings last, Rings takes = {16, 16}, std::optional<std::string_view> reason = "Invalid ring index") {
        Talk talk;
        talk.socket = std::make_unique<MemifSocket>(accept(listener_, nullptr, nullptr));
        Message message = MemifSocket::message(MessageType::hello);
        message.hello.lowest_version = message.hello.highest_version = memif::version;
        message.hello.last_region = 0;
        message.hello.last_c2s_ring = static_cast<std::uint16_t>(last.to_server);
        message.hello.last_s2c_ring = static_cast<std::uint16_t>(last.to_client);
        message.hello.largest_log2_ring = 14;
        for (message = talk.socket->exchange(message);; message = talk.socket->answer()) {
            MessageType answer = MessageType::ack;
            if (message.type == MessageType::add_region) talk.region = message.add_region.size;
            if (message.type == MessageType::add_ring) {
                const memif::AddRing& ring = message.add_ring;
                talk.rings.push_back(ring);
                if (ring.index >= (ring.flags != 0 ? takes.to_server : takes.to_client))
                    answer = MessageType::disconnect;
            }
            if (message.type == MessageType::connect) answer = MessageType::connected;
            if (message.type == MessageType::none) return talk;
            if (answer == MessageType::disconnect && !reason) {
                talk.socket.reset();
                return talk;
            }
            Message reply = MemifSocket::message(answer);
            auto& said = reply.disconnect.reason;
            if (answer == MessageType::disconnect) reason->copy(said, sizeof said);
            talk.socket->send(reply);
            talk.connected = answer == MessageType::connected;
            if (answer != MessageType::ack) return talk;
        }
    }

private:
    int listener_;
};

class MemifClientTest : public MemifNicTest {
protected:
    void start_client(const std::string& more) {
        start(R"("ports": [)" + port(1, client(more)) + "]");
        ASSERT_EQ(info(1).error, "");
    }
    /// These rings, numbered from 0 each way, none over another or outside the region.
    static void expect_rings(const TestServer::Talk& talk, Rings wanted) {
        std::array<unsigned, 2> next{};
        std::uint64_t end = 0;
        EXPECT_TRUE(talk.connected);
        for (const memif::AddRing& ring : talk.rings) {
            EXPECT_EQ(+ring.index, next[ring.flags & 1]++);
            EXPECT_EQ(+ring.region, 0);
            EXPECT_EQ(ring.offset % 64, 0U);
            EXPECT_GE(+ring.offset, end);
            end = ring.offset + 128 + (16ULL << ring.log2_size);
        }
        EXPECT_LE(end, talk.region);
        EXPECT_EQ(next[1], wanted.to_server);
        EXPECT_EQ(next[0], wanted.to_client);
    }
};

TEST_F(MemifClientTest, MakesARingForEachQueueThatTheServerTakes) {
    TestServer server(path_);
    start_client(",queues=4");
    for (const auto& [last, wanted] : {std::pair{Rings{0, 0}, Rings{1, 1}},
                                       {{2, 0}, {3, 1}},
                                       {{0, 2}, {1, 3}},
                                       {{3, 3}, {4, 4}},
                                       {{0xFFFF, 0xFFFF}, {4, 4}},
                                       {{1, 14}, {2, 4}}}) {
        const auto talk = server.talk(last);
        expect_rings(talk, wanted);
        EXPECT_TRUE(comes_up());
    }
}

// No byte of the region is of two buffers, or of a buffer and a ring.
TEST_F(MemifClientTest, EachDescriptorHasABufferOfItsOwn) {
    start("");
    constexpr unsigned to_server = 3, to_client = 2, length = 8, buffer = 100;
    memif::Connection connection(memif::Role::client, nic_->mempool(), 16);
    ASSERT_EQ(
        connection.make_memory({.to_server = to_server, .to_client = to_client, .log2_ring = 3, .buffer_size = buffer}),
        nullptr);
    const std::uint64_t size = connection.region_size();
    auto* const memory =
        static_cast<std::byte*>(mmap(nullptr, size, PROT_READ, MAP_SHARED, connection.region_descriptor(), 0));
    ASSERT_NE(memory, MAP_FAILED);
    std::vector<bool> used(size);
    const auto use = [&](std::uint64_t offset, std::uint64_t bytes) {
        ASSERT_LE(offset + bytes, size);
        for (std::uint64_t i = offset; i < offset + bytes; ++i) {
            EXPECT_FALSE(used[i]) << i;
            used[i] = true;
        }
    };
    for (const auto direction : {memif::Direction::client_to_server, memif::Direction::server_to_client}) {
        const unsigned rings = direction == memif::Direction::client_to_server ? to_server : to_client;
        ASSERT_EQ(connection.ring_count(direction), rings);
        for (unsigned index = 0; index < rings; ++index) {
            const std::uint32_t place = connection.place(direction, index).offset;
            use(place, 128 + 16 * length);
            const auto& ring = *reinterpret_cast<const memif::Ring*>(memory + place);
            for (unsigned slot = 0; slot < length; ++slot) {
                EXPECT_EQ(ring.descriptors[slot].length, buffer);
                use(ring.descriptors[slot].offset, buffer);
            }
        }
    }
    munmap(memory, size);
}

// DPDK's server promises 256 rings each way and takes as many as it has queues.
TEST_F(MemifClientTest, DoesWithoutTheRingsThatAServerRefuses) {
    TestServer server(path_);
    start_client(",queues=4");
    for (unsigned round = 0; round < 2; ++round) {
        EXPECT_FALSE(server.talk({255, 255}, {2, 1}).connected);
        EXPECT_FALSE(server.talk({255, 255}, {2, 1}).connected);
        expect_rings(server.talk({255, 255}, {2, 1}), {2, 1});
        expect_rings(server.talk({255, 255}), {4, 4});  // another server: it was connected, and has left
    }
}

TEST_F(MemifClientTest, AServerThatLeavesInTheMiddleHasRefusedNothing) {
    TestServer server(path_);
    start_client(",queues=4");
    EXPECT_FALSE(server.talk({255, 255}, {2, 4}, "Device closed").connected);
    EXPECT_FALSE(server.talk({255, 255}, {4, 1}, "").connected);
    expect_rings(server.talk({255, 255}), {4, 4});
}

// libmemif's servers of different versions.
TEST_F(MemifClientTest, AServerThatLeavesTwiceAtOneRingHasRefusedIt) {
    TestServer server(path_);
    start_client(",queues=4");
    for (const std::optional<std::string_view> reason : {std::optional<std::string_view>("interface deleted"), {}}) {
        EXPECT_FALSE(server.talk({255, 255}, {2, 4}, reason).connected);
        EXPECT_FALSE(server.talk({255, 255}, {2, 4}, reason).connected);
        expect_rings(server.talk({255, 255}, {2, 4}, reason), {2, 4});
    }
}

TEST_F(MemifClientTest, AServerThatLetsNobodyInIsAskedOnceASecond) {
    TestServer server(path_);
    start_client(",queues=4");
    const auto begin = std::chrono::steady_clock::now();
    for (unsigned i = 0; i < 3; ++i) EXPECT_FALSE(server.talk({255, 255}, {0, 0}, "Wrong secret").connected);
    EXPECT_GE(std::chrono::steady_clock::now() - begin, 1500ms);
}

TEST_F(MemifClientTest, ANewServerHasRefusedNothing) {
    start_client(",queues=4");
    {
        TestServer server(path_);
        const auto talk = server.talk({255, 255}, {2, 4});  // it hears of the end when nobody listens any more
        EXPECT_FALSE(talk.connected);
    }
    std::this_thread::sleep_for(1500ms);
    unlink(path_.c_str());
    TestServer server(path_);
    expect_rings(server.talk({255, 255}), {4, 4});
}

TEST_F(MemifClientTest, SpeaksWithAServerOfItsKind) {
    for (const char* more :
         {",queues=2", ",queues=4,rsize=1", ",queues=16,rsize=9,bsize=64", ",queues=3,rsize=14", ""}) {
        SCOPED_TRACE(more);
        start(R"("ports": [)" + port(1, server(",queues=3")) + ", " + port(2, client(more)) + "]", workers(2));
        ASSERT_TRUE(comes_up(1) && comes_up(2));
        for (const unsigned queue : {0U, 1U}) {
            if (std::string_view(more).empty() && queue == 1) continue;
            move(2, queue, 1 - queue);  // not who sends
        }
        std::vector<std::unique_ptr<TestQueue>> senders;
        for (unsigned worker = 0; worker < 2; ++worker) {
            for (const std::uint16_t vport : {1, 2}) {
                senders.push_back(std::make_unique<TestQueue>(device(), queue_of(worker, vport), VportId{vport}));
            }
        }
        std::vector<Clock::duration> times;
        for (unsigned round = 1; round <= 20; ++round) {
            for (std::size_t i = 0; i < senders.size(); ++i) {
                const unsigned other = 2 - i % 2;
                const std::uint64_t before = counters(other).sent_packets;
                std::this_thread::sleep_for(2ms);
                const auto begin = Clock::now();
                senders[i]->send(60 + round * 50);
                ASSERT_TRUE(eventually([&] { return counters(other).sent_packets == before + 1; }))
                    << round << " " << i;
                times.push_back(Clock::now() - begin);
            }
        }
        std::sort(times.begin(), times.end());
        EXPECT_LT(times[times.size() * 3 / 4], 20ms) << "the longest sleep is 100 ms";
        for (const unsigned vport : {1U, 2U}) EXPECT_EQ(counters(vport).receive_drops, 0U);
        senders.clear();
        nic_.reset();
    }
}

}  // namespace
}  // namespace ovsdr::soft
