// Ports with several queues, on veth pairs and taps in a network namespace of the test's own. Needs root.
#include <gmock/gmock.h>
#include <sched.h>

#include <map>
#include <optional>
#include <set>

#include "forwarding.hpp"
#include "guest_socket.hpp"

namespace ovsdr::soft {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t frame_size = 64;
constexpr std::size_t flow_at = 34, number_at = 42;  ///< the UDP source port, the payload

/// UDP over IPv4 of a flow, by its source port; `number` says which of its packets it is.
std::array<std::uint8_t, frame_size> udp(std::uint16_t flow, std::uint32_t number) {
    std::array<std::uint8_t, frame_size> frame{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0, 0, 50, 0, 0, 0,
                                               0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2};
    frame[flow_at] = static_cast<std::uint8_t>(flow >> 8);
    frame[flow_at + 1] = static_cast<std::uint8_t>(flow);
    frame[37] = 9;
    frame[39] = 30;  // UDP length
    std::memcpy(&frame[number_at], &number, sizeof number);
    return frame;
}

std::uint16_t flow_of(const std::uint8_t* frame) {
    return static_cast<std::uint16_t>(frame[flow_at] << 8 | frame[flow_at + 1]);
}

bool is_udp(const std::uint8_t* frame) {
    return frame[12] == 8 && frame[13] == 0 && frame[23] == 17;
}

/// The other end of a port's interface, for such frames.
class UdpGuest {
public:
    explicit UdpGuest(const std::string& interface)
        : socket_(socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK, htons(ipv4))) {
        const int on = 1, room = 64 << 20;
        EXPECT_EQ(setsockopt(socket_, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof on), 0);
        (void)setsockopt(socket_, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room);
        sockaddr_ll address{};
        address.sll_family = AF_PACKET;
        address.sll_protocol = htons(ipv4);
        address.sll_ifindex = static_cast<int>(if_nametoindex(interface.c_str()));
        EXPECT_EQ(bind(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    }
    ~UdpGuest() { close(socket_); }
    UdpGuest(const UdpGuest&) = delete;
    UdpGuest& operator=(const UdpGuest&) = delete;

    [[nodiscard]] bool send(std::uint16_t flow, std::uint32_t number) {
        const auto frame = udp(flow, number);
        return ::send(socket_, frame.data(), frame.size(), 0) == static_cast<ssize_t>(frame.size());
    }
    /// False when there is none now.
    [[nodiscard]] bool receive(std::array<std::uint8_t, frame_size>& frame) {
        return recv(socket_, frame.data(), frame.size(), 0) == static_cast<ssize_t>(frame.size());
    }

private:
    static constexpr std::uint16_t ipv4 = 0x0800;

    int socket_;
};

class QueuesTest : public NicTest {
protected:
    QueuesTest() { memory_mb_ = 512; }  // two AF_XDP ports of two queues

    static void SetUpTestSuite() {
        if (geteuid() == 0 && unshare(CLONE_NEWNET) == 0) own_namespace_ = true;
    }
    void SetUp() override {
        if (!own_namespace_) GTEST_SKIP() << "no network namespace of its own: not root";
        for (const std::string number : {"1", "2"}) {
            const std::string host = "host" + number, guest = "guest" + number;
            const std::string queues = " numtxqueues 2 numrxqueues 2 ";
            shell("ip link add " + host + queues + "type veth peer name " + guest + queues);
            for (const auto& interface : {host, guest}) {
                shell("echo 1 > /proc/sys/net/ipv6/conf/" + interface + "/disable_ipv6; ip link set " + interface +
                      " up");
            }
        }
    }
    void TearDown() override {
        port_.reset();
        nic_.reset();
        if (own_namespace_) (void)std::system("ip link del host1 2>/dev/null; ip link del host2 2>/dev/null");
    }

    /// A port that no worker polls: the test does.
    void open(const std::string& arguments) {
        if (!nic_) start("");
        std::string error;
        port_ = Port::open({.arguments = arguments,
                            .mac = {2, 0, 0, 0, 0, 9},
                            .mtu = {},
                            .memory = {.small = nic_->small_mempool(), .jumbo = nic_->mempool()},
                            .workers = 2},
                           error);
        ASSERT_TRUE(port_) << error;
    }
    std::string refusal(const std::string& arguments) {
        if (!nic_) start("");
        std::string error;
        port_ = Port::open({.arguments = arguments, .memory = {nic_->small_mempool(), nic_->mempool()}}, error);
        EXPECT_FALSE(port_) << arguments;
        return error;
    }

    /// Of what the port's queues give within the time: flow -> queues, and how many packets there were.
    std::map<std::uint16_t, std::set<unsigned>> receive(unsigned& packets, unsigned expected) {
        std::map<std::uint16_t, std::set<unsigned>> flows;
        packets = 0;
        const auto poll = [&] {
            for (unsigned queue = 0; queue < port_->receive_queues().size(); ++queue) {
                const PortReceiveQueue& from = port_->receive_queues()[queue];
                std::array<rte_mbuf*, batch_length> batch;
                const unsigned length = from.receive(from.queue, batch.data(), batch_length);
                for (unsigned i = 0; i < length; ++i) {
                    const auto* frame = rte_pktmbuf_mtod(batch[i], const std::uint8_t*);
                    if (!is_udp(frame)) continue;  // a kernel's own
                    flows[flow_of(frame)].insert(queue);
                    ++packets;
                }
                rte_pktmbuf_free_bulk(batch.data(), length);
            }
            return false;
        };
        (void)eventually([&] { return poll() || packets >= expected; }, 5s);
        (void)eventually(poll, 100ms);  // what comes twice
        return flows;
    }

    /// 64 flows of `each` packets that `send` sends: each flow by one queue, all queues used, nothing twice or lost.
    void expect_to_spread(const std::function<bool(std::uint16_t, std::uint32_t)>& send) {
        constexpr unsigned flows = 64, each = 5;
        for (unsigned number = 0; number < each; ++number) {
            for (std::uint16_t flow = 1; flow <= flows; ++flow) EXPECT_TRUE(send(flow, number));
        }
        unsigned packets = 0;
        const auto seen = receive(packets, flows * each);
        EXPECT_EQ(packets, flows * each);
        EXPECT_EQ(seen.size(), flows);
        std::set<unsigned> used;
        for (const auto& [flow, queues] : seen) {
            EXPECT_EQ(queues.size(), 1u) << "flow " << flow;
            used.insert(queues.begin(), queues.end());
        }
        EXPECT_EQ(used.size(), port_->receive_queues().size());
    }

    /// By send queue `number`.
    void send_by(unsigned number, std::uint16_t flow) {
        rte_mbuf* packet = rte_pktmbuf_alloc(nic_->mempool());
        ASSERT_NE(packet, nullptr);
        const auto frame = udp(flow, 0);
        std::memcpy(rte_pktmbuf_append(packet, frame_size), frame.data(), frame_size);
        const PortSendQueue& to = port_->send_queues()[number];
        EXPECT_EQ(to.send(to.queue, &packet, 1), 1u);
    }

    /// Each send queue reaches the guest, and the port receives none of it itself.
    void expect_all_send_queues_to_reach(UdpGuest& guest) {
        for (unsigned queue = 0; queue < port_->send_queues().size(); ++queue) {
            for (std::uint16_t flow = 1; flow <= 16; ++flow) {
                send_by(queue, flow);
                std::array<std::uint8_t, frame_size> frame{};
                EXPECT_TRUE(eventually([&] { return guest.receive(frame); }, 2s)) << queue << " " << flow;
                EXPECT_EQ(flow_of(frame.data()), flow);
            }
        }
        unsigned packets = 0;
        (void)receive(packets, 0);
        EXPECT_EQ(packets, 0u) << "own packets";
    }

    std::unique_ptr<Port> port_;
    static bool own_namespace_;
};

bool QueuesTest::own_namespace_ = false;

TEST_F(QueuesTest, PacketSocketsShareFlows) {
    ASSERT_NO_FATAL_FAILURE(open("net_af_packet,iface=host1,qpairs=4"));
    EXPECT_EQ(port_->receive_queues().size(), 4u);
    EXPECT_EQ(port_->send_queues().size(), 2u) << "one for each worker";
    UdpGuest guest("guest1");
    expect_to_spread([&](std::uint16_t flow, std::uint32_t number) { return guest.send(flow, number); });
    expect_all_send_queues_to_reach(guest);
    // The host's own end: what it sends there did not come from the guest.
    UdpGuest host("host1");
    unsigned packets = 0;
    for (std::uint16_t flow = 1; flow <= 16; ++flow) EXPECT_TRUE(host.send(flow, 0));
    (void)receive(packets, 0);
    EXPECT_EQ(packets, 0u);
}

// Two ports on one interface are two groups: each gets everything.
TEST_F(QueuesTest, GroupsOfTwoPortsDoNotMeet) {
    ASSERT_NO_FATAL_FAILURE(open("net_af_packet,iface=host1,qpairs=2"));
    auto first = std::move(port_);
    ASSERT_NO_FATAL_FAILURE(open("net_af_packet,iface=host1,qpairs=2"));
    UdpGuest guest("guest1");
    expect_to_spread([&](std::uint16_t flow, std::uint32_t number) { return guest.send(flow, number); });
    port_ = std::move(first);
    unsigned packets = 0;
    (void)receive(packets, 64 * 5);
    EXPECT_EQ(packets, 64u * 5);
}

TEST_F(QueuesTest, ATapHasAsManyQueuesAsItIsTold) {
    if (access("/dev/net/tun", R_OK | W_OK) != 0) GTEST_SKIP() << "no /dev/net/tun";
    ASSERT_NO_FATAL_FAILURE(open("net_tap,iface=many0,queues=2"));
    EXPECT_EQ(port_->receive_queues().size(), 2u);
    shell("echo 1 > /proc/sys/net/ipv6/conf/many0/disable_ipv6");
    UdpGuest guest("many0");
    expect_to_spread([&](std::uint16_t flow, std::uint32_t number) { return guest.send(flow, number); });
    expect_all_send_queues_to_reach(guest);
}

TEST_F(QueuesTest, AfXdpPollsAllQueuesOfTheInterface) {
    ASSERT_NO_FATAL_FAILURE(open("net_af_xdp,iface=host1"));
    ASSERT_EQ(port_->receive_queues().size(), 2u);
    EXPECT_EQ(port_->send_queues().size(), 2u);
    for (const PortReceiveQueue& queue : port_->receive_queues()) EXPECT_EQ(queue.wake_sources.size(), 1u);
    UdpGuest guest("guest1");
    expect_to_spread([&](std::uint16_t flow, std::uint32_t number) { return guest.send(flow, number); });
    expect_all_send_queues_to_reach(guest);
    port_.reset();
    ASSERT_NO_FATAL_FAILURE(open("net_af_xdp,iface=host1,start_queue=0,queue_count=2"));
    EXPECT_EQ(port_->receive_queues().size(), 2u);
}

TEST_F(QueuesTest, AfXdpRefusesToLeaveQueuesOut) {
    using testing::HasSubstr;
    for (const char* range : {"start_queue=1", "queue_count=1", "start_queue=1,queue_count=1"}) {
        EXPECT_THAT(refusal(std::string("net_af_xdp,iface=host1,") + range),
                    AllOf(HasSubstr("leaves out some of the 2 queues that host1 has"), HasSubstr("ethtool -L")));
    }
    for (const char* range : {"start_queue=2", "queue_count=3", "start_queue=1,queue_count=2"}) {
        EXPECT_THAT(refusal(std::string("net_af_xdp,iface=host1,") + range),
                    AllOf(HasSubstr("is more than host1 has, 2 queues"), HasSubstr("ethtool -L")));
    }
}

TEST_F(QueuesTest, AfXdpRefusesAnMtuThatNoPageHolds) {
    shell("ip link set host1 mtu 4000");
    EXPECT_THAT(refusal("net_af_xdp,iface=host1"),
                AllOf(testing::HasSubstr("MTU of 4000"), testing::HasSubstr("at most 3000")));
    nic_.reset();
    start(R"("ports": [{"vport": 1, "dpdk": "net_af_xdp,iface=host1", "mtu": 3000}])");
    EXPECT_EQ(info(1).error, "") << "an MTU that is asked for is set";
    EXPECT_EQ(info(1).mtu, 3000);
}

/// Two workers, and a rule that takes what comes from vport 1 to vport 2.
class TwoWorkersTest : public QueuesTest {
protected:
    void start_forwarding(const std::string& driver, const std::string& options) {
        start(R"("ports": [{"vport": 1, "dpdk": ")" + driver + ",iface=host1" + options + R"("},
                           {"vport": 2, "dpdk": ")" + driver + ",iface=host2" + options + R"("}])",
              R"("control_socket": "", "workers": {"count": 2, "rebalance": false})");
        ASSERT_EQ(info(1).error, "");
        ASSERT_EQ(info(2).error, "");
        forwarding_.emplace(device(), 1, 2);
    }
    void TearDown() override {
        forwarding_.reset();
        QueuesTest::TearDown();
    }

    std::vector<unsigned> workers_of(VportId vport) {
        std::vector<unsigned> workers;
        for (const PlacedQueue& queue : device().placed_queues()) {
            if (queue.vport == vport) workers.push_back(queue.worker);
        }
        return workers;
    }

    std::optional<Forwarding> forwarding_;
};

class MovesTest : public TwoWorkersTest, public testing::WithParamInterface<const char*> {};

TEST_P(MovesTest, QueuesOfAPortGoToDifferentWorkersAndMovesUnderTrafficKeepEveryFlowInOrder) {
    const std::string driver = GetParam();
    ASSERT_NO_FATAL_FAILURE(start_forwarding(driver, driver == "net_af_packet" ? ",qpairs=2" : ""));
    EXPECT_EQ(workers_of(VportId{1}), (std::vector<unsigned>{0, 1}));
    EXPECT_EQ(std::set<unsigned>({workers_of(VportId{2})[0], workers_of(VportId{2})[1]}).size(), 2u);

    constexpr std::uint16_t flows = 16;
    constexpr unsigned rounds = 3000;
    UdpGuest sender("guest1"), receiver("guest2");
    std::vector<std::uint32_t> next(flows);
    unsigned received = 0, disordered = 0;
    const auto take = [&] {
        std::array<std::uint8_t, frame_size> frame{};
        while (receiver.receive(frame)) {
            std::uint32_t number = 0;
            std::memcpy(&number, &frame[number_at], sizeof number);
            const std::uint16_t flow = flow_of(frame.data());
            if (flow == 0 || flow > flows) continue;
            ++received;
            if (number < next[flow - 1]) ++disordered;
            next[flow - 1] = number + 1;
        }
    };
    std::atomic<bool> stop{false};
    std::atomic<unsigned> moves{0};
    std::thread mover([&] {
        for (unsigned i = 0; !stop; ++i, ++moves) {
            EXPECT_EQ(device().move_queue(VportId{1}, 0, i % 2, i / 2 % 2), 0);
            std::this_thread::sleep_for(3ms);
        }
    });
    unsigned sent = 0;
    for (unsigned number = 0; number < rounds; ++number) {
        for (std::uint16_t flow = 1; flow <= flows; ++flow) sent += sender.send(flow, number) ? 1 : 0;
        take();
        std::this_thread::sleep_for(100us);
    }
    EXPECT_TRUE(eventually([&] { take(); return received >= sent; }, 5s));
    stop = true;
    mover.join();
    EXPECT_GT(moves, 20u);
    EXPECT_EQ(received, sent);
    EXPECT_EQ(disordered, 0u);
    EXPECT_EQ(counters(1).sent_packets, sent);
    EXPECT_EQ(device().move_queue(VportId{1}, 0, 2, 0), ENOENT);
    EXPECT_EQ(device().move_queue(VportId{1}, 1, 0, 0), ENOENT);
    EXPECT_EQ(device().move_queue(VportId{1}, 0, 0, 2), ENOENT);
    EXPECT_EQ(device().move_queue(VportId{5}, 0, 0, 0), ENOENT);
}

TEST_P(MovesTest, APortGoesUnderTrafficOfTwoWorkers) {
    const std::string driver = GetParam();
    ASSERT_NO_FATAL_FAILURE(start_forwarding(driver, driver == "net_af_packet" ? ",qpairs=2" : ""));
    UdpGuest sender("guest1");
    std::atomic<bool> stop{false};
    std::thread traffic([&] {
        for (std::uint32_t number = 0; !stop; ++number) {
            (void)sender.send(static_cast<std::uint16_t>(number % 64), number);
        }
    });
    for (const std::uint16_t vport : {2, 1}) {
        std::this_thread::sleep_for(100ms);
        EXPECT_EQ(device().remove_vport(VportId{vport}), 0);
        EXPECT_TRUE(workers_of(VportId{vport}).empty());
    }
    stop = true;
    traffic.join();
    for (const auto& worker : nic_->workers()) EXPECT_EQ(worker->port_count(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Drivers, MovesTest, testing::Values("net_af_packet", "net_af_xdp"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace ovsdr::soft
