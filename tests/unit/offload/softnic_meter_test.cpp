// OpenFlow meters on the soft NIC, with real packets: how many pass, and that each is counted once. Those of a
// ConnectX-5 count bytes only: it runs the tests with ByBytes in their names.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "offload/dr/device/leak.hpp"
#include "tests/unit/offload/softnic_fixture.hpp"
#include "tests/unit/offload/tunnel_headers.hpp"

namespace ovsdr::dr {
namespace {

using test::MegaflowBuilder;
using test::SoftNic;
using namespace std::chrono_literals;
using namespace test::frames;
using Clock = std::chrono::steady_clock;

constexpr std::uint32_t number = 5;

class Metered : public SoftNic {
protected:
    void TearDown() override {
        if (eswitch_ != nullptr) {
            eswitch_->remove_meter(number);
            eswitch_->remove_meter(number + 1);
        }
        SoftNic::TearDown();
        EXPECT_EQ(leaked_objects(), 0U);
    }
    static MegaflowBuilder flow(std::uint32_t in_port = 1) {
        return MegaflowBuilder(in_port).eth_type(experimental_type);
    }
    static std::string why(const Ufid& ufid) { return eswitch_->explain(ufid)->text; }
    static meter::Spec packets(std::uint32_t rate, std::uint32_t burst) {
        return {.by_packets = true, .rate = rate, .burst = burst};
    }

    /// Sends frames from a port, in portions that no ring of the host's loses, and waits until the NIC has metered all.
    static void send(std::uint32_t from, std::uint32_t length, std::uint64_t metered_before = 0,
                     std::uint16_t type = experimental_type) {
        for (std::uint32_t sent = 0; sent < length;) {
            for (const std::uint32_t end = std::min(length, sent + 50); sent < end; ++sent) {
                port(from).wire->send(frame(sent, type));
            }
            const auto deadline = Clock::now() + 5s;
            while (metered() < metered_before + sent && Clock::now() < deadline) std::this_thread::sleep_for(200us);
        }
    }
    static std::uint64_t metered() {
        const MeterStats stats = eswitch_->meter_stats(number);
        return stats.passed.packets + stats.dropped.packets;
    }
    static std::size_t arrived(std::uint32_t at) { return port(at).wire->collect(SIZE_MAX, 300ms).size(); }
};

TEST_F(Metered, ABurstPassesAndWhatExceedsIsDroppedAndBothAreCounted) {
    eswitch_->set_meter(number, packets(1, 100));
    put({1, 1}, flow().meter(number).output(2));
    const auto start = Clock::now();
    send(1, 500);
    const auto elapsed = std::chrono::ceil<std::chrono::seconds>(Clock::now() - start);
    const auto seconds = static_cast<std::uint64_t>(elapsed.count());
    const std::size_t came = arrived(2);
    EXPECT_GE(came, 100U);
    EXPECT_LE(came, 100 + seconds + 1);
    const MeterStats stats = eswitch_->meter_stats(number);
    EXPECT_EQ(stats.passed.packets, came);
    EXPECT_EQ(stats.dropped.packets, 500 - came);
    EXPECT_EQ(stats.passed.bytes, came * frame_size);
    EXPECT_EQ(stats.dropped.bytes, (500 - came) * frame_size);
    EXPECT_EQ(eswitch_->del({1, 1})->packets, 500U) << "the megaflow's own counter has all that it matched";
    EXPECT_EQ(eswitch_->remove_meter(number).dropped.packets, 500 - came) << "final, without a megaflow";
    EXPECT_EQ(eswitch_->meter_stats(number).passed.packets, 0U);
}

/// Faster than the rate all the time, however slow the machine is: what passes is bound from both sides.
TEST_F(Metered, TheRateIsKeptWithinItsEncoding) {
    constexpr std::uint32_t rate = 500, burst = 50;
    eswitch_->set_meter(number, packets(rate, burst));
    put({2, 1}, flow().meter(number).output(2));
    std::atomic<bool> ends = false;
    const auto start = Clock::now();
    std::thread sender([&] {
        for (std::uint32_t n = 0; !ends; ++n) {
            port(1).wire->send(frame(n));
            if (n % 16 == 15) std::this_thread::sleep_for(1ms);
        }
    });
    // Each interval is bound by the device's clock and ours: no more than one burst comes on top.
    std::size_t came = 0;
    while (Clock::now() < start + 4s) came += port(2).wire->collect(100, 10ms).size();
    ends = true;
    sender.join();
    came += arrived(2);
    const double elapsed = std::chrono::duration<double>(Clock::now() - start).count();
    const MeterStats stats = eswitch_->meter_stats(number);
    std::printf("FIGURE %zu of %llu packets passed in %.2f s at %u a second and a burst of %u\n", came,
                static_cast<unsigned long long>(stats.passed.packets + stats.dropped.packets), elapsed, rate, burst);
    EXPECT_EQ(stats.passed.packets, came);
    EXPECT_GT(stats.dropped.packets, came) << "too little was sent to say anything";
    EXPECT_LE(static_cast<double>(came), burst + rate * 1.004 * elapsed + 1);
    EXPECT_GE(static_cast<double>(came), rate * 0.5 * 4);
}

TEST_F(Metered, MegaflowsShareOneMeter) {
    eswitch_->set_meter(number, packets(1, 60));
    put({3, 1}, flow(1).meter(number).output(2));
    put({3, 2}, flow(3).meter(number).push(7).output(2));
    send(1, 100);
    send(3, 100, 100);
    const std::size_t came = arrived(2);
    EXPECT_GE(came, 60U);
    EXPECT_LE(came, 75U);
    EXPECT_EQ(eswitch_->meter_stats(number).passed.packets, came);
    EXPECT_EQ(metered(), 200U);
    EXPECT_EQ(eswitch_->meter_stats(number).passed.bytes, came * frame_size) << "without the tag that is pushed behind";
}

TEST_F(Metered, APacketMeetsSeveralMetersOneAfterTheOther) {
    eswitch_->set_meter(number, packets(1, 100));
    eswitch_->set_meter(number + 1, packets(1, 40));
    put({4, 1}, flow().meter(number).meter(number + 1).output(2));
    send(1, 200);
    const std::size_t came = arrived(2);
    EXPECT_GE(came, 40U);
    EXPECT_LE(came, 55U);
    const MeterStats first = eswitch_->meter_stats(number), second = eswitch_->meter_stats(number + 1);
    EXPECT_EQ(first.passed.packets + first.dropped.packets, 200U);
    EXPECT_EQ(second.passed.packets + second.dropped.packets, first.passed.packets) << "only what the first let pass";
    EXPECT_EQ(second.passed.packets, came);
}

TEST_F(Metered, ByBytesOfFramesAndNotOfWhatTheyCarry) {
    constexpr std::uint32_t burst = 100;   // kilobits: 12,500 bytes
    eswitch_->set_meter(number, {.rate = 1, .burst = burst});
    put({5, 1}, flow().meter(number).output(2));
    send(1, 400);
    const std::size_t came = arrived(2);
    constexpr std::size_t at_once = burst * 125 / frame_size;
    EXPECT_GE(came, at_once);
    EXPECT_LE(came, at_once + at_once / 200 + 20 + 2) << "the encoding's 0.4 %, some seconds' tokens, one more";
}

TEST_F(Metered, AMeterChangesBeneathItsMegaflowsAndCountsAnew) {
    eswitch_->set_meter(number, packets(1, 50));
    put({6, 1}, flow().meter(number).output(2));
    send(1, 100);
    EXPECT_GE(arrived(2), 50U);
    eswitch_->set_meter(number, packets(1, 80));
    EXPECT_EQ(metered(), 0U) << "statistics begin anew";
    EXPECT_TRUE(eswitch_->status({6, 1})->offloaded);
    send(1, 200);
    const std::size_t came = arrived(2);
    EXPECT_GE(came, 80U) << "and the bucket is full";
    EXPECT_LE(came, 95U);
    EXPECT_EQ(metered(), 200U);
    EXPECT_EQ(eswitch_->del({6, 1})->packets, 300U);
}

TEST_F(Metered, AMeterThatTheDeviceCannotDoTakesItsMegaflowsOutUntilItCan) {
    put({7, 2}, flow(3).output(2));   // not its megaflow
    EXPECT_TRUE(std::holds_alternative<Reject>(eswitch_->put({7, 1}, flow().meter(number).output(2))));
    eswitch_->set_meter(number, {.by_packets = true, .bands = 2, .rate = 1, .burst = 10});
    EXPECT_NE(why({7, 1}).find("several bands"), std::string::npos) << why({7, 1});
    eswitch_->set_meter(number, packets(1, 10));
    ASSERT_TRUE(eswitch_->status({7, 1}));
    EXPECT_TRUE(eswitch_->status({7, 1})->offloaded);
    send(1, 30);
    EXPECT_GE(arrived(2), 10U);
    eswitch_->set_meter(number, {.by_packets = true, .bands = 2, .rate = 1, .burst = 10});
    EXPECT_FALSE(eswitch_->status({7, 1})->offloaded);
    eswitch_->set_meter(number, packets(1, 10));
    EXPECT_TRUE(eswitch_->status({7, 1})->offloaded);
    eswitch_->remove_meter(number);
    EXPECT_FALSE(eswitch_->status({7, 1})->offloaded);
    EXPECT_NE(why({7, 1}).find("nobody has set number 5"), std::string::npos);
    EXPECT_TRUE(eswitch_->status({7, 2})->offloaded);
    EXPECT_EQ(eswitch_->del({7, 1})->packets, 30U);
}

TEST_F(Metered, MegaflowsOfOtherPathsShareOneMeterByBytes) {
    constexpr std::uint32_t burst = 100;   // kilobits: 12,500 bytes
    constexpr std::size_t at_once = burst * 125 / frame_size;
    eswitch_->set_meter(number, {.rate = 1, .burst = burst});
    put({10, 1}, flow(1).meter(number).output(2));
    put({10, 2}, flow(3).meter(number).push(7).output(2));
    constexpr std::uint16_t other_type = experimental_type + 1;
    put({10, 3}, MegaflowBuilder(1).eth_type(other_type).meter(number).output(2).output(3));
    send(1, 60);
    send(3, 40, 60);
    EXPECT_EQ(arrived(2), 100U) << "of both";
    send(1, 200, 100, other_type);
    const std::size_t came = arrived(3);
    EXPECT_EQ(arrived(2), came) << "a copy to each";
    EXPECT_GE(came + 100, at_once);
    EXPECT_LE(came + 100, at_once + at_once / 200 + 20 + 2);
    EXPECT_EQ(metered(), 300U);
    EXPECT_EQ(eswitch_->meter_stats(number).passed.packets, came + 100);
    EXPECT_EQ(eswitch_->meter_stats(number).passed.bytes, (came + 100) * frame_size)
        << "without the tag that is pushed behind";
    EXPECT_EQ(eswitch_->del({10, 2})->packets, 40U);
    send(1, 20, 300);
    EXPECT_EQ(metered(), 320U) << "a path that has gone is no other's loss";
}

/// How many frames have a header of this size in front, and are else as they were sent.
std::size_t encapsulated(const std::vector<FrameBytes>& frames, std::size_t header_size) {
    const FrameBytes model = frame(0);
    return static_cast<std::size_t>(std::ranges::count_if(frames, [&](const FrameBytes& bytes) {
        return bytes.size() == header_size + frame_size &&
               std::equal(model.begin(), model.begin() + 60, bytes.end() - static_cast<std::ptrdiff_t>(frame_size));
    }));
}

/// A tunnel's header, with the addresses outside that a wire of the test takes for its own.
test::HeaderBytes own_header(test::HeaderBytes header) {
    const FrameBytes ours = frame(0);
    std::copy_n(ours.begin(), 12, header.begin());
    return header;
}

/// A meter takes the length in front of the tunnel's push, and so do what it counts and the megaflow's own counter.
TEST_F(Metered, ByBytesInFrontOfATunnelWithoutItsHeader) {
    constexpr std::uint32_t burst = 100, uplink = 9;
    constexpr std::size_t at_once = burst * 125 / frame_size;
    const test::HeaderBytes vxlan = own_header(test::vxlan()), gre = own_header(test::gre(test::outer_ipv4(47)));
    eswitch_->set_meter(number, {.rate = 1, .burst = burst});
    put({12, 1}, flow(1).meter(number).tunnel(vxlan).output(uplink));
    put({12, 2}, flow(3).meter(number).push(7).tunnel(gre).output(uplink));
    send(3, 40);
    const auto with_tag = port(uplink).wire->collect(SIZE_MAX, 300ms);
    EXPECT_EQ(std::ranges::count(with_tag, gre.size() + 4 + frame_size, &FrameBytes::size), 40) << "the tag is inside";
    send(1, 400, 40);
    const auto frames = port(uplink).wire->collect(SIZE_MAX, 300ms);
    const std::size_t came = encapsulated(frames, vxlan.size());
    EXPECT_EQ(came, frames.size());
    EXPECT_GE(came + 40, at_once);
    EXPECT_LE(came + 40, at_once + at_once / 200 + 20 + 2);
    const MeterStats stats = eswitch_->meter_stats(number);
    EXPECT_EQ(stats.passed.packets, came + 40);
    EXPECT_EQ(stats.passed.bytes, (came + 40) * frame_size);
    EXPECT_EQ(stats.dropped.bytes, (400 - came) * frame_size);
    const auto first = eswitch_->del({12, 1}), second = eswitch_->del({12, 2});
    EXPECT_EQ(first->packets, 400U);
    EXPECT_EQ(first->bytes, 400 * frame_size);
    EXPECT_EQ(second->bytes, 40 * frame_size);
}

/// From the wire too, where a ConnectX-5 puts no header on; it has no meters by packets either.
TEST_F(Metered, SeveralInFrontOfATunnel) {
    constexpr std::uint32_t uplink = 9;
    const test::HeaderBytes header = own_header(test::vxlan());
    eswitch_->set_meter(number, packets(1, 100));
    eswitch_->set_meter(number + 1, packets(1, 40));
    put({13, 1}, flow(uplink).meter(number).meter(number + 1).tunnel(header).output(2));
    send(uplink, 200);
    const auto frames = port(2).wire->collect(SIZE_MAX, 300ms);
    const std::size_t came = encapsulated(frames, header.size());
    EXPECT_EQ(came, frames.size());
    EXPECT_GE(came, 40U);
    EXPECT_LE(came, 55U);
    const MeterStats first = eswitch_->meter_stats(number), second = eswitch_->meter_stats(number + 1);
    EXPECT_EQ(second.passed.packets, came);
    EXPECT_EQ(second.passed.bytes, came * frame_size);
    EXPECT_EQ(second.passed.packets + second.dropped.packets, first.passed.packets);
    EXPECT_EQ(eswitch_->del({13, 1})->bytes, 200 * frame_size);
}

TEST_F(Metered, AMeterByBytesChangesBeneathItsMegaflows) {
    constexpr std::uint32_t burst = 100;
    constexpr std::size_t at_once = burst * 125 / frame_size;
    eswitch_->set_meter(number, {.rate = 1, .burst = burst});
    put({11, 1}, flow().meter(number).output(2));
    send(1, 200);
    EXPECT_LE(arrived(2), at_once + at_once / 200 + 20 + 2);
    eswitch_->set_meter(number, {.rate = 800, .burst = burst});   // the burst in an eighth of a second
    EXPECT_EQ(metered(), 0U) << "statistics begin anew";
    EXPECT_TRUE(eswitch_->status({11, 1})->offloaded);
    std::this_thread::sleep_for(300ms);
    send(1, at_once);
    EXPECT_GE(arrived(2), at_once - at_once / 200 - 1) << "the bucket has filled up";
    ASSERT_TRUE(eswitch_->lower_meter(number, 0));
    send(1, 100, at_once);
    (void)arrived(2);
    std::this_thread::sleep_for(300ms);
    send(1, 100, at_once + 100);
    EXPECT_EQ(arrived(2), 0U) << "nothing comes into it";
    EXPECT_EQ(eswitch_->del({11, 1})->packets, 400U + at_once);
}

/// As ctrl/ does when software has let some pass.
TEST_F(Metered, ALoweredRateLeavesBucketAndStatisticsAlone) {
    eswitch_->set_meter(number, packets(1000, 100));
    put({8, 1}, flow().meter(number).output(2));
    send(1, 300);
    EXPECT_GE(arrived(2), 100U);
    ASSERT_TRUE(eswitch_->lower_meter(number, 0));
    const std::uint64_t before = metered();
    EXPECT_EQ(before, 300U);
    std::this_thread::sleep_for(300ms);
    send(1, 200, before);
    const std::size_t came = arrived(2);
    EXPECT_LE(came, 100U) << "no more than was in the bucket";
    std::this_thread::sleep_for(300ms);
    send(1, 100, before + 200);
    EXPECT_EQ(arrived(2), 0U) << "nothing comes into it";
    ASSERT_TRUE(eswitch_->lower_meter(number, 1000));
    std::this_thread::sleep_for(300ms);
    send(1, 100, before + 300);
    EXPECT_GE(arrived(2), 90U);
    EXPECT_EQ(metered(), 700U);
}

/// Whenever a meter changes, each packet is coloured by the one or the other.
TEST_F(Metered, NoPacketIsUnmeteredWhileTheMeterChanges) {
    eswitch_->set_meter(number, packets(1, 2));
    put({9, 1}, flow().meter(number).output(2));
    std::atomic<bool> ends = false;
    std::thread sender([&] {
        for (std::uint32_t n = 0; !ends; ++n) {
            port(1).wire->send(frame(n));
            std::this_thread::sleep_for(100us);
        }
    });
    const auto start = Clock::now();
    constexpr unsigned changes = 100;   // some fifty packets are sent for each
    for (unsigned i = 0; i < changes; ++i) {
        // Every tenth time by a new object and new rules.
        if (i % 10 == 9) eswitch_->set_meter(number, {.by_packets = true, .bands = 2, .rate = 1, .burst = 2});
        eswitch_->set_meter(number, packets(1 + i % 2, 2));
        std::this_thread::sleep_for(5ms);
    }
    ends = true;
    sender.join();
    const double elapsed = std::chrono::duration<double>(Clock::now() - start).count();
    const std::size_t came = arrived(2);
    std::printf("FIGURE %zu packets passed, %u changes in %.2f s\n", came, changes, elapsed);
    // A full bucket each time, and the rate. Stages in software let nothing pass here.
    EXPECT_LE(static_cast<double>(came), 2.0 * (changes + changes / 10 + 1) + 2 * elapsed + 2);
}

}  // namespace
}  // namespace ovsdr::dr
