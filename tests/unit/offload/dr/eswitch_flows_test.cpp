// Megaflows that are put, modified and tried again on the recording provider: what is asked of the device, in which
// order, and what is not.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <ctime>
#include <string_view>

#include "offload/dr/backlog.hpp"
#include "tests/unit/offload/dr/eswitch_fixture.hpp"
#include "tests/unit/offload/tunnel_headers.hpp"

namespace ovsdr::dr {
namespace {

class EswitchFlows : public EswitchTest {
protected:
    [[nodiscard]] bool failed(const PutOutcome& outcome) const { return std::holds_alternative<Error>(outcome); }
    [[nodiscard]] bool rejected(const PutOutcome& outcome) const { return std::holds_alternative<Reject>(outcome); }
    [[nodiscard]] bool offloaded(const Ufid& ufid) const { return eswitch_->explain(ufid)->offloaded; }

    /// Of all threads.
    static std::chrono::nanoseconds processor_time() {
        timespec now{};
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
        return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
    }
    static void expect_nothing_happens() {
        const auto before = processor_time();
        (void)FakeProvider::take_events();
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        EXPECT_LT(processor_time() - before, std::chrono::milliseconds(150)) << "somebody does not sleep";
        const auto events = FakeProvider::take_events();
        EXPECT_TRUE(events.empty()) << events.front();
    }
};

TEST_F(EswitchFlows, OneThatIsNotInTheDeviceIsLookedAtAgainWhenItIsPutAgain) {
    const ovsdr_megaflow unknown = MegaflowBuilder().ipv4().output(99), known = MegaflowBuilder().ipv4().output(2);
    EXPECT_TRUE(rejected(eswitch_->put({1, 1}, unknown)));
    EXPECT_TRUE(rejected(eswitch_->put({1, 1}, unknown)));
    FakeProvider::set_room(0);
    EXPECT_TRUE(failed(eswitch_->put({1, 2}, known)));
    EXPECT_TRUE(failed(eswitch_->put({1, 2}, known)));
    FakeProvider::set_room(UINT_MAX);
    EXPECT_TRUE(installed(eswitch_->put({1, 2}, known)));
    EXPECT_EQ(megaflow_rules().size(), 1U);
}

/// Only what goes or is replaced had packets on their way.
TEST_F(EswitchFlows, ANewOneWaitsForNoPacketWhateverBecomesOfIt) {
    const unsigned syncs = FakeProvider::syncs();
    EXPECT_TRUE(installed(eswitch_->put({1, 1}, MegaflowBuilder().ipv4().output(2))));
    EXPECT_TRUE(rejected(eswitch_->put({1, 2}, MegaflowBuilder().ipv4().output(99))));
    FakeProvider::set_room(0);
    EXPECT_TRUE(failed(eswitch_->put({1, 3}, MegaflowBuilder().ipv4().output(3))));
    EXPECT_EQ(FakeProvider::syncs(), syncs);
    FakeProvider::set_room(UINT_MAX);
}

TEST_F(EswitchFlows, PacketsLeaveTheOldTableBeforeItGoesWithItsRule) {
    ASSERT_TRUE(installed(eswitch_->put({1, 1}, MegaflowBuilder().ipv4().recirc(7))));
    (void)FakeProvider::take_events();
    ASSERT_TRUE(installed(eswitch_->put({1, 1}, MegaflowBuilder().ipv4().recirc(8))));
    const auto events = FakeProvider::take_events();
    const auto next = [&](auto from, std::string_view start) {
        return std::find_if(from, events.end(), [=](const std::string& event) { return event.starts_with(start); });
    };
    const auto in = next(events.begin(), "create FDB level 1 "), out = next(in, "destroy FDB level 1 ");
    const auto gone = next(out, "destroy FDB level 9 ");
    ASSERT_NE(gone, events.end());
    EXPECT_GE(std::count(in, out, "write FDB"), 1) << "the new rule is there first";
    EXPECT_EQ(std::count(out, gone, "drain FDB"), 1);
}

TEST_F(EswitchFlows, OneThatHasGoneInAfterAWhileIsLeftAlone) {
    FakeProvider::set_room(0);
    ASSERT_TRUE(failed(eswitch_->put({1, 1}, MegaflowBuilder().ipv4().output(2))));
    FakeProvider::set_room(UINT_MAX);
    ASSERT_TRUE(becomes([&] { return offloaded({1, 1}); }));
    expect_nothing_happens();
}

/// One has an array of destinations for itself, and is tried again and again.
TEST_F(EswitchFlows, OneThatTheDeviceNeverTakesKeepsNoNewOneWaiting) {
    FakeProvider::refuse("dest_array", ENOSPC);
    ASSERT_TRUE(failed(eswitch_->put({1, 1}, MegaflowBuilder().ipv4().output(2).output(3))));
    FakeProvider::fail_call(0, 0);   // counts from here
    constexpr unsigned most_calls_of_one = 3;
    ASSERT_TRUE(becomes([] { return FakeProvider::calls() > most_calls_of_one * Backlog::full_after; }));
    for (std::uint64_t i = 2; i < 5; ++i) {
        EXPECT_TRUE(installed(eswitch_->put({1, i}, MegaflowBuilder().ipv6().output(2)))) << i;
    }
    FakeProvider::refuse("dest_array", 0);
    EXPECT_TRUE(becomes([&] { return offloaded({1, 1}); }));
}

/// The line is tried from one thread while another takes out of it.
TEST_F(EswitchFlows, GoWhileTheyAreTriedAgain) {
    constexpr std::uint64_t length = 200;
    for (unsigned round = 0; round < 20; ++round) {
        FakeProvider::set_room(0);
        for (std::uint64_t i = 0; i < length; ++i) (void)eswitch_->put({2, i}, MegaflowBuilder().ipv4().output(2));
        FakeProvider::set_room(UINT_MAX);
        ASSERT_TRUE(becomes([&] { return eswitch_->totals().offloaded != 0; }));
        for (std::uint64_t i = 0; i < length; ++i) (void)eswitch_->del(Ufid{2, i});
        EXPECT_EQ(megaflow_rules().size(), 0U);
        EXPECT_EQ(eswitch_->totals().failed, 0U);
    }
}

TEST_F(EswitchFlows, OneThatWaitsForATableIsNotLookedAtWhileNothingChanges) {
    ASSERT_TRUE(installed(eswitch_->put({1, 1}, MegaflowBuilder().ipv4().recirc(8))));   // tables have changed before
    ASSERT_TRUE(rejected(eswitch_->put({1, 2}, MegaflowBuilder().ipv4().behind(7).output(2))));
    expect_nothing_happens();
    ASSERT_TRUE(installed(eswitch_->put({1, 3}, MegaflowBuilder().ipv4().recirc(7))));
    EXPECT_TRUE(becomes([&] { return offloaded({1, 2}); }));
}

TEST_F(EswitchFlows, AreKnownUntilTheyAreDeleted) {
    EXPECT_FALSE(eswitch_->knows(ufid_));
    ASSERT_TRUE(installed(eswitch_->put(ufid_, MegaflowBuilder().ipv4().output(2))));
    EXPECT_TRUE(eswitch_->knows(ufid_));
    EXPECT_FALSE(eswitch_->knows({ufid_[0], ufid_[1] + 1}));
    EXPECT_TRUE(rejected(eswitch_->put({1, 1}, MegaflowBuilder().ipv4().output(99))));
    EXPECT_TRUE(eswitch_->knows({1, 1})) << "though it is in software";
    (void)eswitch_->del(ufid_);
    EXPECT_FALSE(eswitch_->knows(ufid_));
}

TEST_F(EswitchFlows, ACountIsReadWhenItIsAskedFor) {
    ASSERT_TRUE(installed(eswitch_->put(ufid_, MegaflowBuilder().ipv4().output(2))));
    constexpr unsigned times = 40;
    unsigned read = 0;
    for (unsigned i = 0; i < times; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(3));
        const unsigned queries = FakeProvider::queries();
        (void)eswitch_->status(ufid_);
        read += FakeProvider::queries() != queries;
    }
    EXPECT_GT(read, times / 2) << "the poller asks twice a second";
}

TEST_F(EswitchFlows, ADeviceWithoutMegaflowsIsAskedForNoCounts) {
    const auto asked = [] {
        const unsigned before = FakeProvider::queries();
        std::this_thread::sleep_for(std::chrono::milliseconds(1200));   // twice a second, where there are some
        return FakeProvider::queries() != before;
    };
    ASSERT_TRUE(installed(eswitch_->put(ufid_, MegaflowBuilder().ipv4().output(2))));
    ASSERT_TRUE(installed(eswitch_->put(ufid_, MegaflowBuilder().ipv4().output(3))));
    EXPECT_TRUE(becomes([] { return FakeProvider::queries() > 2; }));
    (void)eswitch_->del(ufid_);
    EXPECT_FALSE(asked() && asked()) << "a query may have been under way";
}

TEST_F(EswitchFlows, AModificationKeepsPacketsBytesAndTheTimeOfTheLast) {
    ASSERT_TRUE(eswitch_->attach_port({OdpPort{9}, VportId{0xFFFF}, "uplink", &queue_pair_, 0x109}));
    ASSERT_TRUE(installed(eswitch_->put(ufid_, MegaflowBuilder(9).ipv4().vlan(5).output(2))));
    FakeProvider::count(only_counter(), 3, 300);
    ASSERT_TRUE(becomes([&] { return eswitch_->status(ufid_)->stats.used_ms != 0; }));
    const FlowStats before = eswitch_->status(ufid_)->stats;
    // It loses a tag before it is counted, and needs a counter of its own.
    ASSERT_TRUE(installed(eswitch_->put(ufid_, MegaflowBuilder(9).ipv4().vlan(5).pop().output(2))));
    const FlowStats after = eswitch_->status(ufid_)->stats;
    EXPECT_EQ(after.packets, 3U);
    EXPECT_EQ(after.bytes, 300U);
    EXPECT_EQ(after.used_ms, before.used_ms);
    FakeProvider::count(only_counter(), 2, 200);
    const auto last = eswitch_->del(ufid_);
    EXPECT_EQ(last->packets, 5U);
    EXPECT_EQ(last->bytes, 300U + 200U + 2 * 4U);
    EXPECT_GE(last->used_ms, before.used_ms);
    eswitch_->detach_port(VportId{0xFFFF});
}

/// A batch in which one megaflow's rule is replaced and another one's is new: the device fails to say that the new ones
/// are in its memory, which only the first depends on.
TEST_F(EswitchFlows, ARuleThatCannotBeReplacedIsNoTroubleOfANewOne) {
    ASSERT_TRUE(eswitch_->attach_port({OdpPort{9}, VportId{0xFFFF}, "uplink", &queue_pair_, 0x109}));
    eswitch_->choose({.exact_tunnel_source_port = true});
    test::HeaderBytes gre = test::gre(test::outer_ipv4(47)), vxlan = test::vxlan();
    constexpr std::uint64_t each = 40;   // of one shard there are some of both
    for (std::uint64_t i = 0; i < each; ++i) {
        const auto type = static_cast<std::uint16_t>(0x9000 + i);
        ASSERT_TRUE(installed(eswitch_->put({1, i}, MegaflowBuilder().eth_type(type).tunnel(gre).output(9))));
        ASSERT_TRUE(rejected(eswitch_->put({2, i}, MegaflowBuilder(2).eth_type(type).tunnel(vxlan).output(9))));
    }
    FakeProvider::refuse("mlx5dv_dr_domain_sync", EIO);
    eswitch_->choose({});
    FakeProvider::refuse("mlx5dv_dr_domain_sync", 0);
    EXPECT_TRUE(becomes([&] { return eswitch_->totals().offloaded == 2 * each; }));
    std::uint64_t failed_once = 0;
    for (const auto& row : eswitch_->reasons()) failed_once += row.reason == "device error" ? row.total : 0;
    EXPECT_EQ(failed_once, each) << "those that were replaced";
    eswitch_->flush(std::nullopt);
    eswitch_->detach_port(VportId{0xFFFF});
}

/// Counters of their own, of which the device is asked one by one, some of them by several megaflows at once.
TEST_F(EswitchFlows, EachOfABatchGetsItsCountWhereverThatLies) {
    for (const std::uint8_t bulks : {0x00, 0x01}) {   // one counter, or 128
        close();
        FakeProvider::set_counter_bulks(bulks);
        open();
        constexpr std::uint64_t some = 300;
        std::vector<Eswitch::Deletion> deletions;
        for (std::uint64_t i = 0; i < some; ++i) {
            const auto type = static_cast<std::uint16_t>(0x9000 + i);
            ASSERT_TRUE(installed(eswitch_->put({1, i}, MegaflowBuilder().eth_type(type).output(2))));
            const std::string text = eswitch_->explain({1, i})->text;
            const auto counter = static_cast<std::uint32_t>(std::stoul(text.substr(text.find("count#") + 6)));
            FakeProvider::count(counter, i + 1, 60);
        }
        for (std::uint64_t i = 0; i < some; ++i) deletions.push_back({{1, i * 7 % some}});
        eswitch_->del(deletions);
        for (const Eswitch::Deletion& deletion : deletions) ASSERT_EQ(deletion.last->packets, deletion.ufid[1] + 1);
    }
}

TEST_F(EswitchFlows, AFlushTakesThoseOfItsPortWhereverTheyAre) {
    ASSERT_TRUE(installed(eswitch_->put({1, 1}, MegaflowBuilder(1).ipv4().output(2))));
    ASSERT_TRUE(installed(eswitch_->put({1, 2}, MegaflowBuilder(2).ipv4().output(1))));
    ASSERT_TRUE(rejected(eswitch_->put({1, 3}, MegaflowBuilder(1).ipv4().behind(7).output(2))));
    FakeProvider::set_room(0);
    ASSERT_TRUE(failed(eswitch_->put({1, 4}, MegaflowBuilder(1).ipv6().output(2))));
    eswitch_->flush(OdpPort{1});
    EXPECT_TRUE(eswitch_->knows({1, 2}));
    for (const std::uint64_t number : {1, 3, 4}) EXPECT_FALSE(eswitch_->knows({1, number})) << number;
    EXPECT_EQ(eswitch_->totals().failed + eswitch_->totals().rejected, 0U);
    FakeProvider::set_room(UINT_MAX);
    ASSERT_TRUE(installed(eswitch_->put({1, 5}, MegaflowBuilder(2).ipv4().recirc(7))));
    expect_nothing_happens();
    EXPECT_EQ(megaflow_rules().size(), 2U);
    eswitch_->flush(std::nullopt);
    EXPECT_TRUE(megaflow_rules().empty());
    EXPECT_FALSE(eswitch_->knows({1, 2}));
}

}  // namespace
}  // namespace ovsdr::dr
