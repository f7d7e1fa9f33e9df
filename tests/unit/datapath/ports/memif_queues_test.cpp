// memif vports that serve a peer with several rings each way, and what their workers do with them. The peers are the
// test's own; DPDK's driver is one in the system tests.
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>

#include <algorithm>
#include <map>
#include <optional>

#include "forwarding.hpp"
#include "memif_talk.hpp"

namespace ovsdr::soft {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr std::size_t number_at = 16;  ///< in a frame

struct Rings {
    unsigned to_server, to_client;
};

struct Frame {
    char flow;  ///< the last byte of its source address
    std::uint32_t number;
    std::size_t size;
};

/// A client with rings of 256 descriptors, each of which has a buffer of 128 bytes.
class RingsPeer : public MemifTalk {
public:
    static constexpr unsigned log2_ring = 8, ring_length = 1U << log2_ring;

    explicit RingsPeer(const std::string& path) : MemifTalk(path) {}
    ~RingsPeer() {
        for (const int event : events_) close(event);
        if (memory_ != nullptr) munmap(memory_, size);
    }

    /// The last answer.
    Message go(Rings wanted) {
        EXPECT_EQ(init().type, MessageType::ack);
        EXPECT_EQ(region().type, MessageType::ack);
        for (const bool to_server : {true, false}) {
            for (unsigned index = 0; index < (to_server ? wanted.to_server : wanted.to_client); ++index) {
                const Message answer = ring(to_server, index);
                if (answer.type != MessageType::ack) return answer;
            }
        }
        return connect();
    }

    Message region() {
        const int file = memfd_create("peer", MFD_ALLOW_SEALING);
        EXPECT_EQ(ftruncate(file, size), 0);
        EXPECT_EQ(fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK), 0);
        memory_ = static_cast<char*>(mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
        const Message result = add_region(file, size);
        close(file);
        return result;
    }

    /// `shift`: how far the ring is said to be from where it is.
    Message ring(bool to_server, unsigned index, std::uint32_t shift = 0) {
        const auto number = static_cast<unsigned>(events_.size());
        auto& made = *reinterpret_cast<memif::Ring*>(memory_ + number * ring_size);
        made.cookie = memif::ring_cookie;
        for (unsigned slot = 0; slot < ring_length; ++slot) {
            made.descriptors[slot] = {.length = buffer_size,
                                      .offset = all_rings + (number * ring_length + slot) * buffer_size};
        }
        events_.push_back(eventfd(0, EFD_NONBLOCK));
        rings_[{to_server, index}] = {.shared = &made, .event = events_.back()};
        return add_ring({.flags = to_server,
                         .index = static_cast<std::uint16_t>(index),
                         .offset = number * ring_size + shift,
                         .log2_size = log2_ring},
                        events_.back());
    }

    Message connect() {
        const Message answer = exchange(message(MessageType::connect));
        for (auto& [name, ring] : rings_) {
            if (!name.first) __atomic_store_n(&ring.shared->head, std::uint16_t{ring_length}, __ATOMIC_RELEASE);
        }
        return answer;
    }

    /// False: the ring is full. Wakes the vport's worker if it wants that.
    [[nodiscard]] bool put(unsigned index, char flow, std::uint32_t number) {
        Local& to = rings_.at({true, index});
        if (static_cast<std::uint16_t>(to.next - __atomic_load_n(&to.shared->tail, __ATOMIC_ACQUIRE)) == ring_length) {
            return false;
        }
        memif::Descriptor& descriptor = to.shared->descriptors[to.next % ring_length];
        char* const frame = memory_ + descriptor.offset;
        std::memcpy(frame, "\x02\0\0\0\0\x02\x02\0\0\0\0\x01\x88\xb5", 14);
        frame[11] = flow;
        std::memcpy(frame + number_at, &number, sizeof number);
        descriptor.length = 60;
        __atomic_store_n(&to.shared->head, ++to.next, __ATOMIC_RELEASE);
        std::atomic_thread_fence(std::memory_order_seq_cst);
        if (is_asleep(index)) wake(index);
        return true;
    }

    std::optional<Frame> take(unsigned index) {
        Local& from = rings_.at({false, index});
        if (__atomic_load_n(&from.shared->tail, __ATOMIC_ACQUIRE) == from.next) return std::nullopt;
        memif::Descriptor& descriptor = from.shared->descriptors[from.next++ % ring_length];
        const char* const bytes = memory_ + descriptor.offset;
        Frame frame{.flow = bytes[11], .number = 0, .size = descriptor.length};
        std::memcpy(&frame.number, bytes + number_at, sizeof frame.number);
        descriptor.length = buffer_size;
        __atomic_store_n(&from.shared->head, static_cast<std::uint16_t>(from.next + ring_length), __ATOMIC_RELEASE);
        return frame;
    }
    std::vector<Frame> take_all(unsigned index) {
        std::vector<Frame> frames;
        while (const auto frame = take(index)) frames.push_back(*frame);
        return frames;
    }

    /// Whether the consumer of a ring to the server wants to be woken.
    [[nodiscard]] bool is_asleep(unsigned index) const {
        const memif::Ring& ring = *rings_.at({true, index}).shared;
        return (__atomic_load_n(&ring.flags, __ATOMIC_ACQUIRE) & memif::ring_no_wake_up) == 0;
    }
    void wake(unsigned index) {
        const std::uint64_t one = 1;
        EXPECT_EQ(write(rings_.at({true, index}).event, &one, sizeof one), static_cast<ssize_t>(sizeof one));
    }
    /// Without the memory and the means to wake, which stay.
    void leave() { shutdown(socket_, SHUT_RDWR); }

    /// Whether somebody has wanted to wake the consumer of a ring to the client since this was asked last.
    bool was_woken(unsigned index) {
        std::uint64_t times = 0;
        return read(rings_.at({false, index}).event, &times, sizeof times) > 0;
    }

private:
    static constexpr std::uint32_t ring_size = 128 + 16 * ring_length, buffer_size = 128;
    static constexpr std::uint32_t all_rings = 64 * ring_size, size = all_rings + 64 * ring_length * buffer_size;

    struct Local {
        memif::Ring* shared;
        int event;
        std::uint16_t next = 0;
    };

    char* memory_ = nullptr;
    std::vector<int> events_;
    std::map<std::pair<bool, unsigned>, Local> rings_;  ///< by direction and index
};

class MemifQueuesTest : public MemifNicTest {
protected:
    void start_server(unsigned queues, unsigned workers_count = 1) {
        start(R"("ports": [)" + port(1, server(",queues=" + std::to_string(queues))) + "]", workers(workers_count));
        ASSERT_EQ(info(1).error, "");
    }
    void start_two_servers(unsigned queues) {
        const std::string more = ",queues=" + std::to_string(queues);
        start(
            R"("ports": [)" + port(1, server(more)) + ", " + port(2, "net_memif,socket=" + second_path() + more) + "]",
            workers(2));
        ASSERT_EQ(info(1).error + info(2).error, "");
    }
};

TEST_F(MemifQueuesTest, AServerOffersARingEachWayForEachQueue) {
    for (const auto& [option, last] : {std::pair{"", 0}, {",queues=3", 2}, {",queues=16", 15}}) {
        start(R"("ports": [)" + port(1, server(option)) + "]");
        const RingsPeer peer(path_);
        EXPECT_EQ(+peer.hello.hello.last_c2s_ring, last) << option;
        EXPECT_EQ(+peer.hello.hello.last_s2c_ring, last) << option;
        nic_.reset();
    }
}

TEST_F(MemifQueuesTest, TakesRingsInTheirOrderAndNoMoreThanItOffers) {
    start_server(3);
    const std::vector<std::vector<unsigned>> hostile{
        {1}, {0, 0}, {0, 2}, {0, 1, 0}, {0, 1, 2, 3}, {0, 1, 2, 2}, {0, 0xFFFF}, {0xFFFF}, {3}, {16}, {0, 32}};
    for (const bool to_server : {true, false}) {
        for (const auto& indexes : hostile) {
            RingsPeer peer(path_);
            ASSERT_EQ(peer.init().type, MessageType::ack);
            ASSERT_EQ(peer.region().type, MessageType::ack);
            for (unsigned i = 0; i + 1 < indexes.size(); ++i) {
                ASSERT_EQ(peer.ring(to_server, indexes[i]).type, MessageType::ack) << i;
            }
            EXPECT_STREQ(peer.ring(to_server, indexes.back()).disconnect.reason, "Invalid ring index")
                << indexes.back() << " after " << indexes.size() - 1 << (to_server ? " to the server" : "");
        }
    }
    RingsPeer peer(path_);
    EXPECT_EQ(peer.go({3, 3}).type, MessageType::connected) << "and serves the next";
}

TEST_F(MemifQueuesTest, LooksAtEachRing) {
    start_server(3);
    EXPECT_STREQ(RingsPeer(path_).go({0, 3}).disconnect.reason, "Missing ring");
    EXPECT_STREQ(RingsPeer(path_).go({3, 0}).disconnect.reason, "Missing ring");
    for (const bool to_server : {true, false}) {
        RingsPeer peer(path_);
        ASSERT_EQ(peer.init().type, MessageType::ack);
        ASSERT_EQ(peer.region().type, MessageType::ack);
        for (unsigned index = 0; index < 3; ++index) ASSERT_EQ(peer.ring(!to_server, index).type, MessageType::ack);
        for (unsigned index = 0; index < 2; ++index) ASSERT_EQ(peer.ring(to_server, index).type, MessageType::ack);
        ASSERT_EQ(peer.ring(to_server, 2, 64).type, MessageType::ack);
        EXPECT_STREQ(peer.connect().disconnect.reason, "Wrong cookie") << to_server;
    }
    EXPECT_FALSE(info(1).link_up);
}

// Each peer makes other numbers of rings than the one before. With three workers.
TEST_F(MemifQueuesTest, APeerMakesFewerRingsThanOfferedAndAnotherNumberEachWay) {
    start_server(4, 3);
    std::vector<std::unique_ptr<TestQueue>> senders;
    for (const unsigned worker : {0U, 1U, 2U}) {
        senders.push_back(std::make_unique<TestQueue>(device(), queue_of(worker), VportId{1}));
    }
    std::uint64_t came = 0;
    for (const Rings rings : {Rings{3, 2}, {1, 1}, {4, 4}, {2, 3}, {1, 4}, {4, 1}}) {
        SCOPED_TRACE(std::to_string(rings.to_server) + " and " + std::to_string(rings.to_client));
        RingsPeer peer(path_);
        ASSERT_EQ(peer.go(rings).type, MessageType::connected);
        ASSERT_TRUE(comes_up());
        for (unsigned ring = 0; ring < rings.to_server; ++ring) EXPECT_TRUE(peer.put(ring, 1, ring));
        came += rings.to_server;
        EXPECT_TRUE(eventually([&] { return counters(1).sent_packets == came; })) << counters(1).sent_packets;
        for (unsigned worker = 0; worker < 3; ++worker) {
            const unsigned ring = worker % rings.to_client;
            senders[worker]->send(60 + worker, static_cast<char>(worker + 1));
            std::optional<Frame> frame;
            EXPECT_TRUE(eventually([&] { return (frame = peer.take(ring)).has_value(); })) << "worker " << worker;
            ASSERT_TRUE(frame);
            EXPECT_EQ(frame->size, 60 + worker);
            EXPECT_EQ(frame->flow, static_cast<char>(worker + 1));
            EXPECT_TRUE(eventually([&] { return peer.was_woken(ring); })) << "worker " << worker;
        }
        for (unsigned ring = 0; ring < rings.to_client; ++ring) {
            EXPECT_FALSE(peer.take(ring)) << ring;
            EXPECT_FALSE(peer.was_woken(ring)) << ring;
        }
    }
    EXPECT_EQ(counters(1).receive_drops, 0U);
}

TEST_F(MemifQueuesTest, WorkersThatShareARingLoseNothing) {
    start_server(4, 3);
    RingsPeer peer(path_);
    ASSERT_EQ(peer.go({1, 1}).type, MessageType::connected);
    ASSERT_TRUE(comes_up());
    constexpr unsigned each = 20000, at_once = 16;
    std::atomic<unsigned> sent{0}, taken{0};
    std::vector<std::thread> threads;
    for (unsigned worker = 0; worker < 3; ++worker) {
        threads.emplace_back([&, worker] {
            TestQueue queue(device(), queue_of(worker), VportId{1});
            for (unsigned i = 0; i < each; i += at_once) {
                // Fewer under way than the ring has room for.
                while (sent - taken > RingsPeer::ring_length / 2) std::this_thread::sleep_for(10us);
                sent += at_once;
                for (unsigned j = 0; j < at_once; ++j) queue.send(60 + worker, static_cast<char>(worker + 1));
            }
            EXPECT_TRUE(eventually([&] { return queue.empty(); }));
        });
    }
    const auto end = Clock::now() + 30s;
    while (taken < 3 * each && Clock::now() < end) {
        for (const Frame& frame : peer.take_all(0)) {
            if (frame.size != 59U + static_cast<unsigned>(frame.flow)) ADD_FAILURE() << frame.size << " " << frame.flow;
            ++taken;
        }
    }
    EXPECT_EQ(taken, 3 * each);
    taken = 3 * each;  // whoever still waits goes on
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(counters(1).received_packets, 3 * each);
    EXPECT_EQ(counters(1).receive_drops, 0U);
}

TEST_F(MemifQueuesTest, EachRingWakesTheWorkerThatPollsItsQueueAndNoOther) {
    start_server(2, 2);
    RingsPeer peer(path_);
    ASSERT_EQ(peer.go({2, 2}).type, MessageType::connected);
    constexpr unsigned rounds = 40;
    std::uint64_t came = 0;
    const auto sleeps = [&](unsigned worker) { return nic_->workers()[worker]->statistics().sleeps; };
    const auto expect_wakes = [&](unsigned ring, unsigned worker) {
        SCOPED_TRACE("ring " + std::to_string(ring) + ", worker " + std::to_string(worker));
        std::vector<Clock::duration> times;
        const std::uint64_t others = sleeps(1 - worker);
        for (unsigned round = 0; round < rounds; ++round) {
            std::this_thread::sleep_for(2ms);
            ASSERT_TRUE(eventually([&] { return peer.is_asleep(0) && peer.is_asleep(1); }, 500ms)) << round;
            const auto begin = Clock::now();
            ASSERT_TRUE(peer.put(ring, 1, round));
            ++came;
            ASSERT_TRUE(eventually([&] { return counters(1).sent_packets == came; }));
            times.push_back(Clock::now() - begin);
        }
        std::sort(times.begin(), times.end());
        EXPECT_LT(times[rounds / 2], 20ms) << "the longest sleep is 100 ms";
        EXPECT_LT(sleeps(1 - worker) - others, rounds / 2);
    };
    for (const auto& worker_of : {std::array{0U, 1U}, {1U, 0U}, {1U, 1U}}) {
        for (const unsigned queue : {0U, 1U}) move(1, queue, worker_of[queue]);
        for (const unsigned ring : {0U, 1U}) expect_wakes(ring, worker_of[ring]);
    }
}

TEST_F(MemifQueuesTest, APeerThatHasLeftWakesNobody) {
    start_server(2);
    RingsPeer peer(path_);
    ASSERT_EQ(peer.go({2, 2}).type, MessageType::connected);
    ASSERT_TRUE(comes_up());
    peer.leave();
    ASSERT_TRUE(eventually([&] { return !info(1).link_up; }));
    const std::uint64_t sleeps = nic_->workers()[0]->statistics().sleeps;
    for (unsigned i = 0; i < 100; ++i) {
        peer.wake(i % 2);
        std::this_thread::sleep_for(2ms);
    }
    EXPECT_LT(nic_->workers()[0]->statistics().sleeps - sleeps, 50U);
}

TEST_F(MemifQueuesTest, QueuesWithoutARingAreSilent) {
    start_server(16);
    RingsPeer peer(path_);
    ASSERT_EQ(peer.go({1, 1}).type, MessageType::connected);
    expect_the_worker_to_sleep();
    EXPECT_TRUE(peer.put(0, 1, 0));
    EXPECT_TRUE(eventually([&] { return counters(1).sent_packets == 1; }));
}

TEST_F(MemifQueuesTest, MovesUnderTrafficKeepEveryFlowInOrder) {
    start_two_servers(2);
    RingsPeer from(path_), to(second_path());
    ASSERT_EQ(from.go({2, 1}).type, MessageType::connected);
    ASSERT_EQ(to.go({1, 1}).type, MessageType::connected);
    ASSERT_TRUE(comes_up(1) && comes_up(2));
    const Forwarding forwarding(device(), 1, 2);
    constexpr unsigned flows = 16, rounds = 3000, most_rounds = 100 * rounds, least_moves = 21;
    std::array<std::uint32_t, flows> next{};
    unsigned sent = 0, received = 0, disordered = 0;
    const auto take = [&] {
        while (const auto frame = to.take(0)) {
            ++received;
            disordered += frame->number != std::exchange(next.at(frame->flow - 1), frame->number + 1) ? 1 : 0;
        }
        return received == sent;
    };
    std::atomic<bool> stop{false};
    std::atomic<unsigned> moves{0};
    std::thread mover([&] {
        for (unsigned i = 0; !stop; ++i, ++moves) {
            move(1, i % 2, i / 2 % 2);
            std::this_thread::sleep_for(2ms);
        }
    });
    // A fast machine is through with the rounds before there have been many moves.
    const auto goes_on = [&](unsigned done) { return done < rounds || (moves < least_moves && done < most_rounds); };
    for (std::uint32_t number = 0; goes_on(number); ++number) {
        for (unsigned flow = 1; flow <= flows; ++flow, ++sent) {
            ASSERT_TRUE(from.put(flow % 2, static_cast<char>(flow), number));
        }
        // Fewer under way than a ring has room for.
        ASSERT_TRUE(eventually([&] { return take() || sent - received < RingsPeer::ring_length / 2; }));
    }
    EXPECT_TRUE(eventually(take)) << received << " of " << sent;
    stop = true;
    mover.join();
    EXPECT_GE(moves, least_moves);
    EXPECT_EQ(disordered, 0U);
    EXPECT_EQ(counters(2).received_packets, sent);
}

// A worker sends by its own ring: what the one before has sent is in the other, all of it before the move is done.
TEST_F(MemifQueuesTest, AMovedQueuesPacketsLeaveByTheNewWorkersRing) {
    start_two_servers(2);
    RingsPeer from(path_), to(second_path());
    ASSERT_EQ(from.go({1, 1}).type, MessageType::connected);
    ASSERT_EQ(to.go({2, 2}).type, MessageType::connected);
    ASSERT_TRUE(comes_up(1) && comes_up(2));
    const Forwarding forwarding(device(), 1, 2);
    unsigned sent = 0;
    const auto put = [&](unsigned length) {
        for (unsigned i = 0; i < length; ++i) ASSERT_TRUE(from.put(0, 1, sent++));
    };
    for (unsigned round = 0, worker = 0; round < 100; ++round, worker = 1 - worker) {
        move(1, 0, worker);
        const unsigned begin = sent;
        put(20);
        if (round % 2 == 0) std::this_thread::sleep_for(1ms);
        move(1, 0, 1 - worker);
        put(20);
        std::array<std::vector<Frame>, 2> frames;
        ASSERT_TRUE(eventually([&] {
            for (const unsigned ring : {0U, 1U}) {
                for (const Frame& frame : to.take_all(ring)) frames[ring].push_back(frame);
            }
            return frames[0].size() + frames[1].size() == 40;
        })) << round;
        EXPECT_GE(frames[1 - worker].size(), 20U);
        unsigned next = begin;
        for (const unsigned ring : {worker, 1 - worker}) {
            for (const Frame& frame : frames[ring]) EXPECT_EQ(frame.number, next++);
        }
    }
}

TEST_F(MemifQueuesTest, PeersComeAndGoUnderTraffic) {
    start_server(4, 2);
    std::atomic<bool> stop{false};
    std::vector<std::thread> threads;
    for (unsigned worker = 0; worker < 2; ++worker) {
        threads.emplace_back([&, worker] {
            TestQueue queue(device(), queue_of(worker), VportId{1});
            while (!stop) {
                for (unsigned i = 0; i < 64; ++i) queue.send(60, static_cast<char>(worker + 1));
                EXPECT_TRUE(eventually([&] { return queue.empty(); }));
            }
        });
    }
    for (unsigned round = 0; round < 40; ++round) {
        const Rings rings{1 + round % 4, 1 + round * 3 % 4};
        RingsPeer peer(path_);
        ASSERT_EQ(peer.go(rings).type, MessageType::connected) << round;
        std::vector<bool> used(rings.to_client);
        const auto all_used = [&] {
            for (unsigned ring = 0; ring < rings.to_client; ++ring) {
                for (const Frame& frame : peer.take_all(ring)) {
                    EXPECT_EQ(frame.size, 60U);
                    EXPECT_EQ((frame.flow - 1U) % rings.to_client, ring);
                    used[ring] = true;
                }
            }
            return std::count(used.begin(), used.end(), true) == std::min(2U, rings.to_client);
        };
        EXPECT_TRUE(eventually(all_used)) << round;
        for (unsigned ring = 0; ring < rings.to_server; ++ring) EXPECT_TRUE(peer.put(ring, 1, 0));
    }
    stop = true;
    for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace ovsdr::soft
