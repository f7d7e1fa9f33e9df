// Vports that make their network interfaces, in a network namespace of the test's own. Needs root.
#include <sched.h>
#include <sys/ioctl.h>

#include <fstream>

#include "forwarding.hpp"
#include "guest_socket.hpp"

namespace ovsdr::soft {
namespace {

using namespace std::chrono_literals;

std::string content(const std::string& file) {
    std::ifstream stream(file);
    std::string line;
    std::getline(stream, line);
    return line;
}

class TapTest : public NicTest {
protected:
    static void SetUpTestSuite() {
        // sysfs shows the namespace of whoever mounts it.
        own_namespace_ = geteuid() == 0 && unshare(CLONE_NEWNET | CLONE_NEWNS) == 0 &&
                         std::system("mount --make-rprivate / && mount -t sysfs sysfs /sys") == 0;
        if (own_namespace_) shell("echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6");
    }

    void SetUp() override {
        if (!own_namespace_) GTEST_SKIP() << "no network namespace of its own: not root";
        if (access("/dev/net/tun", R_OK | W_OK) != 0) GTEST_SKIP() << "no /dev/net/tun";
    }

    // The co-tenant bridges the two vports: a frame of one guest reaches the other.
    void start_pair() {
        start(R"("ports": [{"vport": 1, "dpdk": "net_tap,iface=one0", "mac": "02:00:00:00:12:34"},
                           {"vport": 2, "dpdk": "net_tap,iface=two0"}],
                 "cotenant": {"vports": [1, 2], "period_ms": 60000})");
        ASSERT_EQ(info(1).error, "");
        ASSERT_EQ(info(2).error, "");
    }

    static bool own_namespace_;
};

bool TapTest::own_namespace_ = false;

TEST_F(TapTest, CarriesFramesFromGuestToGuest) {
    start_pair();
    EXPECT_EQ(content("/sys/class/net/one0/address"), "02:00:00:00:12:34");
    Guest one("one0"), two("two0");
    for (const std::size_t size : {14U, 60U, 1000U, 1514U}) {
        one.send(size);
        EXPECT_EQ(two.receive(), size);
        two.send(size);
        EXPECT_EQ(one.receive(), size);
    }
    EXPECT_EQ(counters(1).sent_packets, 4U);
    EXPECT_TRUE(eventually([&] { return counters(1).received_packets == 4; }));
    EXPECT_EQ(counters(1).sent_bytes, 14U + 60 + 1000 + 1514);
}

TEST_F(TapTest, SleepsUntilAFrameComes) {
    start_pair();
    expect_the_worker_to_sleep();

    Guest one("one0"), two("two0");
    EXPECT_TRUE(wakes_the_worker(one, two));
}

TEST_F(TapTest, LinkIsThatItsOwnerHasPutItUp) {
    start_pair();
    EXPECT_TRUE(info(1).link_up);
    shell("ip link set one0 down");
    EXPECT_TRUE(eventually([&] { return !info(1).link_up; }));
    Guest two("two0");
    two.send(60);
    EXPECT_TRUE(eventually([&] { return counters(1).receive_drops == 1; }));
    shell("ip link set one0 up");
    EXPECT_TRUE(eventually([&] { return info(1).link_up; }));
    Guest one("one0");
    two.send(60);
    EXPECT_EQ(one.receive(), 60U);
}

TEST_F(TapTest, MakesItsInterfaceAnewWhenItWasDeleted) {
    start_pair();
    shell("ip link del one0");
    EXPECT_TRUE(eventually([&] { return if_nametoindex("one0") != 0 && info(1).link_up; })) << info(1).error;
    Guest one("one0"), two("two0");
    one.send(60);
    EXPECT_EQ(two.receive(), 60U);
}

TEST_F(TapTest, SaysThatTheNameIsTaken) {
    shell("ip link add taken0 type veth peer name taken1");
    start(R"("ports": [{"vport": 7, "dpdk": "net_tap,iface=taken0"}])");
    EXPECT_NE(info(7).error.find("taken0"), std::string::npos) << info(7).error;
    EXPECT_NE(info(7).error.find("an interface of this name is there"), std::string::npos) << info(7).error;
    shell("ip link del taken0");
    EXPECT_TRUE(eventually([&] { return info(7).error.empty() && info(7).link_up; })) << info(7).error;
}

TEST_F(TapTest, DropsAndCountsWhatIsLargerThanTheMtu) {
    start_pair();
    shell("ip link set one0 mtu 9000");  // behind the vport's back
    Guest one("one0");
    one.send(9014);
    one.send(1600);
    EXPECT_TRUE(eventually([&] { return counters(1).send_drops == 2; }));
    EXPECT_EQ(counters(1).sent_packets, 0U);
}

TEST_F(TapTest, CarriesJumboFramesOnceTheMtuAllowsThem) {
    start_pair();
    EXPECT_EQ(device().set_mtu(VportId{1}, 9000), 0);
    EXPECT_EQ(device().set_mtu(VportId{2}, 9000), 0);
    EXPECT_EQ(content("/sys/class/net/one0/mtu"), "9000");
    Guest one("one0"), two("two0");
    one.send(9014);
    EXPECT_EQ(two.receive(), 9014U);
}

TEST_F(TapTest, WhatAHostSendsAsOneGoesOnAsOne) {
    start_pair();
    const Forwarding forwarding(device(), 1, 2);
    TaggedSocket one("one0"), two("two0");
    for (const unsigned payload : {65000U, 46000U, 65000U}) one.send(payload, 1448, 0x10);
    for (const unsigned payload : {65000U, 46000U, 65000U}) EXPECT_EQ(two.receive().first, 54 + payload);
}

TEST_F(TapTest, InterfaceGoesWithTheVport) {
    start_pair();
    EXPECT_EQ(device().remove_vport(VportId{1}), 0);
    EXPECT_EQ(if_nametoindex("one0"), 0U);
    nic_.reset();
    EXPECT_EQ(if_nametoindex("two0"), 0U);
}

}  // namespace
}  // namespace ovsdr::soft
