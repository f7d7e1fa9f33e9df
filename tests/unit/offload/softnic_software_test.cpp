// Copies for software on the soft NIC, with real packets: each comes up once, with its tag and as it was at its place;
// what is forwarded arrives once.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "offload/dr/device/leak.hpp"
#include "tests/unit/offload/softnic_fixture.hpp"
#include "tests/unit/offload/software_actions.hpp"

namespace ovsdr::dr {
namespace {

using namespace std::string_view_literals;
using test::MegaflowBuilder;
using slowpath::PortQueue;
using test::SoftNic;
using namespace std::chrono_literals;
using namespace test::frames;

using test::bytes, test::tap;

class Copied : public SoftNic {
protected:
    void SetUp() override {
        SoftNic::SetUp();
        if (IsSkipped()) return;
        const auto ib_port = find_ib_port(eswitch_->context(), VportId{0});
        ASSERT_TRUE(ib_port) << ib_port.error().what;
        auto queue = PortQueue::create(
            {.context = eswitch_->context(), .pd = eswitch_->pd(), .ib_port = ib_port->number});
        ASSERT_TRUE(queue) << queue.error().what;
        queue_ = std::move(*queue);
        const auto led = eswitch_->lead_copies(CopyKind::other, queue_->qp());
        ASSERT_TRUE(led) << led.error().what;
        copies_before_ = eswitch_->totals().copies;
    }
    void TearDown() override {
        if (queue_ != nullptr) eswitch_->stop_copies(CopyKind::other);
        queue_.reset();
        SoftNic::TearDown();
        EXPECT_EQ(leaked_objects(), 0U);
    }
    static MegaflowBuilder flow(std::uint32_t in_port = 1) {
        return MegaflowBuilder(in_port).eth_type(experimental_type);
    }
    struct Copy {
        FrameBytes bytes;
        std::uint32_t tag;
    };
    /// All that have come up.
    std::vector<Copy> copies() {
        std::vector<Copy> copies;
        const std::uint64_t led = eswitch_->totals().copies - copies_before_;
        const auto end = std::chrono::steady_clock::now() + 5s;
        while (received_ < led && std::chrono::steady_clock::now() < end) {
            for (const slowpath::Frame& frame : queue_->receive(0)) {
                copies.push_back({FrameBytes(frame.data, frame.data + frame.size), frame.tag});
                ++received_;
            }
        }
        EXPECT_TRUE(queue_->receive(0).empty());
        return copies;
    }
    static std::map<FrameBytes, unsigned> counted(const std::vector<FrameBytes>& frames) {
        std::map<FrameBytes, unsigned> times;
        for (const FrameBytes& each : frames) ++times[each];
        return times;
    }

    std::unique_ptr<PortQueue> queue_;
    std::uint64_t copies_before_ = 0, received_ = 0;
};

TEST_F(Copied, EachPacketIsForwardedOnceAndComesUpOnce) {
    put({1, 1}, flow().software(bytes).output(2).output(tap));
    const auto arrived = exchange(200, {2});
    EXPECT_EQ(arrived[0].size(), 200U);
    EXPECT_EQ(counted(arrived[0]).size(), 200U) << "none twice";
    std::map<std::uint32_t, std::vector<FrameBytes>> by_tag;
    for (Copy& copy : copies()) by_tag[copy.tag].push_back(std::move(copy.bytes));
    ASSERT_EQ(by_tag.size(), 2U);
    bool to_tap = false, of_bytes = false;
    for (const auto& [tag, frames] : by_tag) {
        EXPECT_EQ(counted(frames), counted(arrived[0]));
        const auto work = eswitch_->work_of(tag);
        ASSERT_NE(work, nullptr);
        EXPECT_EQ(work->in_port.value, 1U);
        (std::holds_alternative<SoftwareWork::Ports>(work->work) ? to_tap : of_bytes) = true;
    }
    EXPECT_TRUE(to_tap && of_bytes);
    EXPECT_TRUE(went_up(port(1), 1).empty()) << "no copy is a miss";
    EXPECT_EQ(eswitch_->del({1, 1})->packets, 200U);
}

TEST_F(Copied, ACopyIsOfThePacketAsItIsAtItsPlace) {
    put({2, 1}, flow().output(tap).push(7).output(2));
    const auto arrived = exchange(50, {2});
    ASSERT_EQ(arrived[0].size(), 50U);
    std::vector<FrameBytes> tagged = arrived[0], bare;
    for (const Copy& copy : copies()) bare.push_back(copy.bytes);
    ASSERT_EQ(bare.size(), 50U);
    for (FrameBytes& each : tagged) each.erase(each.begin() + 12, each.begin() + 16);
    EXPECT_EQ(counted(bare), counted(tagged)) << "without the tag that was pushed later";
    put({2, 1}, flow().push(7).output(tap).output(2));
    const auto again = exchange(50, {2});
    std::vector<FrameBytes> copied;
    for (const Copy& copy : copies()) copied.push_back(copy.bytes);
    EXPECT_EQ(counted(copied), counted(again[0])) << "with it";
}

TEST_F(Copied, OneOfSeveralComesUpAndAllAreForwarded) {
    if (profile() == "connectx-5") {
        const PutOutcome outcome = eswitch_->put({3, 1}, flow().software(bytes, 2).output(2));
        ASSERT_TRUE(std::holds_alternative<Reject>(outcome));
        EXPECT_EQ(text_of(std::get<Reject>(outcome)),
                  "device limit: userspace of one in several packets (the device has no sampler)");
        return;
    }
    constexpr std::uint32_t one_of = 2, rounds = 12, length = 200;
    put({3, 1}, flow().software(bytes, one_of).output(2));
    std::size_t came = 0;
    for (std::uint32_t round = 0; round < rounds; ++round) {
        const auto arrived = exchange(length, {2});
        ASSERT_EQ(counted(arrived[0]).size(), length) << "each, once";
        std::vector<FrameBytes> sampled;
        for (const Copy& copy : copies()) {
            sampled.push_back(copy.bytes);
            ASSERT_NE(eswitch_->work_of(copy.tag), nullptr);
        }
        for (const auto& [frame, times] : counted(sampled)) EXPECT_EQ(times, 1U);
        came += sampled.size();
    }
    const double sent = rounds * length, expected = sent / one_of;
    const double deviation = std::sqrt(sent / one_of * (1 - 1.0 / one_of));
    std::printf("FIGURE %zu of %.0f packets came up at 1 of %u, %.2f standard deviations off\n", came, sent, one_of,
                (static_cast<double>(came) - expected) / deviation);
    EXPECT_GE(came, 1000U);
    EXPECT_LE(std::abs(static_cast<double>(came) - expected), 4 * deviation);
    EXPECT_EQ(eswitch_->totals().copies - copies_before_, came);
    EXPECT_EQ(eswitch_->del({3, 1})->packets, sent);
}

/// The mark of a sampled packet is overwritten where it misses later.
/// A log: all packets arrive, and those that the meter lets pass come up, with nothing of it left for software to do.
TEST_F(Copied, AMeterDropsCopiesAndEachIsCountedOnce) {
    constexpr std::uint32_t number = 5, length = 200, burst = 20;
    const auto work = "\x07\x05\x0c\x01"sv;
    eswitch_->set_meter(number, {.by_packets = true, .rate = 1, .burst = burst});
    put({6, 1}, flow().software(work).behind_meter(number, 2).output(2));
    const auto start = std::chrono::steady_clock::now();
    EXPECT_EQ(counted(exchange(length, {2})[0]).size(), length);
    const auto seconds = std::chrono::ceil<std::chrono::seconds>(std::chrono::steady_clock::now() - start).count();
    const auto came = copies();
    const bool metered_there = profile() != "connectx-5";
    for (const Copy& copy : came) {
        ASSERT_NE(eswitch_->work_of(copy.tag), nullptr);
        const auto& actions = std::get<SoftwareWork::Actions>(eswitch_->work_of(copy.tag)->work);
        EXPECT_EQ(actions.size(), metered_there ? 2U : work.size());
    }
    const MeterStats stats = eswitch_->meter_stats(number);
    if (metered_there) {
        EXPECT_GE(came.size(), burst);
        EXPECT_LE(came.size(), burst + static_cast<std::size_t>(seconds) + 1);
        EXPECT_EQ(stats.passed.packets, came.size());
        EXPECT_EQ(stats.dropped.packets, length - came.size());
        EXPECT_EQ(stats.passed.bytes + stats.dropped.bytes, length * frame_size);
    } else {
        EXPECT_EQ(came.size(), length) << "software meters them";
        EXPECT_EQ(stats.passed.packets + stats.dropped.packets, 0U);
    }
    EXPECT_EQ(eswitch_->del({6, 1})->packets, length);
    eswitch_->remove_meter(number);
}

TEST_F(Copied, APacketThatMissesBehindASamplerComesUpAsThatToo) {
    if (profile() == "connectx-5") GTEST_SKIP() << "a device of this profile has no sampler";
    put({4, 1}, flow().software(bytes, 3).recirc(7));
    constexpr std::uint32_t length = 60;
    for (std::uint32_t n = 0; n < length; ++n) port(1).wire->send(frame(n));
    const auto missed = went_up(port(1), length);
    ASSERT_EQ(missed.size(), length);
    for (const auto& [frame, tag] : missed) {
        const auto table = eswitch_->table_of(tag);
        ASSERT_TRUE(table);
        EXPECT_EQ(table->recirc_id, 7U);
    }
    for (const Copy& copy : copies()) EXPECT_NE(eswitch_->work_of(copy.tag), nullptr);
    EXPECT_GE(received_, 1U);
}

/// The device has room for three (softnic_fixture.hpp).
TEST_F(Copied, WhenSamplersAreUsedUpAMegaflowStaysInSoftwareUntilThereIsRoom) {
    if (profile() == "connectx-5") GTEST_SKIP() << "a device of this profile has no sampler";
    const std::uint16_t sources[] = {1, 2, 3, 4};
    for (const std::uint16_t source : sources) {
        const auto megaflow =
            MegaflowBuilder(1).ipv4().proto(17).ports(source, 7).software(bytes, 1U + source).output(2);
        const PutOutcome outcome = eswitch_->put({6, source}, megaflow);
        const auto* error = std::get_if<Error>(&outcome);
        ASSERT_EQ(error != nullptr, source == 4);
        if (error != nullptr) {
            EXPECT_EQ(error->what, "mlx5dv_dr_action_create_flow_sampler: Cannot allocate memory");
        }
    }
    (void)eswitch_->del({6, 1});
    const auto end = std::chrono::steady_clock::now() + 10s;
    while (!eswitch_->explain({6, 4})->offloaded && std::chrono::steady_clock::now() < end) {
        std::this_thread::sleep_for(1ms);
    }
    EXPECT_TRUE(eswitch_->explain({6, 4})->offloaded);
}

/// Copies that a queue has no room for are lost, and counted: nothing else is.
TEST_F(Copied, WhatTheQueueHasNoRoomForIsCountedAndNothingElseIsLost) {
    put({5, 1}, flow().software(bytes).output(2));
    constexpr std::uint32_t length = 1500;   // the queue holds 1,024
    for (std::uint32_t sent = 0; sent < length; sent += 500) {
        ASSERT_EQ(exchange(500, {2})[0].size(), 500U);
    }
    EXPECT_EQ(eswitch_->totals().copies - copies_before_, length);
    std::size_t received = 0;
    for (auto batch = queue_->receive(0); !batch.empty(); batch = queue_->receive(0)) received += batch.size();
    EXPECT_GE(received, 1000U);
    EXPECT_LT(received, length);
}

}  // namespace
}  // namespace ovsdr::dr
