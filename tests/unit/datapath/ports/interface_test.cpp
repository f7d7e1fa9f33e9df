// Vports on network interfaces: veth pairs in a network namespace of the test's own. Needs root.
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/if_ether.h>
#include <linux/if_tun.h>
#include <linux/sockios.h>
#include <pthread.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdlib>
#include <string_view>

#include "datapath/ports/unfinished.hpp"
#include "forwarding.hpp"
#include "guest_socket.hpp"

namespace {

std::atomic<unsigned> questions_of_workers{0};  ///< about interfaces, to the kernel

bool is_worker() {
    char name[16] = {};
    return pthread_getname_np(pthread_self(), name, sizeof name) == 0 && std::string_view(name) == "softnic-0";
}

}  // namespace

/// The C library's, but for counting.
extern "C" int ioctl(int descriptor, unsigned long request, ...) noexcept {
    va_list arguments;
    va_start(arguments, request);
    void* const argument = va_arg(arguments, void*);
    va_end(arguments);
    if ((request == SIOCGIFFLAGS || request == SIOCETHTOOL) && is_worker()) ++questions_of_workers;
    static const auto next = reinterpret_cast<int (*)(int, unsigned long, ...)>(dlsym(RTLD_NEXT, "ioctl"));
    return next(descriptor, request, argument);
}

namespace ovsdr::soft {
namespace {

using namespace std::chrono_literals;

class InterfaceTest : public NicTest, public testing::WithParamInterface<const char*> {
protected:
    static void SetUpTestSuite() {
        if (geteuid() == 0 && unshare(CLONE_NEWNET) == 0) own_namespace_ = true;
    }

    void SetUp() override {
        if (!own_namespace_) GTEST_SKIP() << "no network namespace of its own: not root";
        for (const std::string number : {"1", "2"}) make_pair(number);
    }

    void TearDown() override {
        nic_.reset();
        if (own_namespace_) (void)std::system("ip link del host1 2>/dev/null; ip link del host2 2>/dev/null");
    }

    static void make_pair(const std::string& number) {
        const std::string host = "host" + number, guest = "guest" + number;
        shell("ip link add " + host + " type veth peer name " + guest);
        for (const auto& interface : {host, guest}) {
            shell("echo 1 > /proc/sys/net/ipv6/conf/" + interface + "/disable_ipv6; ip link set " + interface + " up");
        }
    }

    // The co-tenant bridges the two vports: a frame of one guest reaches the other.
    void start_pair() {
        const auto port = [this](const char* vport) {
            return std::string(R"({"vport": )") + vport + R"(, "dpdk": ")" + GetParam() + ",iface=host" + vport +
                   options_ + R"("})";
        };
        start(R"("ports": [)" + port("1") + ", " + port("2") +
              R"(], "cotenant": {"vports": [1, 2], "period_ms": 60000})");
        ASSERT_EQ(info(1).error, "");
        ASSERT_EQ(info(2).error, "");
    }

    static bool own_namespace_;
    std::string options_;  ///< of both ports
};

bool InterfaceTest::own_namespace_ = false;

TEST_P(InterfaceTest, CarriesFramesFromGuestToGuest) {
    start_pair();
    Guest one("guest1"), two("guest2");
    for (const std::size_t size : {60U, 1000U, 1514U}) {
        one.send(size);
        EXPECT_EQ(two.receive(), size);
        two.send(size);
        EXPECT_EQ(one.receive(), size);
    }
    EXPECT_EQ(counters(1).sent_packets, 3U);
    // The guest has a frame before the worker has counted it.
    EXPECT_TRUE(eventually([&] { return counters(1).received_packets == 3; }));
    EXPECT_EQ(nic_->cotenant(0)->statistics().foreign, 0U);
}

TEST_P(InterfaceTest, SleepsUntilAFrameComes) {
    start_pair();
    expect_the_worker_to_sleep();

    Guest one("guest1"), two("guest2");
    EXPECT_TRUE(wakes_the_worker(one, two));
}

TEST_P(InterfaceTest, ReportsTheGuestsLink) {
    start_pair();
    std::atomic<unsigned> changes{0};
    const auto id = device().add_listener([&](VportId vport, VportChange change) {
        if (vport == VportId{1} && change == VportChange::link) ++changes;
    });
    EXPECT_TRUE(info(1).link_up);
    shell("ip link set guest1 down");
    EXPECT_TRUE(eventually([&] { return !info(1).link_up && changes == 1; }));
    shell("ip link set guest1 up");
    EXPECT_TRUE(eventually([&] { return info(1).link_up && changes == 2; }));
    Guest one("guest1"), two("guest2");
    one.send(60);
    EXPECT_EQ(two.receive(), 60U);
    device().remove_listener(id);
}

// The kernel answers under a lock (RTNL) that others hold for seconds; a worker has other ports to serve.
TEST_P(InterfaceTest, AWorkerNeverAsksTheKernelForALink) {
    start_pair();
    shell("ip link set guest2 down");
    ASSERT_TRUE(eventually([&] { return !info(2).link_up; }));
    Guest one("guest1");
    questions_of_workers = 0;
    for (unsigned i = 1; i <= 20; ++i) {
        one.send(60);
        ASSERT_TRUE(eventually([&] { return counters(2).receive_drops == i; }));
    }
    EXPECT_EQ(questions_of_workers, 0U);
    shell("ip link set guest2 up");
    EXPECT_TRUE(eventually([&] { return info(2).link_up; }));
    EXPECT_EQ(questions_of_workers, 0U);
}

TEST_P(InterfaceTest, ComesBackWithItsInterface) {
    start_pair();
    shell("ip link del host1");
    EXPECT_TRUE(eventually([&] { return !info(1).link_up; }));
    make_pair("1");
    EXPECT_TRUE(eventually([&] { return info(1).link_up && info(1).error.empty(); })) << info(1).error;
    Guest one("guest1"), two("guest2");
    one.send(60);
    EXPECT_EQ(two.receive(), 60U);
}

TEST_P(InterfaceTest, IgnoresWhatTheHostSendsOnItsEnd) {
    start_pair();
    Guest host("host1");
    host.send(60);
    std::this_thread::sleep_for(100ms);
    EXPECT_EQ(counters(1).sent_packets, 0U);
}

// A worker that is kept away, as by a busy host, gets what the port's buffer holds: the rest is counted, and stays so
// when the port goes.
TEST_P(InterfaceTest, CountsWhatFindsNoRoom) {
    constexpr unsigned frames = 60000;
    start_pair();
    HeldWorker worker(device());
    Guest one("guest1");
    const std::uint64_t lost = flood(one, frames);
    worker.let_go();

    EXPECT_TRUE(eventually([&] { return counters(1).sent_packets + counters(1).overruns >= frames - lost; }))
        << counters(1).sent_packets << " sent, " << counters(1).overruns << " found no room, " << lost
        << " lost before";
    EXPECT_LE(counters(1).sent_packets + counters(1).overruns, frames);
    EXPECT_GE(counters(1).overruns + lost, frames / 10);
    EXPECT_EQ(counters(2).overruns, 0U);
    const auto before = counters(1).overruns;
    shell("ip link del host1");
    ASSERT_TRUE(eventually([&] { return !info(1).link_up; }));
    make_pair("1");
    EXPECT_TRUE(eventually([&] { return info(1).link_up && info(1).error.empty(); })) << info(1).error;
    EXPECT_EQ(counters(1).overruns, before);
}

TEST_P(InterfaceTest, OpensAnInterfaceThatWasMissing) {
    start(std::string(R"("ports": [{"vport": 7, "dpdk": ")") + GetParam() + R"(,iface=late0"}])");
    EXPECT_NE(info(7).error, "");
    shell("ip link add late0 type veth peer name late1; ip link set late1 up");
    EXPECT_TRUE(eventually([&] { return info(7).error.empty() && info(7).link_up; })) << info(7).error;
    nic_.reset();
    shell("ip link del late0");
}

INSTANTIATE_TEST_SUITE_P(Drivers, InterfaceTest, testing::Values("net_af_packet", "net_af_xdp"),
                         [](const auto& test) { return std::string(test.param); });

class PacketSocketTest : public InterfaceTest {};

TEST_P(PacketSocketTest, JumboFramesPassOnceTheMtuAllowsThem) {
    start_pair();
    shell("ip link set guest1 mtu 9000; ip link set guest2 mtu 9000");
    EXPECT_EQ(device().set_mtu(VportId{1}, 9000), 0);
    Guest one("guest1"), two("guest2");
    one.send(9014);
    EXPECT_TRUE(eventually([&] { return counters(2).oversize == 1; })) << "vport 2 still has 1500";
    EXPECT_EQ(device().set_mtu(VportId{2}, 9000), 0);
    one.send(9014);
    EXPECT_EQ(two.receive(), 9014U);
}

TEST_P(PacketSocketTest, DropsWhatIsLongerThanTheMtu) {
    start_pair();
    shell("ip link set host1 mtu 9000; ip link set guest1 mtu 9000");  // behind the vport's back
    Guest one("guest1");
    one.send(9014);
    one.send(1700);
    EXPECT_TRUE(eventually([&] { return counters(1).send_drops == 2; }));
    EXPECT_EQ(counters(1).sent_packets, 0U);
}

// The kernel gives a packet socket the tag beside the frame.
TEST_P(PacketSocketTest, CutsTaggedFramesAndKeepsTheirTags) {
    options_ = ",gro=0";
    start_pair();
    TaggedSocket one("guest1"), two("guest2");
    for (const unsigned payload : {900U, 1800U, 5000U}) {
        one.send(payload, 600);
        for (unsigned left = payload; left > 0; left -= std::min(left, 600U)) {
            const auto [size, tci] = two.receive();
            EXPECT_EQ(size, 54 + std::min(left, 600U)) << payload;
            EXPECT_EQ(tci, 0x2007) << payload;
        }
    }
    EXPECT_EQ(counters(1).sent_packets, 2 + 3 + 9U);
    EXPECT_EQ(counters(1).sent_bytes, 14 * 58 + 900 + 1800 + 5000U);
}

TEST_P(PacketSocketTest, WhatAHostSendsAsOneGoesOnAsOne) {
    start_pair();
    const Forwarding forwarding(device(), 1, 2);
    TaggedSocket one("guest1"), two("guest2");
    for (const unsigned payload : {65000U, 46000U, 65000U}) one.send(payload, 1448, 0x10);
    for (const unsigned payload : {65000U, 46000U, 65000U}) {
        EXPECT_EQ(two.receive(), std::pair(std::size_t{54} + payload, 0x2007U));
    }
}

// Virtio's header has no word for UDP fragments that are to be made: the kernel gives an error in the frame's place.
TEST_P(PacketSocketTest, GoesOnBehindAFrameThatCannotBeDescribed) {
    const int tap = open("/dev/net/tun", O_RDWR | O_CLOEXEC);
    if (tap < 0) GTEST_SKIP() << "no /dev/net/tun";
    ifreq request{};
    std::strcpy(request.ifr_name, "odd0");
    request.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR;
    ASSERT_EQ(ioctl(tap, TUNSETIFF, &request), 0) << std::strerror(errno);
    shell("echo 1 > /proc/sys/net/ipv6/conf/odd0/disable_ipv6");
    start(R"("ports": [{"vport": 1, "dpdk": "net_af_packet,iface=odd0"},
                       {"vport": 2, "dpdk": "net_af_packet,iface=host2"}],
              "cotenant": {"vports": [1, 2], "period_ms": 60000})");
    std::vector<std::uint8_t> frame(14 + 20 + 8 + 3000);
    std::memcpy(frame.data(), "\x02\0\0\0\0\x02\x02\0\0\0\0\x01\x08\0\x45\0\x0b\xd4\0\0\0\0\x40\x11", 24);
    VirtioHeader says{.flags = VirtioHeader::needs_checksum, .gso_type = 3, .hdr_len = 42, .gso_size = 1480,
                      .csum_start = 34, .csum_offset = 6};
    const iovec odd[] = {{&says, sizeof says}, {frame.data(), frame.size()}};
    EXPECT_EQ(writev(tap, odd, 2), static_cast<ssize_t>(sizeof says + frame.size())) << std::strerror(errno);
    EXPECT_TRUE(eventually([&] { return counters(1).overruns + counters(1).send_drops == 1; }));
    Guest two("guest2");
    says = {};
    frame.resize(60);
    std::memcpy(&frame[12], "\x88\xb5", 2);
    const iovec plain[] = {{&says, sizeof says}, {frame.data(), frame.size()}};
    EXPECT_EQ(writev(tap, plain, 2), static_cast<ssize_t>(sizeof says + frame.size()));
    EXPECT_EQ(two.receive(), 60U);
    nic_.reset();
    close(tap);
}

// Two tags and all that the MTU allows are more than the kernel lets a packet socket send.
TEST_P(PacketSocketTest, CountsWhatTheInterfaceRefusesAndSendsTheOthers) {
    start_pair();
    TestQueue queue(device(), 71, VportId{2});
    Guest two("guest2");
    queue.send(1522);
    queue.send(60);
    EXPECT_TRUE(eventually([&] { return counters(2).receive_drops == 1 && counters(2).received_packets == 1; }));
    EXPECT_EQ(counters(2).received_bytes, 60U);
}

TEST_P(PacketSocketTest, TakesOverTheInterfacesMtu) {
    shell("ip link set host1 mtu 1280");
    start_pair();
    EXPECT_EQ(info(1).mtu, 1280);
    EXPECT_EQ(info(2).mtu, 1500);
}

INSTANTIATE_TEST_SUITE_P(Drivers, PacketSocketTest, testing::Values("net_af_packet"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace ovsdr::soft
