// Vports on shared memory: two ends in one NIC, and peers of the test's own that break the protocol. That DPDK's driver
// understands the same protocol is for the system tests to show.
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "datapath/ports/event_signal.hpp"
#include "datapath/ports/memif_layout.hpp"
#include "memif_talk.hpp"

namespace ovsdr::soft {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

class MemifTest : public MemifNicTest {
protected:
    // What vport 1 receives is what vport 2 sends, and the other way round.
    void start_pair(const std::string& client_options = "") {
        start(R"("ports": [)" + port(1, server()) + ", " + port(2, client(client_options)) + "]");
        ASSERT_EQ(info(1).error, "");
        ASSERT_TRUE(eventually([&] { return info(1).link_up && info(2).link_up; }));
    }
};

TEST_F(MemifTest, CarriesEachFrameOnceBothWays) {
    start_pair();
    TestQueue to_first(device(), 71, VportId{1}), to_second(device(), 72, VportId{2});
    std::uint64_t bytes = 0;
    for (unsigned i = 0; i < 3000; ++i) {
        const std::size_t size = 14 + i % 1500;
        to_first.send(size);
        to_second.send(size);
        bytes += size;
        if (i % 50 == 0) std::this_thread::sleep_for(1ms);
    }
    for (const unsigned vport : {1U, 2U}) {
        EXPECT_TRUE(eventually([&] { return counters(vport).sent_packets == 3000; })) << vport;
        EXPECT_EQ(counters(vport).received_packets, 3000U);
        EXPECT_EQ(counters(vport).sent_bytes, bytes);
    }
}

TEST_F(MemifTest, ChainsSmallBuffers) {
    start_pair(",bsize=64,rsize=6");
    TestQueue to_first(device(), 71, VportId{1}), to_second(device(), 72, VportId{2});
    for (const std::size_t size : {64U, 65U, 1514U, 14U}) {
        to_first.send(size);
        to_second.send(size);
        std::this_thread::sleep_for(2ms);
    }
    for (const unsigned vport : {1U, 2U}) {
        EXPECT_TRUE(eventually([&] { return counters(vport).sent_packets == 4; }));
        EXPECT_EQ(counters(vport).sent_bytes, 64U + 65 + 1514 + 14);
    }
}

TEST_F(MemifTest, DropsAndCountsWhatAFullRingCannotTake) {
    start(R"("ports": [)" + port(1, server()) + "]");
    TestQueue queue(device(), 71, VportId{1});
    queue.send(60);
    EXPECT_TRUE(eventually([&] { return counters(1).receive_drops == 1; })) << "nobody is connected";
}

TEST_F(MemifTest, SleepsUntilAFrameComes) {
    start_pair();
    expect_the_worker_to_sleep();
}

TEST_F(MemifTest, EitherEndMayRestart) {
    start_pair();
    std::string error;
    for (const auto& [vport, dpdk] : {std::pair{1, server()}, std::pair{2, client()}}) {
        const unsigned other = 3 - static_cast<unsigned>(vport);
        ASSERT_EQ(device().remove_vport(VportId{static_cast<std::uint16_t>(vport)}), 0);
        EXPECT_TRUE(eventually([&] { return !info(other).link_up; })) << other;
        PortConfig config{.vport = VportId{static_cast<std::uint16_t>(vport)}, .name = "again", .dpdk = dpdk};
        ASSERT_EQ(device().add_vport(config, true, error), 0) << error;
        EXPECT_TRUE(eventually([&] { return info(other).link_up; })) << other;
    }
    TestQueue queue(device(), 71, VportId{1});
    queue.send(60);
    EXPECT_TRUE(eventually([&] { return counters(2).sent_packets == 1; }));
}

TEST_F(MemifTest, ServerRemovesItsSocketAndReplacesADeadOne) {
    {
        const int dead = socket(AF_UNIX, SOCK_SEQPACKET, 0);
        const sockaddr_un address = socket_address(path_);
        ASSERT_EQ(bind(dead, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
        close(dead);
    }
    start(R"("ports": [)" + port(1, server()) + ", " + port(2, server()) + "]");
    EXPECT_EQ(info(1).error, "");
    EXPECT_NE(info(2).error.find("needs its own"), std::string::npos) << info(2).error;
    EXPECT_NE(info(2).error.find(path_), std::string::npos) << info(2).error;
    EXPECT_EQ(device().remove_vport(VportId{2}), 0);
    EXPECT_EQ(access(path_.c_str(), F_OK), 0);
    EXPECT_EQ(device().remove_vport(VportId{1}), 0);
    EXPECT_NE(access(path_.c_str(), F_OK), 0);
}

// A client of the test's own: one page-aligned region with both rings, 8 descriptors each.
class Peer : public MemifTalk {
public:
    explicit Peer(const std::string& path) : MemifTalk(path) {}
    ~Peer() {
        for (const int event : events_) close(event);
        if (memory_ != nullptr) munmap(memory_, size);
    }

    Message region(bool sealed = true, std::uint64_t said = size) {
        const int file = memfd_create("peer", MFD_ALLOW_SEALING);
        EXPECT_EQ(ftruncate(file, size), 0);
        if (sealed) {
            EXPECT_EQ(fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK), 0);
        }
        memory_ = static_cast<char*>(mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
        for (const unsigned offset : {0U, 4096U}) ring(offset).cookie = memif::ring_cookie;
        const Message result = add_region(file, said);
        close(file);
        return result;
    }

    /// A ring of which `event` is to wake the consumer.
    Message ring_with(int event, bool c2s = true, std::uint32_t offset = 0, std::uint16_t in_region = 0) {
        events_.push_back(event);
        return add_ring({.flags = c2s, .index = 0, .region = in_region, .offset = offset, .log2_size = 3}, event);
    }
    Message ring(bool c2s, std::uint32_t offset, std::uint16_t in_region = 0) {
        return ring_with(eventfd(0, 0), c2s, offset, in_region);
    }

    Message go(std::uint32_t s2c_offset = 4096, std::uint16_t in_region = 0) {
        EXPECT_EQ(init().type, MessageType::ack);
        EXPECT_EQ(region().type, MessageType::ack);
        EXPECT_EQ(ring(true, 0).type, MessageType::ack);
        EXPECT_EQ(ring(false, s2c_offset, in_region).type, MessageType::ack);
        return exchange(message(MessageType::connect));
    }

    // One frame in the first descriptor of the c2s ring.
    void offer(const memif::Descriptor& descriptor, std::uint16_t head) {
        ring(0).descriptors[0] = descriptor;
        __atomic_store_n(&ring(0).head, head, __ATOMIC_RELEASE);
    }

    // Whether the consumer of the c2s ring wants to be woken.
    bool is_asleep() { return (__atomic_load_n(&ring(0).flags, __ATOMIC_ACQUIRE) & memif::ring_no_wake_up) == 0; }
    void wake() {
        const std::uint64_t one = 1;
        EXPECT_EQ(write(events_[0], &one, sizeof one), static_cast<ssize_t>(sizeof one));
    }

    memif::Ring& ring(unsigned offset) { return *reinterpret_cast<memif::Ring*>(memory_ + offset); }

    static constexpr std::uint64_t size = 65536;
    char* memory_ = nullptr;

private:
    std::vector<int> events_;
};

TEST_F(MemifTest, AsksToBeWokenOnlyWhenItSleepsAndWakesAtOnce) {
    start(R"("ports": [)" + port(1, server()) + "]");
    Peer peer(path_);
    ASSERT_EQ(peer.go().type, MessageType::connected);
    std::vector<Clock::duration> times;
    for (std::uint16_t round = 1; round <= 7; ++round) {
        std::this_thread::sleep_for(20ms);
        ASSERT_TRUE(eventually([&] { return peer.is_asleep(); }, 500ms)) << round;
        peer.ring(0).descriptors[(round - 1) & 7] = {.length = 60, .offset = 8192};
        const auto begin = Clock::now();
        __atomic_store_n(&peer.ring(0).head, round, __ATOMIC_RELEASE);
        peer.wake();
        ASSERT_TRUE(eventually([&] { return counters(1).sent_packets == round; }));
        times.push_back(Clock::now() - begin);
    }
    std::sort(times.begin(), times.end());
    EXPECT_LT(times[3], 20ms) << "the longest sleep is 100 ms";
}

TEST_F(MemifTest, ServerTakesFramesFromAStrangersRing) {
    start(R"("ports": [)" + port(1, server()) + "]");
    Peer peer(path_);
    ASSERT_EQ(peer.go().type, MessageType::connected);
    peer.offer({.length = 60, .offset = 8192}, 1);
    EXPECT_TRUE(eventually([&] { return counters(1).sent_packets == 1; }));
    EXPECT_EQ(counters(1).sent_bytes, 60U);
}

TEST_F(MemifTest, EndsWithAPeerThatBreaksTheRing) {
    start(R"("ports": [)" + port(1, server()) + "]");
    const struct {
        memif::Descriptor descriptor;
        std::uint16_t head;
    } cases[] = {
        {{.length = 60, .offset = 65536 - 59}, 1},                             // one byte outside
        {{.length = 60, .offset = 0xFFFFFFF0}, 1},                             // an offset that would wrap
        {{.region = 1, .length = 60, .offset = 8192}, 1},                      // no such region
        {{.length = 0xFFFFFFFF, .offset = 8192}, 1},                           // a length that would wrap
        {{.flags = memif::descriptor_next, .length = 60, .offset = 8192}, 1},  // a chain without an end
        {{.length = 0, .offset = 8192}, 1},                                    // no frame at all
        {{.length = 60, .offset = 8192}, 9},                                   // more than the ring has
    };
    for (const auto& [descriptor, head] : cases) {
        Peer peer(path_);
        ASSERT_EQ(peer.go().type, MessageType::connected);
        peer.offer(descriptor, head);
        const Message farewell = peer.answer();
        EXPECT_EQ(farewell.type, MessageType::disconnect) << "offset " << descriptor.offset << " head " << head;
        EXPECT_STREQ(farewell.disconnect.reason, "Broken ring");
        EXPECT_TRUE(eventually([&] { return !info(1).link_up; }));
    }
    EXPECT_EQ(counters(1).sent_packets, 0U);
}

// It has the eventfd, too: its counter is full, and O_NONBLOCK is gone.
TEST_F(MemifTest, APeerWhoseWakeUpWouldSleepHoldsNobodyUp) {
    if (!EventSignal().never_sleeps()) GTEST_SKIP() << "missing: the kernel's asynchronous I/O";
    start(R"("ports": [)" + port(1, server()) + "]");
    Peer peer(path_);
    const int event = eventfd(0, 0);
    ASSERT_EQ(peer.init().type, MessageType::ack);
    ASSERT_EQ(peer.region().type, MessageType::ack);
    ASSERT_EQ(peer.ring(true, 0).type, MessageType::ack);
    ASSERT_EQ(peer.ring_with(event, false, 4096).type, MessageType::ack);
    ASSERT_EQ(peer.exchange(Peer::message(MessageType::connect)).type, MessageType::connected);
    ASSERT_EQ(fcntl(event, F_SETFL, 0), 0);
    const std::uint64_t most = UINT64_MAX - 1;
    ASSERT_EQ(write(event, &most, sizeof most), static_cast<ssize_t>(sizeof most));
    memif::Ring& ring = peer.ring(4096);
    for (unsigned i = 0; i < 8; ++i) ring.descriptors[i] = {.length = 2048, .offset = 8192 + i * 2048};
    __atomic_store_n(&ring.head, 8, __ATOMIC_RELEASE);
    TestQueue queue(device(), 71, VportId{1});
    for (unsigned sent = 1; sent <= 4; ++sent) {
        queue.send(60);
        EXPECT_TRUE(eventually([&] { return __atomic_load_n(&ring.tail, __ATOMIC_ACQUIRE) == sent; })) << sent;
    }
    EXPECT_EQ(device().remove_vport(VportId{1}), 0);
}

// Each piece may cost the worker a page fault.
TEST_F(MemifTest, AFrameInTooManyPiecesBreaksTheRing) {
    start(R"("ports": [)" + port(1, server()) + "]");
    constexpr std::uint32_t other_ring = 32768, buffers = 40960;
    for (const std::uint16_t pieces : {200, 257}) {
        Peer peer(path_);
        ASSERT_EQ(peer.init().type, MessageType::ack);
        ASSERT_EQ(peer.region().type, MessageType::ack);
        peer.ring(other_ring).cookie = memif::ring_cookie;
        const int events[] = {eventfd(0, 0), eventfd(0, 0)};
        ASSERT_EQ(peer.add_ring({.flags = 1, .log2_size = 10}, events[0]).type, MessageType::ack);
        ASSERT_EQ(peer.add_ring({.offset = other_ring, .log2_size = 3}, events[1]).type, MessageType::ack);
        ASSERT_EQ(peer.exchange(Peer::message(MessageType::connect)).type, MessageType::connected);
        memif::Ring& ring = peer.ring(0);
        for (std::uint32_t i = 0; i < pieces; ++i) {
            ring.descriptors[i] = {.flags = memif::descriptor_next, .length = 1, .offset = buffers + i};
        }
        ring.descriptors[pieces - 1].flags = 0;
        __atomic_store_n(&ring.head, pieces, __ATOMIC_RELEASE);
        if (pieces > 256) {
            EXPECT_STREQ(peer.answer().disconnect.reason, "Broken ring");
        } else {
            EXPECT_TRUE(eventually([&] { return counters(1).sent_packets == 1; }));
        }
        for (const int event : events) close(event);
    }
    EXPECT_EQ(counters(1).sent_bytes, 200U);
}

// Whoever touches a page first pays for it.
TEST_F(MemifTest, MapsNoMoreThanTheLargestRingsNeed) {
    start(R"("ports": [)" + port(1, server()) + "]");
    Peer peer(path_);
    ASSERT_EQ(peer.init().type, MessageType::ack);
    const int file = memfd_create("peer", MFD_ALLOW_SEALING);
    ASSERT_EQ(ftruncate(file, memif::largest_layout), 0);
    ASSERT_EQ(fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    EXPECT_EQ(peer.add_region(file, memif::largest_layout).type, MessageType::ack);
    Message more = Peer::message(MessageType::add_region);
    more.add_region.index = 1;
    more.add_region.size = 4096;
    EXPECT_STREQ(peer.exchange(more, file).disconnect.reason, "Regions too large");
    close(file);
}

TEST_F(MemifTest, RefusesWhatItCannotTrust) {
    start(R"("ports": [)" + port(1, server(",id=5,secret=sesame")) + "]");
    const auto reason = [](const Message& message) {
        return message.type == MessageType::disconnect ? std::string(message.disconnect.reason) : "accepted";
    };
    EXPECT_EQ(reason(Peer(path_).init(4, "sesame")), "ID not found");
    EXPECT_EQ(reason(Peer(path_).init(5, "open")), "Incorrect secret");
    EXPECT_EQ(reason(Peer(path_).exchange(Peer::message(MessageType::connect))), "Unexpected message");
    {
        Peer peer(path_);
        ASSERT_EQ(peer.init(5, "sesame").type, MessageType::ack);
        EXPECT_EQ(reason(peer.region(false)), "Region is not sealed against shrinking");
    }
    {
        Peer peer(path_);
        ASSERT_EQ(peer.init(5, "sesame").type, MessageType::ack);
        EXPECT_EQ(reason(peer.region(true, Peer::size + 1)), "Region is larger than its file");
    }
}

TEST_F(MemifTest, KeepsNoDescriptorOfAPeerThatSendsTooMany) {
    start(R"("ports": [)" + port(1, server()) + "]");
    const auto open_descriptors = [] {
        const auto all = std::filesystem::directory_iterator("/proc/self/fd");
        return std::distance(begin(all), end(all));
    };
    const int file = open("/dev/null", O_RDONLY | O_CLOEXEC);
    const auto before = open_descriptors();
    for (const std::size_t length : {2U, 4U, 5U, 12U, 13U, 64U}) {
        Peer peer(path_);
        const Message message = Peer::message(MessageType::init);
        peer.send(&message, sizeof message, std::vector<int>(length, file));
        EXPECT_STREQ(peer.answer().disconnect.reason, "Too many file descriptors") << length;
    }
    {
        Peer peer(path_);
        peer.send(nullptr, 0, std::vector<int>(5, file));
        EXPECT_EQ(peer.answer().type, MessageType::none) << "an empty message is an end";
    }
    EXPECT_TRUE(eventually([&] { return open_descriptors() == before; })) << open_descriptors() << " not " << before;
    close(file);
}

TEST_F(MemifTest, WritesToNothingButAnEventfd) {
    start(R"("ports": [)" + port(1, server()) + "]");
    const std::string name = folder_ + "/file";
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    close(ends[0]);
    for (const int event : {open(name.c_str(), O_RDWR | O_CREAT, 0600), ends[1], socket(AF_UNIX, SOCK_STREAM, 0)}) {
        Peer peer(path_);
        EXPECT_EQ(peer.init().type, MessageType::ack);
        EXPECT_EQ(peer.region().type, MessageType::ack);
        EXPECT_STREQ(peer.ring_with(event).disconnect.reason, "Interrupt fd is no eventfd");
    }
    EXPECT_EQ(std::filesystem::file_size(name), 0U);
    unlink(name.c_str());
}

TEST_F(MemifTest, RefusesRingsThatAreNotInTheirRegion) {
    start(R"("ports": [)" + port(1, server()) + "]");
    EXPECT_STREQ(Peer(path_).go(65536 - 64).disconnect.reason, "Ring outside its region");
    EXPECT_STREQ(Peer(path_).go(4097).disconnect.reason, "Ring outside its region") << "not aligned";
    EXPECT_STREQ(Peer(path_).go(4096, 1).disconnect.reason, "Ring outside its region") << "no such region";
    EXPECT_STREQ(Peer(path_).go(8192).disconnect.reason, "Wrong cookie");
}

TEST_F(MemifTest, ServesOnePeerAtATime) {
    start(R"("ports": [)" + port(1, server()) + "]");
    Peer peer(path_);
    ASSERT_EQ(peer.go().type, MessageType::connected);
    const int second = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    const sockaddr_un address = socket_address(path_);
    ASSERT_EQ(connect(second, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    Message message;
    ASSERT_EQ(recv(second, &message, sizeof message, 0), static_cast<ssize_t>(sizeof message));
    EXPECT_STREQ(message.disconnect.reason, "Already connected");
    close(second);
    EXPECT_TRUE(eventually([&] { return info(1).link_up; }));
    peer.offer({.length = 60, .offset = 8192}, 1);
    EXPECT_TRUE(eventually([&] { return counters(1).sent_packets == 1; })) << "the first one is still served";
}

}  // namespace
}  // namespace ovsdr::soft
