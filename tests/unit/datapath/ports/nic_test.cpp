// A whole soft NIC on ports that need no network: net_ring gives back what is sent on it, so what a vport receives is
// at once what its owner sends.
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "nic_fixture.hpp"

namespace ovsdr::soft {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr std::uint32_t sqn = 77;

TEST_F(NicTest, ListsTheManagerAndThePorts) {
    start(
        R"("ports": [{"vport": 65535, "dpdk": "net_null,no-rx=1", "mac": "02:00:00:00:00:99"}, )"
        R"({"vport": 2, "dpdk": "net_ring"}])");
    const auto vports = device().vports();
    ASSERT_EQ(vports.size(), 3U);
    EXPECT_EQ(vports[0].id, manager_vport);
    EXPECT_EQ(vports[1].id, VportId{2});
    EXPECT_EQ(vports[1].error, "");
    EXPECT_TRUE(vports[1].link_up);
    EXPECT_EQ(vports[2].id, uplink_vport);
    EXPECT_EQ(vports[2].mac[5], 0x99);
}

TEST_F(NicTest, ExplainsAPortThatDoesNotOpenAndGoesOn) {
    start(R"("ports": [{"vport": 1, "dpdk": "net_af_packet,iface=nowhere0"}, {"vport": 2, "dpdk": "net_ring"}])");
    EXPECT_NE(info(1).error.find("nowhere0"), std::string::npos) << info(1).error;
    EXPECT_FALSE(info(1).link_up);
    EXPECT_EQ(info(2).error, "");
    TestQueue queue(device(), sqn, VportId{1});
    queue.send(60);
    EXPECT_TRUE(eventually([&] { return counters(1).receive_drops == 1; }));
}

TEST_F(NicTest, CountsEachFrameBothWays) {
    start(R"("ports": [{"vport": 1, "dpdk": "net_ring"}], "cotenant": {"vports": [1], "period_ms": 60000})");
    TestQueue queue(device(), sqn, VportId{1});
    for (unsigned i = 0; i < 1000; ++i) {
        queue.send(60 + i % 100);
        if (i % 100 == 0) std::this_thread::sleep_for(1ms);
    }
    EXPECT_TRUE(eventually([&] { return counters(1).sent_packets == 1000; }));
    const VportCounters seen = counters(1);
    EXPECT_EQ(seen.received_packets, 1000U);
    EXPECT_EQ(seen.received_bytes, 1000U * 60 + 10 * (99 * 100 / 2));
    EXPECT_EQ(seen.sent_bytes, seen.received_bytes);
    EXPECT_EQ(counters(0).sent_packets, 1000U) << "the manager's queues sent them";
    EXPECT_TRUE(eventually([&] { return nic_->cotenant(0)->statistics().ports[0].received == 1000; }));
    EXPECT_EQ(nic_->cotenant(0)->statistics().ports[0].missed, 0U);
}

/// Nothing comes back from this port.
TEST_F(NicTest, APlainFunctionHasSentWhatItsWireReceived) {
    start(R"("eswitch": false, "ports": [{"vport": 65535, "dpdk": "net_null,no-rx=1"}])");
    TestQueue queue(device(), sqn, manager_vport);
    queue.send(60);
    EXPECT_TRUE(eventually([&] { return counters(0).sent_packets == 1; }));
    EXPECT_EQ(counters(0).sent_bytes, 60U);
    EXPECT_EQ(counters(0).received_packets, 0U);
    EXPECT_EQ(counters(uplink_vport.value).received_packets, 1U);
    EXPECT_EQ(counters(uplink_vport.value).sent_packets, 0U);
}

TEST_F(NicTest, CotenantHearsWhatItSent) {
    start(R"("ports": [{"vport": 1, "dpdk": "net_ring"}, {"vport": 65535, "dpdk": "net_ring"}],
             "cotenant": {"vports": [1], "lacp": true, "period_ms": 10})");
    const Cotenant& cotenant = *nic_->cotenant(0);
    EXPECT_TRUE(eventually([&] {
        const Cotenant::Statistics seen = cotenant.statistics();
        return seen.ports[0].received >= 5 && seen.lacp_received >= 5;
    }));
    EXPECT_TRUE(eventually([&] {
        const Cotenant::Statistics seen = cotenant.statistics();
        return seen.ports[0].missed == 0 && seen.lacp_missed == 0 && seen.ports[0].sent == seen.ports[0].received;
    }));
    EXPECT_EQ(cotenant.statistics().foreign, 0U);
}

TEST_F(NicTest, LacpIsCountedOnBothPortsOfALag) {
    start(R"("ports": [{"vport": 65535, "dpdk": ["net_ring", "net_ring"]}], )"
          R"("cotenant": {"lacp": true, "period_ms": 10})");
    EXPECT_TRUE(eventually([&] {
        const Cotenant::Statistics seen = nic_->cotenant(0)->statistics();
        return seen.lacp_received >= 6 && device().lacp_frames() == seen.lacp_received;
    }));
}

TEST_F(NicTest, DropsAndCountsWhatExceedsTheMtu) {
    start(R"("ports": [{"vport": 1, "dpdk": "net_ring", "mtu": 1000}])");
    TestQueue queue(device(), sqn, VportId{1});
    queue.send(1000 + 22);
    queue.send(1000 + 23);
    EXPECT_TRUE(eventually([&] { return counters(1).oversize == 1 && counters(1).received_packets == 1; }));
    EXPECT_EQ(device().set_mtu(VportId{1}, 1001), 0);
    queue.send(1000 + 23);
    EXPECT_TRUE(eventually([&] { return counters(1).received_packets == 2; }));
    EXPECT_EQ(device().set_mtu(VportId{1}, 67), EINVAL);
    EXPECT_EQ(device().set_mtu(VportId{1}, 9979), EINVAL);
    EXPECT_EQ(device().set_mtu(VportId{9}, 1500), ENOENT);
}

TEST_F(NicTest, CarriesJumboFramesOnceTheMtuAllowsThem) {
    start(R"("ports": [{"vport": 1, "dpdk": "net_ring"}])");
    TestQueue queue(device(), sqn, VportId{1});
    EXPECT_EQ(device().set_mtu(VportId{1}, 9978), 0);
    queue.send(9978 + 14);
    EXPECT_TRUE(eventually([&] { return counters(1).received_packets == 1; }));
    EXPECT_EQ(counters(1).oversize, 0U);
}

TEST_F(NicTest, CountsWhatComesWhileDown) {
    start(R"("ports": [{"vport": 1, "dpdk": "net_ring"}])");
    TestQueue queue(device(), sqn, VportId{1});
    EXPECT_EQ(device().set_admin_state(VportId{1}, false), 0);
    queue.send(60);
    EXPECT_TRUE(eventually([&] { return counters(1).down == 1; }));
    EXPECT_EQ(counters(1).received_packets, 0U);
    EXPECT_EQ(device().set_admin_state(VportId{1}, true), 0);
    queue.send(60);
    EXPECT_TRUE(eventually([&] { return counters(1).received_packets == 1; }));
}

TEST_F(NicTest, AddsAndRemovesVportsWhileItRuns) {
    start("");
    std::mutex mutex;
    std::vector<std::pair<VportId, VportChange>> heard;
    const auto id = device().add_listener([&](VportId vport, VportChange change) {
        const std::lock_guard lock(mutex);
        heard.emplace_back(vport, change);
    });
    std::string error;
    PortConfig port{.vport = VportId{5}, .name = "five", .dpdk = "net_ring", .mac = {}, .mtu = {}};
    ASSERT_EQ(device().add_vport(port, true, error), 0) << error;
    EXPECT_EQ(device().add_vport(port, true, error), EEXIST);
    {
        TestQueue queue(device(), sqn, VportId{5});
        queue.send(60);
        EXPECT_TRUE(eventually([&] { return counters(5).received_packets == 1; }));
    }
    EXPECT_EQ(device().remove_vport(VportId{5}), 0);
    EXPECT_EQ(device().remove_vport(VportId{5}), ENOENT);
    EXPECT_EQ(device().remove_vport(manager_vport), ENOENT);
    PortConfig bad = port;
    bad.dpdk = "net_af_packet,iface=nowhere0";
    EXPECT_EQ(device().add_vport(bad, true, error), EIO);
    EXPECT_EQ(device().vports().size(), 1U) << "a port that must work is not added when it does not";
    EXPECT_TRUE(eventually([&] {
        const std::lock_guard lock(mutex);
        return heard == std::vector<std::pair<VportId, VportChange>>{{VportId{5}, VportChange::added},
                                                                     {VportId{5}, VportChange::removed}};
    }));
    device().remove_listener(id);
}

TEST_F(NicTest, TrafficAndChangesDoNotDisturbEachOther) {
    start(R"("ports": [{"vport": 1, "dpdk": "net_ring"}])", R"("control_socket": "", "workers": 2)");
    TestQueue queue(device(), sqn, VportId{1});
    std::atomic<bool> stop{false};
    std::thread sender([&] {
        while (!stop) {
            queue.send(60);
            std::this_thread::sleep_for(20us);
        }
    });
    std::string error;
    for (unsigned round = 0; round < 20; ++round) {
        const PortConfig port{.vport = VportId{2}, .name = "two", .dpdk = "net_ring", .mac = {}, .mtu = {}};
        ASSERT_EQ(device().add_vport(port, true, error), 0) << error;
        {
            TestQueue second(device(), sqn + 1, VportId{2});
            second.send(60);
            EXPECT_TRUE(eventually([&] { return counters(2).received_packets > 0; }));
        }
        ASSERT_EQ(device().remove_vport(VportId{2}), 0);
    }
    stop = true;
    sender.join();
    EXPECT_GT(counters(1).received_packets, 0U);
}

TEST_F(NicTest, ARemovedQueueIsNotPolledAgain) {
    start("");
    for (unsigned round = 0; round < 50; ++round) {
        TestQueue queue(device(), sqn + round, VportId{1});
        queue.send(60);
        std::this_thread::sleep_for(std::chrono::microseconds(round * 10));
        queue.remove();
        const std::uint64_t polls = queue.polls;
        if (round % 10 == 0) std::this_thread::sleep_for(2ms);
        EXPECT_EQ(queue.polls, polls);
    }
}

TEST_F(NicTest, SleepsWhenIdle) {
    start(R"("ports": [{"vport": 1, "dpdk": "net_ring"}, {"vport": 2, "dpdk": "net_ring"},
                       {"vport": 3, "dpdk": "net_ring"}, {"vport": 4, "dpdk": "net_ring"}])");
    std::this_thread::sleep_for(200ms);
    const std::uint64_t sleeps_before = nic_->workers()[0]->statistics().sleeps;
    const double before = cpu_seconds();
    std::this_thread::sleep_for(2s);
    const double used = cpu_seconds() - before;
    const std::uint64_t sleeps = nic_->workers()[0]->statistics().sleeps - sleeps_before;
    RecordProperty("idle_cpu_permille", static_cast<int>(used / 2 * 1000));
    EXPECT_LT(sleeps, 5000U) << "ports without a socket are polled every 500 us";
    EXPECT_GT(sleeps, 100U);
    EXPECT_LT(used / 2, 0.50) << "that takes some 2 % of a core, five times as much with sanitizers";
}

TEST_F(NicTest, ADoorbellWakesASleepingWorker) {
    start(R"("ports": [{"vport": 1, "dpdk": "net_ring"}])");
    TestQueue queue(device(), sqn, VportId{1});
    std::vector<Clock::duration> times;
    for (unsigned round = 0; round < 21; ++round) {
        std::this_thread::sleep_for(20ms);
        const auto posted = Clock::now();
        queue.send(60);
        ASSERT_TRUE(eventually([&] { return queue.taken.load() >= posted; }));
        times.push_back(queue.taken.load() - posted);
    }
    std::sort(times.begin(), times.end());
    EXPECT_LT(times[times.size() / 2], 600us);
}

TEST_F(NicTest, WorksWithTheEalThatIsThere) {
    for (unsigned round = 0; round < 3; ++round) {
        start(R"("ports": [{"vport": 1, "dpdk": "net_ring"}])");
        EXPECT_EQ(info(1).error, "");
        nic_.reset();
    }
}

}  // namespace
}  // namespace ovsdr::soft
