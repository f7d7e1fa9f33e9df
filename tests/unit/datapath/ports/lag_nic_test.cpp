// An uplink in LAG on two veth pairs, in a network namespace of the test's own: which wire saw the frame. Needs root.
#include <sched.h>
#include <unistd.h>

#include <cstdlib>

#include "guest_socket.hpp"

namespace ovsdr::soft {
namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t sqn = 77;

class LagNicTest : public NicTest {
protected:
    static void SetUpTestSuite() {
        own_namespace_ = geteuid() == 0 && unshare(CLONE_NEWNET) == 0;
        if (own_namespace_) shell("echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6");
    }
    void SetUp() override {
        if (!own_namespace_) GTEST_SKIP() << "no network namespace of its own: not root";
        for (const std::string number : {"1", "2"}) {
            shell("ip link add host" + number + " type veth peer name wire" + number);
            shell("ip link set host" + number + " up; ip link set wire" + number + " up");
        }
    }
    void TearDown() override {
        nic_.reset();
        if (own_namespace_) (void)std::system("ip link del host1 2>/dev/null; ip link del host2 2>/dev/null");
    }

    void start_lag(const std::string& more = "", const std::string& options = R"("control_socket": "")") {
        start(R"("ports": [{"vport": 65535, "dpdk": ["net_af_packet,iface=host1", "net_af_packet,iface=host2"]},
                           {"vport": 1, "dpdk": "net_ring"}])" + more, options);
        ASSERT_EQ(info(65535).error, "");
        ASSERT_TRUE(eventually([&] { return link(1) && link(2); }));
    }
    bool link(unsigned port) { return info(65535).lag.at(port - 1).link_up; }
    VportCounters of_port(unsigned port) {
        VportCounters counters{};
        EXPECT_EQ(device().lag_counters(port, counters), 0);
        return counters;
    }

    static bool own_namespace_;
};

bool LagNicTest::own_namespace_ = false;

TEST_F(LagNicTest, AQueuesFramesComeOutOfThePortOfItsChoice) {
    start_lag();
    TestQueue queue(device(), sqn, uplink_vport);
    Guest wires[] = {Guest("wire1"), Guest("wire2")};
    for (const unsigned port : {1U, 2U, 1U}) {
        device().steering().set_lag_port(sqn, port);
        queue.send(60 + port);
        EXPECT_EQ(wires[port - 1].receive(), 60U + port);
    }
    // A wire has a frame before the worker has counted it.
    EXPECT_TRUE(eventually([&] { return of_port(1).received_packets == 2 && of_port(2).received_packets == 1; }));
    EXPECT_EQ(counters(65535).received_packets, 3U) << "the uplink's are those of both";
    device().steering().set_lag_port(sqn, 0);
}

TEST_F(LagNicTest, ALinkThatGoesDownMovesTheTrafficAndOneThatComesBackReturnsIt) {
    start_lag();
    TestQueue queue(device(), sqn, uplink_vport);
    device().steering().set_lag_port(sqn, 2);
    Guest wire("wire1");
    shell("ip link set wire2 down");
    ASSERT_TRUE(eventually([&] { return !link(2) && device().active_lag_port(2) == 1; }));
    EXPECT_TRUE(info(65535).link_up) << "one link is enough for an uplink";
    EXPECT_EQ(device().active_lag_port(1), 1U);
    queue.send(62);
    EXPECT_EQ(wire.receive(), 62U);
    shell("ip link set wire2 up");
    ASSERT_TRUE(eventually([&] { return link(2) && device().active_lag_port(2) == 2; }));
    Guest other("wire2");
    queue.send(63);
    EXPECT_EQ(other.receive(), 63U);
    EXPECT_TRUE(eventually([&] { return of_port(1).received_packets == 1; }));
    shell("ip link set wire1 down; ip link set wire2 down");
    EXPECT_TRUE(eventually([&] { return !info(65535).link_up; }));
    device().steering().set_lag_port(sqn, 0);
}

TEST_F(LagNicTest, FramesFromBothWiresAreTheUplinksAndNoneGoesBackToAWire) {
    start_lag(R"(, "cotenant": {"vports": [1], "period_ms": 60000})");
    Guest wires[] = {Guest("wire1"), Guest("wire2")};
    wires[0].send(60);  // broadcast
    wires[1].send(61);
    EXPECT_TRUE(eventually([&] { return nic_->cotenant(0)->statistics().foreign == 2; }));
    EXPECT_EQ(counters(65535).sent_packets, 2U);
    EXPECT_EQ(of_port(1).sent_bytes, 60U);
    EXPECT_EQ(of_port(2).sent_bytes, 61U);
    EXPECT_EQ(counters(65535).received_packets, 0U);
}

TEST_F(LagNicTest, TheKernelSendsLacpOnEachPortAndHearsItOnEither) {
    start_lag(R"(, "cotenant": {"lacp": true, "period_ms": 100})");
    EXPECT_TRUE(eventually([&] { return of_port(1).received_packets >= 3 && of_port(2).received_packets >= 3; }));
    shell("ip link set wire1 down");
    ASSERT_TRUE(eventually([&] { return !link(1); }));
    // What is for a port whose link is down does not come out of the other one: it is that port's.
    EXPECT_TRUE(eventually([&] { return of_port(1).receive_drops >= 2; }));
    const std::uint64_t sent = nic_->cotenant(0)->statistics().lacp_sent;
    EXPECT_NEAR(static_cast<double>(of_port(2).received_packets), static_cast<double>(sent) / 2, 2);
}

TEST_F(LagNicTest, BothPortsHaveTheMtu) {
    start_lag();
    ASSERT_EQ(device().set_mtu(uplink_vport, 1400), 0);
    EXPECT_EQ(info(65535).mtu, 1400);
    for (const std::string number : {"1", "2"}) shell("ip link show host" + number + " | grep -q 'mtu 1400 '");
    TestQueue queue(device(), sqn, uplink_vport);
    for (const unsigned port : {1U, 2U}) {
        device().steering().set_lag_port(sqn, port);
        queue.send(1500);
        EXPECT_TRUE(eventually([&] { return of_port(port).oversize == 1; }));
    }
    ASSERT_EQ(device().set_mtu(uplink_vport, 5000), 0) << "larger buffers: opened anew";
    for (const unsigned port : {1U, 2U}) {
        const std::string wire = "wire" + std::to_string(port);
        shell("ip link set " + wire + " mtu 5000");
        Guest guest(wire);
        device().steering().set_lag_port(sqn, port);
        ASSERT_TRUE(eventually([&] { return link(port); }));
        queue.send(4000);
        EXPECT_EQ(guest.receive(), 4000U);
    }
    device().steering().set_lag_port(sqn, 0);
}

TEST_F(LagNicTest, TheSmallerMtuOfTwoInterfacesIsTheUplinks) {
    for (const unsigned small : {1U, 2U}) {
        shell("ip link set host1 mtu 1500; ip link set host2 mtu 1500");
        shell("ip link set host" + std::to_string(small) + " mtu 1300");
        start_lag();
        EXPECT_EQ(info(65535).mtu, 1300);
        {
            TestQueue queue(device(), sqn, uplink_vport);
            device().steering().set_lag_port(sqn, 3 - small);
            queue.send(1400);
            EXPECT_TRUE(eventually([&] { return of_port(3 - small).oversize == 1; })) << "by the other one";
            device().steering().set_lag_port(sqn, 0);
        }
        nic_.reset();
    }
}

TEST_F(LagNicTest, AnMtuThatOnePortCannotHaveIsNeithers) {
    start(R"("ports": [{"vport": 65535, "dpdk": ["net_af_packet,iface=host1", "net_af_xdp,iface=host2"]}])");
    EXPECT_EQ(device().set_mtu(uplink_vport, 5000), EINVAL);
    EXPECT_EQ(info(65535).mtu, 1500);
    shell("ip link show host1 | grep -q 'mtu 1500 '");
}

TEST_F(LagNicTest, AQueueWithoutAChoiceUsesBothPortsAndWhatIsDownIsBoth) {
    start_lag();
    TestQueue queue(device(), sqn, uplink_vport);
    for (char flow = 1; flow <= 64; ++flow) queue.send(60, flow);
    EXPECT_TRUE(eventually([&] { return counters(65535).received_packets == 64; }));
    EXPECT_GT(of_port(1).received_packets, 0U);
    EXPECT_GT(of_port(2).received_packets, 0U);
    ASSERT_EQ(device().set_admin_state(uplink_vport, false), 0);
    for (char flow = 1; flow <= 64; ++flow) queue.send(60, flow);
    EXPECT_TRUE(eventually([&] { return of_port(1).down + of_port(2).down == 64; }));
    VportCounters none{};
    EXPECT_EQ(device().lag_counters(0, none), ENOENT);
}

TEST_F(LagNicTest, EachPortCountsWhatFindsNoRoom) {
    constexpr unsigned frames = 120000;  // an uplink's port holds some 87,000 of the smallest
    start_lag();
    HeldWorker worker(device());
    Guest wire("wire2");
    const std::uint64_t lost = flood(wire, frames);
    worker.let_go();
    EXPECT_TRUE(eventually([&] { return of_port(2).sent_packets + of_port(2).overruns >= frames - lost; }));
    EXPECT_GT(of_port(2).overruns + lost, 0U);
    EXPECT_EQ(of_port(1).overruns, 0U);
    EXPECT_EQ(counters(65535).overruns, of_port(2).overruns);
}

TEST_F(LagNicTest, APortThatIsMissingSaysSoAndTheOtherOneWorks) {
    shell("ip link del host1");
    start(R"("ports": [{"vport": 65535, "dpdk": ["net_af_packet,iface=host1", "net_af_packet,iface=host2"]}])");
    EXPECT_NE(info(65535).error.find("host1"), std::string::npos) << info(65535).error;
    ASSERT_TRUE(eventually([&] { return info(65535).link_up && device().active_lag_port(1) == 2; }));
    TestQueue queue(device(), sqn, uplink_vport);
    device().steering().set_lag_port(sqn, 1);
    Guest wire("wire2");
    queue.send(60);
    EXPECT_EQ(wire.receive(), 60U);
    shell("ip link add host1 type veth peer name wire1; ip link set host1 up; ip link set wire1 up");
    EXPECT_TRUE(eventually([&] { return link(1) && device().active_lag_port(1) == 1; })) << info(65535).error;
    EXPECT_EQ(info(65535).error, "");
    device().steering().set_lag_port(sqn, 0);
}

TEST_F(LagNicTest, AnUplinkCanBeTakenAwayAndComeBackAsOnePort) {
    start_lag();
    EXPECT_TRUE(device().has_lag());
    ASSERT_EQ(device().remove_vport(uplink_vport), 0);
    EXPECT_FALSE(device().has_lag());
    EXPECT_EQ(device().active_lag_port(2), 2U);
    VportCounters counters{};
    EXPECT_EQ(device().lag_counters(1, counters), ENOENT);
    std::string error;
    const PortConfig port{.vport = uplink_vport, .name = "up", .dpdk = "net_af_packet,iface=host2"};
    ASSERT_EQ(device().add_vport(port, true, error), 0) << error;
    EXPECT_FALSE(device().has_lag());
    EXPECT_EQ(device().lag_counters(1, counters), ENOENT);
    TestQueue queue(device(), sqn, uplink_vport);
    device().steering().set_lag_port(sqn, 1);
    Guest wire("wire2");
    queue.send(60);
    EXPECT_EQ(wire.receive(), 60U);
    ASSERT_EQ(device().remove_vport(uplink_vport), 0);
    // One of two that cannot be opened: neither is there.
    EXPECT_EQ(device().add_vport({.vport = uplink_vport,
                                  .name = "up",
                                  .dpdk = "net_af_packet,iface=host2",
                                  .lag_dpdk = "net_af_packet,iface=nowhere0"},
                                 true, error),
              EIO);
    EXPECT_NE(error.find("nowhere0"), std::string::npos) << error;
    EXPECT_EQ(device().add_vport({.vport = uplink_vport,
                                  .name = "up",
                                  .dpdk = "net_af_packet,iface=nowhere0",
                                  .lag_dpdk = "net_af_packet,iface=host2"},
                                 true, error),
              EIO);
    EXPECT_NE(error.find("nowhere0"), std::string::npos) << error;
    VportInfo none{};
    EXPECT_EQ(device().query(uplink_vport, none), ENOENT);
    device().steering().set_lag_port(sqn, 0);
}

}  // namespace
}  // namespace ovsdr::soft
