// offload/ on the soft NIC, end to end: real packets on veth pairs, in a network namespace of the test's own.
//
// The vports are the inner ends of four pairs, the test reads and writes the outer ends. They run on AF_XDP: DPDK's
// AF_PACKET driver lets the kernel put IP fragments together. Skipped without the right to make a network namespace.
#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <map>
#include <thread>

#include "offload/dr/device/leak.hpp"
#include "offload/dr/vport.hpp"
#include "tests/unit/offload/softnic_fixture.hpp"

namespace ovsdr::dr {
namespace {

using namespace std::chrono_literals;
using namespace test::frames;
using test::MegaflowBuilder;
using test::SoftNic;
using test::Wire;

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
