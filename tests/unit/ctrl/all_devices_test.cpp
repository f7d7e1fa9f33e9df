// What all devices have in common: they come and go, and so do tunnel ports and megaflows.
#include "ctrl/all_devices.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <future>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "ctrl/flow.h"
#include "ctrl/tunnel_port.h"
#include "tests/unit/ctrl/idle_eswitch.hpp"

namespace ovsdr::ctrl {
namespace {

using dr::OdpPort;
using dr::Ufid;

/// Knows what it was told; a megaflow becomes what the test says.
class FakeEswitch final : public test::IdleEswitch {
public:
    std::map<OdpPort, dr::TunnelPort> tunnel_ports;
    Choices choices;
    std::map<Ufid, Status> megaflows;
    dr::PutOutcome outcome;
    std::function<void()> meter_used;
    /// In the middle of a change of choices or tunnel ports, and of a put.
    std::function<void()> while_it_changes = [] {}, while_it_puts = [] {};

    void set_tunnel_port(const dr::TunnelPort& port) noexcept override {
        while_it_changes();
        tunnel_ports[port.odp_port] = port;
    }
    void remove_tunnel_port(OdpPort port) noexcept override {
        while_it_changes();
        tunnel_ports.erase(port);
    }
    void choose(const Choices& chosen) noexcept override {
        while_it_changes();
        choices = chosen;
    }
    std::map<OdpPort, dr::MirrorSteering> mirror_ports;
    bool refuses_mirrors = false;
    Result<void> set_mirror_port(OdpPort port, dr::CopyKind kind,
                                 const dr::MirrorSteering& steering) noexcept override {
        EXPECT_EQ(kind, dr::mirror_kind(2));
        if (refuses_mirrors) return tl::unexpected(Error{EIO, "refused"});
        mirror_ports[port] = steering;
        return {};
    }
    void remove_mirror_port(OdpPort port) noexcept override { mirror_ports.erase(port); }
    std::map<std::uint32_t, meter::Spec> meters;
    std::map<std::uint32_t, dr::MeterStats> metered;   ///< those that have an object
    std::map<std::uint32_t, std::uint32_t> lowered;
    bool refuses_rates = false;
    void set_meter(std::uint32_t number, const meter::Spec& spec) noexcept override {
        meters[number] = spec;
        metered.erase(number);
    }
    dr::MeterStats remove_meter(std::uint32_t number) noexcept override {
        meters.erase(number);
        return meter_stats(number);
    }
    bool has_meter(std::uint32_t number) noexcept override { return metered.contains(number); }
    void on_meter_use(std::function<void()> used) noexcept override { meter_used = std::move(used); }
    Result<void> lower_meter(std::uint32_t number, std::uint32_t rate) noexcept override {
        if (refuses_rates) return tl::unexpected(Error{EIO, "refused", "ACCESS_ASO"});
        lowered[number] = rate;
        return {};
    }
    dr::MeterStats meter_stats(std::uint32_t number) noexcept override {
        return has_meter(number) ? metered[number] : dr::MeterStats{};
    }
    [[nodiscard]] bool knows(const Ufid& ufid) const noexcept override { return megaflows.contains(ufid); }
    using IdleEswitch::put;
    [[nodiscard]] dr::PutOutcome put(const Ufid& ufid, const ovsdr_megaflow&, std::uint16_t) noexcept override {
        while_it_puts();
        megaflows.try_emplace(ufid, Status{{}, std::holds_alternative<std::monostate>(outcome)});
        return outcome;
    }
    using IdleEswitch::del;
    void del(std::span<Deletion> deletions) noexcept override {
        for (Deletion& deletion : deletions) {
            const auto found = megaflows.find(deletion.ufid);
            if (found == megaflows.end()) continue;
            deletion.last = found->second.stats;
            megaflows.erase(found);
        }
    }
    [[nodiscard]] std::optional<Status> status(const Ufid& ufid) noexcept override {
        const auto found = megaflows.find(ufid);
        if (found == megaflows.end()) return std::nullopt;
        return found->second;
    }
    void flush(std::optional<OdpPort>) noexcept override { megaflows.clear(); }
};

constexpr Ufid ufid{1, 2};

dr::TunnelPort vxlan(std::uint32_t number, std::uint16_t udp_port = 4789) {
    return {.odp_port = OdpPort{number}, .kind = dr::TunnelKind::vxlan, .udp_port = udp_port, .name = "vxlan_sys"};
}

ovsdr_megaflow from(std::uint32_t in_port) {
    ovsdr_megaflow megaflow{};
    megaflow.key.in_port = in_port;
    return megaflow;
}

class AllDevicesTest : public testing::Test {
protected:
    AllDevices all;
    FakeEswitch first, second;

    AllDevicesTest() {
        all.add(first);
        all.set_tunnel_port(vxlan(4));
    }
};

TEST_F(AllDevicesTest, ADeviceThatComesLaterLearnsOfTunnelPortsAndChoices) {
    all.choose({.exact_tunnel_source_port = true, .exact_tunnel_flags = false});
    all.set_tunnel_port(vxlan(5, 8472));
    all.add(second);
    EXPECT_EQ(second.tunnel_ports, first.tunnel_ports);
    EXPECT_EQ(second.tunnel_ports.size(), 2U);
    EXPECT_EQ(second.tunnel_ports[OdpPort{5}].udp_port, 8472);
    EXPECT_TRUE(first.choices.exact_tunnel_source_port);
    EXPECT_EQ(second.choices, first.choices);
}

/// A device that refuses another steering must not go on with the one before: software sends then, and filters.
TEST_F(AllDevicesTest, EachDeviceKnowsMirrorsOrDoesNotKnowThem) {
    const dr::MirrorSteering before{.one_of = 2}, after{.services = {{6, 3260}}};
    EXPECT_TRUE(all.set_mirror_port(OdpPort{9}, dr::mirror_kind(2), before));
    all.add(second);
    EXPECT_EQ(first.mirror_ports.at(OdpPort{9}), before);
    EXPECT_EQ(second.mirror_ports.at(OdpPort{9}), before) << "it was there before the device";
    first.refuses_mirrors = true;
    const auto told = all.set_mirror_port(OdpPort{9}, dr::mirror_kind(2), after);
    ASSERT_FALSE(told);
    EXPECT_EQ(told.error().what, "refused");
    EXPECT_TRUE(first.mirror_ports.empty());
    EXPECT_EQ(second.mirror_ports.at(OdpPort{9}), after);
    FakeEswitch late;
    late.refuses_mirrors = true;
    const auto refused = all.add(late);
    ASSERT_EQ(refused.size(), 1U) << "a device that comes after the mirror";
    EXPECT_EQ(refused.front().first, OdpPort{9});
    EXPECT_EQ(refused.front().second.what, "refused");
    all.remove(late);
    all.remove_mirror_port(OdpPort{9});
    EXPECT_TRUE(second.mirror_ports.empty());
}

constexpr meter::Spec meter_by_packets{.by_packets = true, .rate = 1000, .burst = 100};

TEST_F(AllDevicesTest, EachDeviceHasEachMeterAndTheirStatisticsAreTheSum) {
    all.set_meter(3, meter_by_packets);
    all.add(second);
    EXPECT_EQ(first.meters.at(3), meter_by_packets);
    EXPECT_EQ(second.meters.at(3), meter_by_packets) << "it was there before the device";
    EXPECT_TRUE(all.meters_in_devices().empty()) << "no rule has needed it";
    first.metered[3] = {.passed = {7, 700}, .dropped = {2, 200}};
    second.metered[3] = {.passed = {1, 100}, .dropped = {4, 400}};
    EXPECT_EQ(all.meters_in_devices(), std::vector<std::uint32_t>{3});
    EXPECT_EQ(all.meter_stats(3).passed.packets, 8U);
    EXPECT_EQ(all.meter_stats(3).dropped.bytes, 600U);
    EXPECT_EQ(all.remove_meter(3).passed.bytes, 800U);
    EXPECT_TRUE(first.meters.empty() && second.meters.empty());
    EXPECT_TRUE(all.meters_in_devices().empty());
}

TEST_F(AllDevicesTest, ADevicePaysForWhatSoftwareAndOtherDevicesLetPass) {
    all.set_meter(3, meter_by_packets);
    all.set_meter(4, {.rate = 1000, .burst = 100});
    all.add(second);
    first.metered[3] = first.metered[4] = {};
    const auto charge = [&](std::uint32_t number, const dr::FlowStats& in_software, std::int64_t elapsed_ms = 200) {
        EXPECT_EQ(all.meters_in_devices().size(), 2U);
        all.charge_meter(number, in_software, elapsed_ms, 200);
    };
    charge(3, {.packets = 5'000'000, .bytes = 1});
    EXPECT_EQ(first.lowered[3], 1000U) << "what software let pass before the device had the meter is no debt";
    charge(3, {.packets = 5'000'100, .bytes = 1});
    EXPECT_EQ(first.lowered[3], 500U) << "100 packets are half of what 200 ms give";
    EXPECT_FALSE(second.lowered.contains(3)) << "it has none";
    charge(3, {.packets = 5'000'100, .bytes = 1});
    EXPECT_EQ(first.lowered[3], 1000U) << "paid";
    second.metered[3] = {.passed = {150, 1}};
    charge(3, {.packets = 5'000'100, .bytes = 1});
    EXPECT_EQ(first.lowered[3], 250U);
    EXPECT_EQ(second.lowered[3], 1000U) << "it has come just now";
    charge(3, {.packets = 5'000'120, .bytes = 1});
    EXPECT_EQ(first.lowered[3], 900U);
    EXPECT_EQ(second.lowered[3], 900U);
    charge(4, {.packets = 1, .bytes = 12});
    charge(4, {.packets = 1, .bytes = 12512});
    EXPECT_EQ(first.lowered[4], 500U) << "100 kilobits";
    charge(3, {.packets = 5'000'180, .bytes = 1}, 1000);
    EXPECT_EQ(first.lowered[3], 1000U) << "20 were owed and then 60 more; 100 less a second, for a second, paid 100";
    charge(3, {.packets = 5'000'200, .bytes = 1});
    EXPECT_EQ(first.lowered[3], 1000U) << "for these as well";
    charge(3, {.packets = 5'000'220, .bytes = 1});
    EXPECT_EQ(first.lowered[3], 900U);
}

TEST_F(AllDevicesTest, AMeterWithoutMegaflowsIsNotAskedForAndHasItsRateBack) {
    unsigned uses = 0;
    all.on_meter_use([&uses] { ++uses; });
    all.add(second);
    first.meter_used();
    second.meter_used();
    EXPECT_EQ(uses, 2U) << "of a device that was there, and of one that came";
    all.set_meter(3, meter_by_packets);
    first.metered[3] = {};
    EXPECT_EQ(all.meters_in_devices().size(), 1U);
    all.charge_meter(3, {.packets = 100}, 200, 200);
    all.charge_meter(3, {.packets = 200}, 200, 200);
    EXPECT_EQ(first.lowered[3], 500U);
    first.metered.clear();
    EXPECT_TRUE(all.meters_in_devices().empty());
    EXPECT_EQ(first.lowered[3], 1000U);
    first.lowered.clear();
    EXPECT_TRUE(all.meters_in_devices().empty());
    EXPECT_TRUE(first.lowered.empty()) << "once";
}

TEST_F(AllDevicesTest, WhatADeviceLetPassIsPaidForOnceWhenItsMegaflowsComeAgain) {
    all.set_meter(3, meter_by_packets);
    all.add(second);
    const auto charge = [&] {
        (void)all.meters_in_devices();
        all.charge_meter(3, {}, 200, 200);
    };
    first.metered[3] = {};
    second.metered[3] = {.passed = {100, 1}};
    charge();
    EXPECT_EQ(first.lowered[3], 1000U) << "told for the first time";
    second.metered[3] = {.passed = {200, 1}};
    charge();
    EXPECT_EQ(first.lowered[3], 500U);
    second.metered.clear();   // its megaflows have idled out
    charge();
    EXPECT_EQ(first.lowered[3], 1000U) << "paid";
    second.metered[3] = {.passed = {220, 1}};
    charge();
    EXPECT_EQ(first.lowered[3], 900U) << "for 20 more, not for 220";
    EXPECT_EQ(second.lowered[3], 1000U);
}

TEST_F(AllDevicesTest, WhatADeviceCountedByAMeterStaysWhenItGoes) {
    all.set_meter(3, meter_by_packets);
    all.add(second);
    first.metered[3] = {.passed = {7, 700}};
    second.metered[3] = {.passed = {1, 100}};
    all.remove(second);
    EXPECT_EQ(all.meter_stats(3).passed.packets, 8U);
    EXPECT_EQ(all.remove_meter(3).passed.packets, 8U);
    all.set_meter(3, meter_by_packets);
    first.metered.clear();
    EXPECT_EQ(all.meter_stats(3).passed.packets, 0U);
    EXPECT_TRUE(all.has_meters());
}

TEST_F(AllDevicesTest, ADeviceThatTakesNoRateTwiceLosesItsObjectAndNoStatistics) {
    all.set_meter(3, meter_by_packets);
    first.metered[3] = {.passed = {7, 700}};
    first.refuses_rates = true;
    for (const bool still_there : {true, false}) {
        EXPECT_EQ(all.meters_in_devices().size(), 1U);
        all.charge_meter(3, {}, 200, 200);
        EXPECT_EQ(first.metered.contains(3), still_there);
    }
    EXPECT_EQ(all.meter_stats(3).passed.packets, 7U);
}

TEST(MeterShare, WhatTheDeviceRefusedIsNotPaid) {
    MeterShare share;
    (void)share.next(0, 1000, 200, 200);
    EXPECT_EQ(share.next(100, 1000, 200, 200), 500U);
    EXPECT_FALSE(share.refused());
    EXPECT_EQ(share.next(100, 1000, 200, 200), 500U);
    share.accepted();
    EXPECT_EQ(share.next(100, 1000, 200, 200), 1000U);
}

/// Software passes what it likes within its own bucket; the device all that it may.
TEST(MeterShare, TogetherTheyPassTheRateAndWhatIsUnderWay) {
    constexpr std::uint32_t rate = 1000, interval = 200;
    constexpr double a_time = rate * interval / 1000.0, burst = 300;
    std::mt19937 random(5);
    for (int round = 0; round < 200; ++round) {
        MeterShare share;
        (void)share.next(0, rate, interval, interval);
        double software = 0, bucket = burst, device = 0;
        std::uint32_t allowed = rate;
        const unsigned quiet = random() % 4;
        for (unsigned i = 1; i < 200; ++i) {
            bucket = std::min(burst, bucket + a_time);
            const double wanted = random() % 4 < quiet ? 0 : random() % 700;
            const double passes = std::floor(std::min(bucket, wanted));
            software += passes;
            bucket -= passes;
            device += allowed * interval / 1000.0;
            ASSERT_LE(software + device, a_time * i + burst + a_time + 1) << round << " " << i;
            allowed = share.next(static_cast<std::uint64_t>(software), rate, interval, interval);
        }
        EXPECT_GE(software + device, a_time * 199 - burst - a_time - 199) << "and no less, if it is asked for";
    }
}

/// Each lets pass what it may of what comes, with a bucket that holds a second of the rate.
TEST(MeterSplit, DevicesHaveTheirPartsAndNoneStandsStill) {
    constexpr std::uint32_t rate = 1000, interval = 200;
    constexpr double a_time = rate * interval / 1000.0, burst = rate;
    struct Device {
        double offered;   // in an interval
        double bucket = burst, last = 0, carry = 0;
        std::uint32_t allowed = rate;
    };
    const std::vector<std::vector<double>> offers{{5, 5},   {5, .5},         {.6, .6},       {.2, .3},
                                                  {5, 5, 5}, {5, 1, .3}, {5, .1, 5, 5, 5}, {3, 3, 3, 3, 3, 3, 3, 3}};
    for (const std::vector<double>& of_rate : offers) {
        for (const bool counts_drops : {true, false}) {
            SCOPED_TRACE(testing::PrintToString(of_rate) + (counts_drops ? ", drops counted" : ""));
            const auto n = static_cast<double>(of_rate.size());
            std::vector<Device> devices;
            for (const double offer : of_rate) devices.push_back({.offered = offer * a_time});
            const double all_offered = std::reduce(of_rate.begin(), of_rate.end()) * a_time;
            MeterSplit split;
            double sum = 0, before_end = 0;
            for (unsigned i = 0; i < 200; ++i) {
                if (i == 100) before_end = sum;
                std::vector<MeterSplit::Device> counted;
                for (Device& device : devices) {
                    device.bucket = std::min(burst, device.bucket + device.allowed * interval / 1000.0);
                    device.last = std::floor(std::min(device.bucket, device.offered));
                    device.bucket -= device.last;
                    sum += device.last;
                    const auto passed = static_cast<std::uint64_t>(device.last);
                    counted.push_back({.passed = passed,
                                       .offered = counts_drops ? static_cast<std::uint64_t>(device.offered) : passed});
                }
                split.next(counted, rate, interval, interval);
                for (std::size_t d = 0; d < devices.size(); ++d) {
                    devices[d].allowed = split.rate_of(counted[d], devices[d].carry);
                }
                if (i < 20) continue;
                for (const Device& device : devices) {
                    const double fair = counts_drops ? device.offered * std::min(1.0, a_time / all_offered)
                                                     : std::min(device.offered, a_time / n / 10);
                    EXPECT_GE(device.last, fair * .4 - 1) << "interval " << i;
                }
            }
            const double expected = std::min(a_time, all_offered);
            EXPECT_NEAR(sum - before_end, 100 * expected, 10 * expected);
            EXPECT_LE(sum, 200 * a_time + burst * n + 5 * a_time);
        }
    }
}

TEST(MeterSplit, PartsOfASmallRateAreNotRoundedAway) {
    const MeterSplit::Device overloaded{.passed = 0, .offered = 10};
    for (const std::uint32_t rate : {1U, 2U, 5U}) {
        MeterSplit split;
        double carries[3]{};
        std::uint64_t sum = 0;
        for (unsigned i = 0; i < 300; ++i) {
            split.next(std::vector(3, overloaded), rate, 200, 200);
            for (double& carry : carries) sum += split.rate_of(overloaded, carry);
        }
        EXPECT_NEAR(static_cast<double>(sum), 300.0 * rate, 3) << rate;
    }
}

TEST_F(AllDevicesTest, SaysOnceThatADeviceCame) {
    EXPECT_TRUE(all.take_added());
    EXPECT_FALSE(all.take_added());
    all.add(second);
    EXPECT_TRUE(all.take_added());
}

TEST_F(AllDevicesTest, AMegaflowIsInEachDeviceAndOffloadedIfItIsInOne) {
    all.add(second);
    first.outcome = dr::Reject{};
    const auto outcome = all.put(ufid, from(4), 0);
    ASSERT_TRUE(outcome);
    EXPECT_TRUE(std::holds_alternative<std::monostate>(*outcome));
    ASSERT_TRUE(first.knows(ufid) && second.knows(ufid) && all.knows(ufid));
    first.megaflows[ufid].stats = {.packets = 3, .bytes = 300, .used_ms = 70};
    second.megaflows[ufid].stats = {.packets = 4, .bytes = 400, .used_ms = 60};
    const auto status = all.status(ufid);
    ASSERT_TRUE(status);
    EXPECT_TRUE(status->offloaded);
    EXPECT_EQ(status->stats.packets, 7U);
    EXPECT_EQ(status->stats.bytes, 700U);
    EXPECT_EQ(status->stats.used_ms, 70);
}

TEST_F(AllDevicesTest, AFailureIsToldUnlessADeviceHasTheMegaflow) {
    all.add(second);
    first.outcome = dr::Reject{};
    second.outcome = Error{5, "broken"};
    const auto failed = all.put(ufid, from(4), 0);
    ASSERT_TRUE(failed);
    EXPECT_TRUE(std::holds_alternative<Error>(*failed));
    first.outcome = std::monostate{};
    EXPECT_TRUE(std::holds_alternative<std::monostate>(*all.put(ufid, from(4), 0)));
}

TEST_F(AllDevicesTest, ATunnelPortThatHasGoneGetsNoMegaflow) {
    EXPECT_FALSE(all.put(ufid, from(5), 0));
    ASSERT_TRUE(all.put(ufid, from(4), 0));
    all.remove_tunnel_port(OdpPort{4});
    EXPECT_TRUE(first.tunnel_ports.empty());
    EXPECT_FALSE(first.knows(ufid)) << "its megaflows go with it";
    EXPECT_FALSE(all.put(ufid, from(4), 0));
    EXPECT_FALSE(first.knows(ufid));
    EXPECT_FALSE(all.tunnel_port(OdpPort{4}));
}

/// To compile many megaflows again takes a second: threads that receive packets ask meanwhile.
TEST_F(AllDevicesTest, NobodyWaitsForADeviceThatCompilesMegaflowsAgain) {
    std::vector<std::future<void>> others;
    unsigned changes = 0;
    first.while_it_changes = [&] {
        ++changes;
        others.push_back(std::async(std::launch::async, [&] {
            (void)all.tunnel_port(OdpPort{4});
            (void)all.put(ufid, from(4), 0);
            (void)all.status(ufid);
            all.for_each([](dr::Eswitch&) {});
        }));
        EXPECT_EQ(others.back().wait_for(std::chrono::seconds(10)), std::future_status::ready) << "change " << changes;
    };
    all.choose({.exact_tunnel_source_port = true, .exact_tunnel_flags = false});
    all.set_tunnel_port(vxlan(5, 8472));
    all.remove_tunnel_port(OdpPort{5});
    EXPECT_EQ(changes, 3U);
}

TEST_F(AllDevicesTest, AMegaflowThatIsBeingPutGoesWithItsTunnelPortToo) {
    std::future<void> removal;
    first.while_it_puts = [&] {
        removal = std::async(std::launch::async, [&] { all.remove_tunnel_port(OdpPort{4}); });
        while (all.tunnel_port(OdpPort{4})) std::this_thread::yield();
        EXPECT_EQ(removal.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout)
            << "it waits for the put";
    };
    ASSERT_TRUE(all.put(ufid, from(4), 0));
    removal.wait();
    EXPECT_FALSE(first.knows(ufid));
}

/// It may be opened again before its last owner has let go of it, when there are other ports.
TEST_F(AllDevicesTest, ADeviceThatGoesForgetsTunnelPorts) {
    ASSERT_FALSE(first.tunnel_ports.empty());
    all.remove(first);
    EXPECT_TRUE(first.tunnel_ports.empty());
    all.remove_tunnel_port(OdpPort{4});
    all.add(first);
    EXPECT_TRUE(first.tunnel_ports.empty()) << "it went meanwhile";
}

/// It does not hear of their deletion any more. Should it be opened again, they must not be there.
TEST_F(AllDevicesTest, ADeviceThatGoesForgetsMegaflowsOfTunnelPorts) {
    ASSERT_TRUE(all.put(ufid, from(4), 0));
    unsigned changes = 0;
    first.while_it_changes = [&] {
        ++changes;
        EXPECT_FALSE(all.put(ufid, from(4), 0)) << "one more, behind those that go";
    };
    all.remove(first);
    EXPECT_EQ(changes, 1U);
    EXPECT_FALSE(first.knows(ufid));
    first.while_it_changes = [] {};
    all.add(first);
    EXPECT_FALSE(first.knows(ufid));
}

TEST_F(AllDevicesTest, WithoutADeviceNothingIsPut) {
    all.remove(first);
    EXPECT_FALSE(all.put(ufid, from(4), 0));
    EXPECT_FALSE(all.status(ufid));
    EXPECT_FALSE(first.knows(ufid));
}

TEST_F(AllDevicesTest, FindsATunnelPortByItsName) {
    EXPECT_EQ(all.tunnel_port("vxlan_sys"), vxlan(4));
    EXPECT_FALSE(all.tunnel_port("genev_sys"));
}

/// The C side, on the process's own.
TEST(TunnelFlows, ADeletionIsTheSumOfAllDevices) {
    FakeEswitch first, second, third;
    for (FakeEswitch* eswitch : {&first, &second, &third}) all_devices().add(*eswitch);
    const ovsdr_tunnel_port port{.odp_port = 4, .kind = OVSDR_TUNNEL_GENEVE, .udp_port = 6081};
    ovsdr_tunnel_port_set(&port, "genev_sys_6081");
    const ovsdr_ufid known{{1, 2}}, unknown{{3, 4}};
    const ovsdr_megaflow megaflow = from(4);
    char* error = nullptr;
    ASSERT_EQ(ovsdr_flow_put(nullptr, &known, &megaflow, 0, 0, &error), OVSDR_PUT_INSTALLED);
    first.megaflows[ufid].stats = {.packets = 3, .bytes = 300, .used_ms = 70};
    second.megaflows[ufid].stats = {.packets = 4, .bytes = 400, .used_ms = 80};
    third.megaflows.clear();
    ovsdr_flow_deletion deletions[] = {{.port = nullptr, .ufid = unknown, .had_stats = true, .last = {}},
                                       {.port = nullptr, .ufid = known, .had_stats = false, .last = {}}};
    ovsdr_flows_del(deletions, 2);
    EXPECT_FALSE(deletions[0].had_stats);
    EXPECT_TRUE(deletions[1].had_stats);
    EXPECT_EQ(deletions[1].last.packets, 7U);
    EXPECT_EQ(deletions[1].last.bytes, 700U);
    EXPECT_EQ(deletions[1].last.used_ms, 80);
    EXPECT_FALSE(ovsdr_flow_known(nullptr, &known));
    ovsdr_tunnel_port found{};
    ASSERT_TRUE(ovsdr_tunnel_port_find("genev_sys_6081", &found));
    EXPECT_EQ(found.odp_port, 4U);
    EXPECT_EQ(found.kind, OVSDR_TUNNEL_GENEVE);
    ovsdr_tunnel_port_remove(4);
    EXPECT_FALSE(ovsdr_tunnel_port_get(4, &found));
    EXPECT_EQ(ovsdr_flow_put(nullptr, &known, &megaflow, 0, 0, &error), OVSDR_PUT_NOWHERE);
    for (FakeEswitch* eswitch : {&first, &second, &third}) all_devices().remove(*eswitch);
}

}  // namespace
}  // namespace ovsdr::ctrl
