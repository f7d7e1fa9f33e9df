// offload/ on the soft NIC, end to end: real packets on veth pairs, in a network namespace of the test's own.
//
// The vports are the inner ends of four pairs, the test reads and writes the outer ends. They run on AF_XDP: DPDK's
// AF_PACKET driver lets the kernel put IP fragments together. Skipped without the right to make a network namespace.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <map>
#include <thread>

#include "offload/dr/eswitch.hpp"
#include "offload/dr/device/ib_port.hpp"
#include "offload/dr/device/leak.hpp"
#include "offload/dr/vport.hpp"
#include "offload/slowpath/port_queue.hpp"
#include "tests/unit/offload/frames.hpp"
#include "tests/unit/offload/megaflow_builder.hpp"

namespace ovsdr::dr {
namespace {

using namespace std::chrono_literals;
using slowpath::PortQueue;
using namespace test::frames;
using test::MegaflowBuilder;

/// The outer end of a veth pair.
class Wire {
public:
    explicit Wire(const std::string& name) : fd_(socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK, htons(3))) {
        sockaddr_ll address{};
        address.sll_family = AF_PACKET;
        address.sll_protocol = htons(3);   // ETH_P_ALL
        address.sll_ifindex = static_cast<int>(if_nametoindex(name.c_str()));
        EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0) << name;
        // The kernel takes the tag off what it shows a packet socket, and tells it beside.
        const int on = 1, buffer = 8 << 20;
        setsockopt(fd_, SOL_PACKET, PACKET_AUXDATA, &on, sizeof on);
        setsockopt(fd_, SOL_SOCKET, SO_RCVBUFFORCE, &buffer, sizeof buffer);
    }
    ~Wire() { close(fd_); }

    void send(const FrameBytes& bytes) const {
        while (::send(fd_, bytes.data(), bytes.size(), 0) < 0 && (errno == ENOBUFS || errno == EAGAIN)) {
            std::this_thread::sleep_for(100us);
        }
    }

    /// Frames of ours that come within `wait` of the last, without what this end sent.
    std::vector<FrameBytes> collect(std::size_t at_most, std::chrono::milliseconds wait = 300ms) const {
        std::vector<FrameBytes> frames;
        while (frames.size() < at_most) {
            pollfd waited{fd_, POLLIN, 0};
            if (poll(&waited, 1, static_cast<int>(wait.count())) <= 0) break;
            if (auto bytes = read_one(); !bytes.empty()) frames.push_back(std::move(bytes));
        }
        return frames;
    }

private:
    FrameBytes read_one() const {
        FrameBytes bytes(2048);
        alignas(cmsghdr) char control[CMSG_SPACE(sizeof(tpacket_auxdata))];
        sockaddr_ll from{};
        iovec vector{bytes.data(), bytes.size()};
        msghdr message{&from, sizeof from, &vector, 1, control, sizeof control, 0};
        const ssize_t size = recvmsg(fd_, &message, 0);
        if (size < 60 || from.sll_pkttype == PACKET_OUTGOING) return {};
        bytes.resize(static_cast<std::size_t>(size));
        for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr; part = CMSG_NXTHDR(&message, part)) {
            if (part->cmsg_level != SOL_PACKET || part->cmsg_type != PACKET_AUXDATA) continue;
            tpacket_auxdata beside;
            std::memcpy(&beside, CMSG_DATA(part), sizeof beside);
            if ((beside.tp_status & TP_STATUS_VLAN_VALID) == 0) continue;
            const std::uint16_t tag[] = {htons(beside.tp_vlan_tpid), htons(beside.tp_vlan_tci)};
            const auto* raw = reinterpret_cast<const std::uint8_t*>(tag);
            bytes.insert(bytes.begin() + 12, raw, raw + 4);
        }
        const FrameBytes model = frame(0);
        const bool ours = std::equal(model.begin(), model.begin() + 12, bytes.begin());
        return ours ? bytes : FrameBytes{};
    }

    int fd_;
};

class SoftNic : public ::testing::Test {
protected:
    struct Port {
        VportId vport;
        OdpPort odp;
        std::string inner, outer;
        std::unique_ptr<Wire> wire;
        std::unique_ptr<PortQueue> queue;
    };

    static void SetUpTestSuite() {
        if (unshare(CLONE_NEWNET) != 0) {
            why_not_ = "no right to make a network namespace";
            return;
        }
        std::ofstream file("softnic-test.json");
        file << R"({"memory_mb": 512, "control_socket": "softnic-test.sock", )"
             << R"("devices": [{"name": "mlx5_0", "ports": [)";
        const char* comma = "";
        for (const auto& [vport, odp] : {std::pair{1, 1}, {2, 2}, {3, 3}, {65535, 9}}) {
            const std::string inner = "in" + std::to_string(odp), outer = "out" + std::to_string(odp);
            run("ip link add " + inner + " type veth peer name " + outer);
            run("sysctl -qw net.ipv6.conf." + inner + ".disable_ipv6=1 net.ipv6.conf." + outer + ".disable_ipv6=1");
            run("ethtool -K " + outer + " tx off rxvlan off txvlan off >/dev/null 2>&1; ethtool -K " + inner +
                " tx off rxvlan off txvlan off >/dev/null 2>&1; true");
            run("ip link set " + inner + " up && ip link set " + outer + " up");
            file << comma << R"({"vport": )" << vport << R"(, "dpdk": "net_af_xdp,iface=)" << inner << "\"}";
            comma = ",";
            ports_.push_back({VportId{static_cast<std::uint16_t>(vport)}, OdpPort{static_cast<std::uint32_t>(odp)},
                              inner, outer, nullptr, nullptr});
        }
        file << "]}]}";
        file.close();
        setenv("OVSDR_SOFTNIC", "softnic-test.json", 1);
        auto opened = Eswitch::open("mlx5_0");
        ASSERT_TRUE(opened) << opened.error().what;
        eswitch_ = *opened;
        for (Port& port : ports_) attach(port);
    }

    static void TearDownTestSuite() {
        for (Port& port : ports_) {
            if (eswitch_ != nullptr) eswitch_->detach_port(port.vport);
            port.queue.reset();
            port.wire.reset();
        }
        eswitch_.reset();
        unlink("softnic-test.json");
    }

    static void attach(Port& port) {
        port.wire = std::make_unique<Wire>(port.outer);
        const auto ib_port = find_ib_port(eswitch_->context(), port.vport);
        ASSERT_TRUE(ib_port) << ib_port.error().what;
        auto queue =
            PortQueue::create({.context = eswitch_->context(), .pd = eswitch_->pd(), .ib_port = ib_port->number});
        ASSERT_TRUE(queue) << queue.error().what;
        port.queue = std::move(*queue);
        const auto attached =
            eswitch_->attach_port({port.odp, port.vport, port.inner, port.queue->qp(), port.queue->sqn()});
        ASSERT_TRUE(attached) << attached.error().what;
    }

    static void run(const std::string& command) { ASSERT_EQ(std::system(command.c_str()), 0) << command; }

    void SetUp() override {
        if (why_not_ != nullptr) GTEST_SKIP() << why_not_;
        ASSERT_NE(eswitch_, nullptr);
        for (Port& port : ports_) {
            port.wire->collect(SIZE_MAX, 20ms);
            while (!port.queue->receive(0).empty()) {}
        }
    }
    void TearDown() override {
        if (eswitch_ != nullptr) eswitch_->flush(std::nullopt);
    }

    static Port& port(std::uint32_t odp) {
        for (Port& known : ports_) {
            if (known.odp.value == odp) return known;
        }
        std::abort();
    }

    static void put(const Ufid& ufid, const ovsdr_megaflow& megaflow) {
        const PutOutcome outcome = eswitch_->put(ufid, megaflow);
        if (const auto* reject = std::get_if<Reject>(&outcome)) FAIL() << text_of(*reject);
        if (const auto* error = std::get_if<Error>(&outcome)) FAIL() << error->what;
    }

    /// Frames that went up to the slow path of `port` within a while.
    static std::vector<std::pair<FrameBytes, std::uint32_t>> went_up(Port& port, std::size_t at_most) {
        std::vector<std::pair<FrameBytes, std::uint32_t>> frames;
        const auto end = std::chrono::steady_clock::now() + 2s;
        while (frames.size() < at_most && std::chrono::steady_clock::now() < end) {
            const auto batch = port.queue->receive(0);
            for (const slowpath::Frame& frame : batch) {
                frames.emplace_back(FrameBytes(frame.data, frame.data + frame.size), frame.tag);
            }
            if (batch.empty()) std::this_thread::sleep_for(1ms);
        }
        return frames;
    }

    /// Sends numbered frames from port 1, a window at a time so that no ring of the host's overflows, and gives what
    /// arrived at each of `targets`.
    static std::vector<std::vector<FrameBytes>> exchange(std::uint32_t length,
                                                         const std::vector<std::uint32_t>& targets) {
        constexpr std::uint32_t window = 50;
        std::vector<std::vector<FrameBytes>> arrived(targets.size());
        for (std::uint32_t sent = 0; sent < length;) {
            for (const std::uint32_t end = std::min(length, sent + window); sent < end; ++sent) {
                port(1).wire->send(frame(sent));
            }
            const auto deadline = std::chrono::steady_clock::now() + 1s;
            std::size_t sum = 0;
            while (sum < sent && std::chrono::steady_clock::now() < deadline) {
                sum = 0;
                for (std::size_t i = 0; i < targets.size(); ++i) {
                    for (auto& bytes : port(targets[i]).wire->collect(window, 1ms)) {
                        arrived[i].push_back(std::move(bytes));
                    }
                    sum += arrived[i].size();
                }
            }
            if (sum < sent) break;   // lost: the caller sees it
        }
        for (std::size_t i = 0; i < targets.size(); ++i) {
            for (auto& bytes : port(targets[i]).wire->collect(window, 50ms)) arrived[i].push_back(std::move(bytes));
        }
        return arrived;
    }

    static inline const char* why_not_ = nullptr;
    static inline std::vector<Port> ports_;
    static inline std::shared_ptr<Eswitch> eswitch_;
};

TEST_F(SoftNic, BringsMissesToThePortsQueueWithTheTablesTag) {
    port(1).wire->send(frame(1));
    const auto frames = went_up(port(1), 1);
    ASSERT_EQ(frames.size(), 1U);
    EXPECT_EQ(frames[0].first, frame(1));
    EXPECT_EQ(frames[0].second, 1U);
    EXPECT_TRUE(port(2).queue->receive(0).empty());
}

TEST_F(SoftNic, BringsTheUplinksMissesUpToo) {
    port(9).wire->send(frame(1));
    EXPECT_EQ(went_up(port(9), 1).size(), 1U);
}

TEST_F(SoftNic, SendsWhatAQueueSendsToItsVportAndNowhereElse) {
    for (const std::uint32_t target : {1U, 2U, 3U, 9U}) {
        const FrameBytes bytes = frame(target);
        const std::span<const std::uint8_t> one[] = {bytes};
        ASSERT_EQ(port(target).queue->transmit(one), 1U);
        for (Port& other : ports_) {
            const auto frames = other.wire->collect(2, 100ms);
            ASSERT_EQ(frames.size(), other.odp.value == target ? 1U : 0U) << other.outer << " of " << target;
            EXPECT_TRUE(frames.empty() || frames[0] == bytes);
        }
    }
}

/// The queue holds more than is sent: what the FDB has counted as a miss must come out of it.
TEST_F(SoftNic, BringsUpWhatCameInBeforeItsPortWasDetached) {
    std::uint64_t brought = 0;
    for (int round = 0; round < 20; ++round) {
        Port& flooded = port(1);
        const std::uint64_t before = eswitch_->totals().misses;
        std::atomic<bool> ends = false;
        std::thread flood([&] {
            for (std::uint32_t n = 0; n < 900 && !ends; ++n) flooded.wire->send(frame(n));
        });
        std::uint64_t came = went_up(flooded, 1).size();
        eswitch_->detach_port(flooded.vport);
        ends = true;
        flood.join();
        for (auto frames = flooded.queue->receive(0); !frames.empty(); frames = flooded.queue->receive(0)) {
            came += frames.size();
        }
        EXPECT_EQ(came, eswitch_->totals().misses - before) << "round " << round;
        brought += came;
        attach(flooded);
    }
    std::printf("FIGURE %llu packets up in 20 rounds\n", static_cast<unsigned long long>(brought));
}

TEST_F(SoftNic, WakesThePollerOfAQueue) {
    Port& first = port(1);
    while (!first.queue->arm(0)) (void)first.queue->receive(0);
    pollfd waited{first.queue->receive_fd(0), POLLIN, 0};
    EXPECT_EQ(poll(&waited, 1, 50), 0);
    first.wire->send(frame(1));
    EXPECT_EQ(poll(&waited, 1, 2000), 1);
    EXPECT_EQ(went_up(first, 1).size(), 1U);
}

TEST_F(SoftNic, ForwardsAndCountsExactly) {
    const Ufid ufid{1, 1};
    put(ufid, MegaflowBuilder(1).eth_type(experimental_type).output(2));
    constexpr std::uint32_t length = 5000;
    const auto frames = exchange(length, {2})[0];
    ASSERT_EQ(frames.size(), length);
    EXPECT_EQ(frames[0], frame(0));
    const auto final = eswitch_->del(ufid);
    ASSERT_TRUE(final);
    EXPECT_EQ(final->packets, length);
    EXPECT_EQ(final->bytes, length * frame_size);
    EXPECT_EQ(port(3).wire->collect(1, 50ms).size(), 0U);
    port(1).wire->send(frame(1));
    EXPECT_EQ(went_up(port(1), 1).size(), 1U);
}

TEST_F(SoftNic, StartsARecycledCounterAtZero) {
    for (int round = 0; round < 3; ++round) {
        const Ufid ufid{7, static_cast<std::uint64_t>(round)};
        put(ufid, MegaflowBuilder(1).eth_type(experimental_type).output(2));
        port(1).wire->send(frame(1));
        EXPECT_EQ(port(2).wire->collect(1, 1000ms).size(), 1U);
        EXPECT_EQ(eswitch_->del(ufid)->packets, 1U);
    }
}

TEST_F(SoftNic, CopiesWithTagsToEachAsItShould) {
    const Ufid ufid{2, 2};
    put(ufid, MegaflowBuilder(1).eth_type(experimental_type).output(2).push(0x123).output(3).output(9));
    port(1).wire->send(frame(5));
    EXPECT_EQ(port(2).wire->collect(2, 300ms), std::vector<FrameBytes>{frame(5)});
    EXPECT_EQ(port(3).wire->collect(2, 300ms), std::vector<FrameBytes>{tagged(5, 0x123)});
    EXPECT_EQ(port(9).wire->collect(2, 300ms), std::vector<FrameBytes>{tagged(5, 0x123)});
    const auto final = eswitch_->del(ufid);
    EXPECT_EQ(final->packets, 1U);
    EXPECT_EQ(final->bytes, frame_size);
}

TEST_F(SoftNic, PopsTagsAndCountsTheBytesThatCame) {
    const Ufid wire{3, 3}, vport{3, 4};
    put(wire, MegaflowBuilder(9).eth_type(experimental_type).vlan(0x44).pop().output(2));
    put(vport, MegaflowBuilder(1).eth_type(experimental_type).vlan(0x44).pop().output(2));
    for (const auto& [from, ufid] : {std::pair{9U, wire}, {1U, vport}}) {
        port(from).wire->send(tagged(6, 0x44));
        EXPECT_EQ(port(2).wire->collect(2, 300ms), std::vector<FrameBytes>{frame(6)}) << "from " << from;
        const auto final = eswitch_->del(ufid);
        EXPECT_EQ(final->packets, 1U) << "from " << from;
        EXPECT_EQ(final->bytes, frame_size + 4) << "from " << from;
    }
}

TEST_F(SoftNic, KeepsPacketsWithAnotherTagOrTwoOutOfTheRule) {
    put({4, 4}, MegaflowBuilder(1).eth_type(experimental_type).vlan(0x44).output(2));
    FrameBytes twice = tagged(6, 0x45);
    const std::uint8_t outer_tag[] = {0x81, 0x00, 0x00, 0x44};
    twice.insert(twice.begin() + 12, outer_tag, outer_tag + 4);
    for (const FrameBytes& bytes : {frame(1), tagged(1, 0x43), twice}) {
        port(1).wire->send(bytes);
        const auto frames = went_up(port(1), 1);
        ASSERT_EQ(frames.size(), 1U);
        EXPECT_EQ(frames[0].first, bytes);
    }
    EXPECT_TRUE(port(2).wire->collect(1, 50ms).empty());
}

/// Where a frame from port 1 goes: 2 by the rule, 1 up, 0 nowhere.
TEST_F(SoftNic, TakesTheIpPacketsOfAMegaflowAndNoOthers) {
    const auto goes = [](const FrameBytes& bytes) {
        port(1).wire->send(bytes);
        for (int i = 0; i < 1000; ++i) {
            if (!port(2).wire->collect(1, 1ms).empty()) return 2;
            if (!port(1).queue->receive(0).empty()) return 1;
        }
        return 0;
    };
    const ovsdr_megaflow udp = MegaflowBuilder(1).ipv4().proto(17).ports(1000, 2000).output(2);
    put({20, 1}, udp);
    EXPECT_EQ(goes(ipv4({})), 2);
    EXPECT_EQ(goes(ipv4({.source_port = 1001})), 1);
    EXPECT_EQ(goes(ipv4({.destination_port = 2001})), 1);
    EXPECT_EQ(goes(ipv4({.protocol = 6})), 1);
    EXPECT_EQ(goes(ipv4({.fragment = 0x2000})), 1) << "first fragment";
    EXPECT_EQ(goes(ipv4({.fragment = 0x0010})), 1) << "later fragment";
    EXPECT_EQ(goes(ipv4({.fragment = 0x4000})), 2) << "don't fragment is no fragment";
    EXPECT_EQ(goes(ipv4({.version_and_length = 0x65})), 1) << "not version 4";
    EXPECT_EQ(goes(ipv4({.version_and_length = 0x44})), 1) << "header shorter than a header";
    EXPECT_EQ(goes(ipv4({.total_length = 1000})), 1) << "longer than the frame";
    eswitch_->flush(std::nullopt);

    MegaflowBuilder fields(1);
    fields.ipv4().proto(6).output(2);
    fields.raw().key.ip_ttl = 64, fields.raw().mask.ip_ttl = 0xFF;
    fields.raw().key.ip_tos = 0xB8, fields.raw().mask.ip_tos = 0xFC;
    fields.raw().key.src[0] = 10, fields.raw().mask.src[0] = 0xFF;
    put({20, 2}, fields);
    EXPECT_EQ(goes(ipv4({.protocol = 6, .tos = 0xB9})), 2);
    EXPECT_EQ(goes(ipv4({.protocol = 6, .tos = 0xB4})), 1);
    EXPECT_EQ(goes(ipv4({.protocol = 6, .ttl = 63, .tos = 0xB8})), 1);
    EXPECT_EQ(goes(ipv4({.protocol = 17, .tos = 0xB8})), 1);
    // What ends a connection goes up: fin_timeout and NetFlow ask for its flags.
    for (const std::uint8_t flags : {0x01, 0x11, 0x04, 0x14, 0x15, 0x02, 0x12, 0x18, 0x08, 0x00}) {
        EXPECT_EQ(goes(ipv4({.protocol = 6, .tos = 0xB8, .tcp_flags = flags})), flags & 0x05 ? 1 : 2) << int{flags};
    }
    eswitch_->flush(std::nullopt);

    MegaflowBuilder fragments(1);
    fragments.ipv4().output(2).raw().mask.ip_frag = 1;
    fragments.raw().key.ip_frag = 1;
    put({20, 3}, fragments);
    EXPECT_EQ(goes(ipv4({.fragment = 0x2000})), 2);
    EXPECT_EQ(goes(ipv4({.fragment = 0x0010})), 2);
    EXPECT_EQ(goes(ipv4({})), 1);
    eswitch_->flush(std::nullopt);

    put({20, 4}, MegaflowBuilder(1).ipv4().proto(1).ports(8, 0).output(2));
    EXPECT_EQ(goes(ipv4({.protocol = 1, .source_port = 0x0800})), 2);
    EXPECT_EQ(goes(ipv4({.protocol = 1, .source_port = 0x0000})), 1);
    EXPECT_EQ(goes(ipv4({.protocol = 1, .source_port = 0x0801})), 1);
}

TEST_F(SoftNic, LosesAndDuplicatesNothingWhileAMegaflowIsModified) {
    const Ufid ufid{5, 5};
    const ovsdr_megaflow to_two = MegaflowBuilder(1).eth_type(experimental_type).output(2);
    const ovsdr_megaflow to_three = MegaflowBuilder(1).eth_type(experimental_type).output(3);
    put(ufid, to_two);
    constexpr std::uint32_t length = 6000;
    std::atomic<bool> sending = true;
    std::thread modifier([&] {
        for (unsigned i = 0; sending; ++i) {
            put(ufid, i % 2 == 0 ? to_three : to_two);
            std::this_thread::sleep_for(500us);
        }
    });
    const auto arrived = exchange(length, {2, 3});
    sending = false;
    modifier.join();
    const auto &two = arrived[0], &three = arrived[1];
    EXPECT_EQ(two.size() + three.size(), length);
    EXPECT_GT(two.size(), 0U);
    EXPECT_GT(three.size(), 0U);
    std::map<FrameBytes, int> seen;
    for (const auto* frames : {&two, &three}) {
        for (const FrameBytes& bytes : *frames) EXPECT_EQ(++seen[bytes], 1);
    }
    EXPECT_TRUE(port(1).queue->receive(0).empty());
    EXPECT_EQ(eswitch_->del(ufid)->packets, length);
}

TEST_F(SoftNic, FollowsPortsThatComeAndGo) {
    const Ufid ufid{6, 6};
    put(ufid, MegaflowBuilder(1).eth_type(experimental_type).output(3));
    Port& third = port(3);
    eswitch_->detach_port(third.vport);
    third.queue.reset();
    EXPECT_FALSE(eswitch_->status(ufid)->offloaded);
    EXPECT_NE(eswitch_->explain(ufid)->text.find("port 3"), std::string::npos) << eswitch_->explain(ufid)->text;
    port(1).wire->send(frame(1));
    EXPECT_EQ(went_up(port(1), 1).size(), 1U);
    attach(third);
    EXPECT_TRUE(eswitch_->status(ufid)->offloaded);
    port(1).wire->send(frame(2));
    EXPECT_EQ(third.wire->collect(1, 1000ms), std::vector<FrameBytes>{frame(2)});
}

TEST_F(SoftNic, DropsAndCounts) {
    put({9, 9}, MegaflowBuilder(1).eth_type(experimental_type));
    for (std::uint32_t i = 0; i < 10; ++i) port(1).wire->send(frame(i));
    std::this_thread::sleep_for(100ms);
    EXPECT_TRUE(port(1).queue->receive(0).empty());
    EXPECT_EQ(eswitch_->del(Ufid{9, 9})->packets, 10U);
}

TEST_F(SoftNic, LetsGoOfABusyPort) {
    std::atomic<bool> sending = true;
    std::thread sender([&] {
        const std::unique_ptr<Wire> wire = std::make_unique<Wire>(port(1).outer);
        for (std::uint32_t i = 0; sending; ++i) {
            wire->send(frame(i));
            if (i % 32 == 0) std::this_thread::sleep_for(200us);
        }
    });
    for (int i = 0; i < 10; ++i) {
        put({10, 10}, MegaflowBuilder(2).eth_type(experimental_type).output(1));
        std::this_thread::sleep_for(5ms);
        eswitch_->detach_port(port(1).vport);
        port(1).queue.reset();   // asserts that nothing holds the queue pair
        attach(port(1));
    }
    sending = false;
    sender.join();
    EXPECT_TRUE(eswitch_->status({10, 10})->offloaded);
    EXPECT_EQ(leaked_objects(), 0U);
}

TEST_F(SoftNic, RefusesATakenAndAMissingVport) {
    Port& first = port(1);
    const auto taken = eswitch_->attach_port({{7}, first.vport, "again", first.queue->qp(), first.queue->sqn()});
    ASSERT_FALSE(taken);
    EXPECT_EQ(taken.error().code, EBUSY);
    EXPECT_NE(taken.error().what.find(first.inner), std::string::npos);
    const auto missing = eswitch_->attach_port({{7}, {77}, "missing", first.queue->qp(), first.queue->sqn()});
    ASSERT_FALSE(missing);
    EXPECT_EQ(missing.error().code, ENOENT);
    const auto device = Eswitch::open("mlx5_7");
    ASSERT_FALSE(device);
    EXPECT_EQ(device.error().code, ENODEV);
    EXPECT_NE(device.error().what.find("mlx5_0"), std::string::npos) << device.error().what;
}

TEST_F(SoftNic, ReadsAndSetsAVport) {
    const VportId vport{1};
    const auto before = query_vport(*eswitch_, vport);
    ASSERT_TRUE(before) << before.error().what;
    EXPECT_EQ(before->mtu, 1500);
    std::atomic<int> changes = 0;
    auto watcher = VportWatcher::start(*eswitch_, [&] { ++changes; });
    ASSERT_TRUE(watcher) << watcher.error().what;
    const std::array<std::uint8_t, 6> mac{2, 0, 0, 0, 0, 0x42};
    const auto set = set_vport_mac(*eswitch_, vport, mac);
    ASSERT_TRUE(set) << set.error().what;
    const auto mtu = set_vport_mtu(*eswitch_, vport, 1400);
    EXPECT_TRUE(mtu) << mtu.error().what;
    const auto after = query_vport(*eswitch_, vport);
    ASSERT_TRUE(after);
    EXPECT_EQ(after->mac, mac);
    EXPECT_EQ(after->mtu, 1400);
    for (int i = 0; i < 100 && changes == 0; ++i) std::this_thread::sleep_for(10ms);
    EXPECT_GT(changes, 0);
    EXPECT_TRUE(set_vport_mtu(*eswitch_, vport, 1500));
    const auto missing = query_vport(*eswitch_, VportId{77});
    ASSERT_FALSE(missing);
    EXPECT_EQ(missing.error().code, ENOENT);
    EXPECT_EQ(missing.error().what, std::string(eswitch_->device()) + " has no vport 77");
    const auto refused = set_vport_mtu(*eswitch_, VportId{77}, 1500);
    ASSERT_FALSE(refused);
    EXPECT_NE(refused.error().what.find("it has no such resource (status 0x5"), std::string::npos)
        << refused.error().what;

    const auto stats = query_vport_stats(*eswitch_, vport);
    ASSERT_TRUE(stats);
    port(1).wire->send(frame(1));
    (void)went_up(port(1), 1);
    const auto later = query_vport_stats(*eswitch_, vport);
    EXPECT_EQ(later->sent_packets, stats->sent_packets + 1);
    EXPECT_EQ(later->sent_bytes, stats->sent_bytes + frame_size);
}

TEST_F(SoftNic, ShowsTablesMatchersAndRules) {
    put({8, 8}, MegaflowBuilder(1).eth_type(experimental_type).output(2));
    (void)eswitch_->put({8, 9}, MegaflowBuilder(1).eth_type(experimental_type).unsupported("ct").output(2));
    const std::string text = eswitch_->show(true);
    EXPECT_NE(text.find("dest_vport 2"), std::string::npos) << text;
    EXPECT_NE(text.find("unsupported action: ct"), std::string::npos) << text;
    EXPECT_EQ(eswitch_->totals().offloaded, 1U);
    EXPECT_EQ(eswitch_->totals().rejected, 1U);
    if (std::getenv("OVSDR_TEST_SHOW") != nullptr) std::puts(text.c_str());
}

}  // namespace
}  // namespace ovsdr::dr
