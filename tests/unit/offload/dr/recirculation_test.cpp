// Tables behind recirculations on the recording provider: when they are made, at which level, and when they go.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <future>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "offload/dr/flow_map.hpp"
#include "tests/unit/offload/dr/eswitch_fixture.hpp"

namespace ovsdr::dr {
namespace {

class Recirculation : public EswitchTest {};

TEST_F(Recirculation, InstallsBehindARecirculationWhatLeadsThereFirst) {
    ASSERT_TRUE(installed(eswitch_->put({1, 1}, MegaflowBuilder().ipv4().recirc(7))));
    ASSERT_TRUE(installed(eswitch_->put({1, 2}, MegaflowBuilder().ipv4().behind(7).recirc(8))));
    ASSERT_TRUE(installed(eswitch_->put({1, 3}, MegaflowBuilder().ipv4().behind(8).output(2))));
    EXPECT_EQ(rules_in("FDB level 1", "dest_table 9"), 1U);
    EXPECT_EQ(rules_in("FDB level 9", "dest_table 17"), 1U);
    EXPECT_EQ(rules_in("FDB level 17", "dest_vport 2"), 1U);
    // What misses behind a recirculation goes up as well.
    EXPECT_EQ(rules_in("FDB level 9", "dest_table 60"), 1U);
    EXPECT_EQ(rules_in("FDB level 17", "dest_table 60"), 1U);
}

TEST_F(Recirculation, AMegaflowBehindARecirculationWaitsForOneThatLeadsThere) {
    EXPECT_TRUE(std::holds_alternative<Reject>(eswitch_->put({1, 2}, MegaflowBuilder().ipv4().behind(7).output(2))));
    EXPECT_EQ(eswitch_->explain({1, 2})->text, "recirculation: recirc_id=0x7 (no megaflow in the NIC leads there)");
    ASSERT_TRUE(installed(eswitch_->put({1, 1}, MegaflowBuilder().ipv4().recirc(7))));
    EXPECT_TRUE(becomes([&] { return rules_in("FDB level 9", "dest_vport 2") == 1; }));
    EXPECT_TRUE(eswitch_->explain({1, 2})->offloaded);
}

/// A port lets all in, in one round: who is looked at before the parent does not find its table yet.
TEST_F(Recirculation, OnesThatAreLookedAtJustBeforeTheirTableComesAreLookedAtAgain) {
    constexpr std::size_t many_shards = 4096, length = 40;   // a multiple of how many there are
    std::vector<Ufid> in_one_shard;
    for (std::uint64_t i = 0; in_one_shard.size() <= length; ++i) {
        if (UfidHash{}({7, i}) % many_shards == 0) in_one_shard.push_back({7, i});
    }
    const Ufid parent = in_one_shard.back();
    in_one_shard.pop_back();
    for (std::uint16_t i = 0; i < length; ++i) {
        const auto child = MegaflowBuilder(1).ipv4().proto(17).ports(1, i).behind(7).output(4);
        EXPECT_FALSE(installed(eswitch_->put(in_one_shard[i], child)));
    }
    EXPECT_FALSE(installed(eswitch_->put(parent, MegaflowBuilder(1).ipv4().output(4).push(5).recirc(7))));
    ASSERT_TRUE(attach(4));
    const auto waits = [&] {
        return std::ranges::count_if(in_one_shard,
                                     [&](const Ufid& ufid) { return !eswitch_->explain(ufid)->offloaded; });
    };
    EXPECT_TRUE(becomes([&] { return waits() == 0; })) << waits();
    eswitch_->flush(std::nullopt);
    eswitch_->detach_port(VportId{4});
}

TEST_F(Recirculation, ATableGoesWithTheLastMegaflowThatNeedsIt) {
    const unsigned tables = FakeProvider::alive("table"), rules = static_cast<unsigned>(FakeProvider::rules().size());
    ASSERT_TRUE(installed(eswitch_->put({1, 1}, MegaflowBuilder().ipv4().recirc(7))));
    ASSERT_TRUE(installed(eswitch_->put({1, 2}, MegaflowBuilder(2).ipv4().recirc(7))));
    ASSERT_TRUE(installed(eswitch_->put({1, 3}, MegaflowBuilder().ipv4().behind(7).output(2))));
    EXPECT_EQ(FakeProvider::alive("table"), tables + 1) << "two megaflows lead to one table";
    (void)eswitch_->del(Ufid{1, 1});
    (void)eswitch_->del(Ufid{1, 2});
    EXPECT_EQ(FakeProvider::alive("table"), tables + 1) << "a megaflow lies there";
    (void)eswitch_->del(Ufid{1, 3});
    EXPECT_EQ(FakeProvider::alive("table"), tables);
    EXPECT_EQ(FakeProvider::rules().size(), rules);
}

TEST_F(Recirculation, AllThatLeadsToATableIsOneActionOfTheDevice) {
    const auto actions = [] { return FakeProvider::alive("action") - FakeProvider::counting_actions(); };
    ASSERT_TRUE(installed(eswitch_->put({1, 1}, MegaflowBuilder().ipv4().recirc(7))));
    const unsigned before = actions();
    const auto other = MegaflowBuilder(2).ipv4().set(OVSDR_HEADER_IP_TTL, {63}).recirc(7);
    ASSERT_TRUE(installed(eswitch_->put({1, 2}, other)));
    EXPECT_EQ(actions(), before + 1) << "what sets the TTL";
}

TEST_F(Recirculation, AnArrayOfPortsIsOneActionFromWhicheverVportAndTable) {
    const auto actions = [] { return FakeProvider::alive("action") - FakeProvider::counting_actions(); };
    ASSERT_TRUE(attach(4));
    ASSERT_TRUE(installed(eswitch_->put({1, 1}, MegaflowBuilder().ipv4().recirc(7))));
    ASSERT_TRUE(installed(eswitch_->put({1, 2}, MegaflowBuilder().ipv4().behind(7).output(3).output(4))));
    const unsigned before = actions();
    ASSERT_TRUE(installed(eswitch_->put({1, 3}, MegaflowBuilder(2).ipv4().output(3).output(4))));
    EXPECT_EQ(actions(), before);
    ASSERT_TRUE(installed(eswitch_->put({1, 4}, MegaflowBuilder(1).ipv6().output(3).output(4))));
    EXPECT_EQ(actions(), before);
    eswitch_->flush(std::nullopt);
    eswitch_->detach_port(VportId{4});
}

TEST_F(Recirculation, ARecirculationThatGoesBackWaitsUntilItsTableHasGone) {
    ASSERT_TRUE(installed(eswitch_->put({1, 1}, MegaflowBuilder().ipv4().recirc(7))));
    ASSERT_TRUE(installed(eswitch_->put({1, 2}, MegaflowBuilder().ipv4().behind(7).recirc(8))));
    EXPECT_TRUE(std::holds_alternative<Reject>(eswitch_->put({1, 3}, MegaflowBuilder().ipv4().behind(8).recirc(7))));
    EXPECT_EQ(eswitch_->explain({1, 3})->text, "recirculation: recirc=0x7 (its table lies before this one)");
    ASSERT_TRUE(installed(eswitch_->put({1, 4}, MegaflowBuilder(2).ipv4().recirc(8))));
    (void)eswitch_->del(Ufid{1, 1});
    (void)eswitch_->del(Ufid{1, 2});
    EXPECT_TRUE(becomes([&] { return rules_in("FDB level 17", "dest_table 25") == 1; })) << "8 lies before 7 now";
}

TEST_F(Recirculation, RecirculatesSixTimesInARowAndNoMore) {
    for (std::uint32_t id = 1; id <= 6; ++id) {
        ASSERT_TRUE(installed(eswitch_->put({1, id}, MegaflowBuilder().ipv4().behind(id - 1).recirc(id))));
    }
    EXPECT_TRUE(std::holds_alternative<Reject>(eswitch_->put({1, 7}, MegaflowBuilder().ipv4().behind(6).recirc(7))));
    EXPECT_EQ(eswitch_->explain({1, 7})->text, "recirculation: recirc=0x7 (too many of them in a row)");
}

TEST_F(Recirculation, KnowsWhichTableAPacketMissedIn) {
    ASSERT_TRUE(installed(eswitch_->put({1, 1}, MegaflowBuilder().ipv4().recirc(7))));
    EXPECT_EQ(eswitch_->table_of(1), std::optional(TableKey{0}));
    EXPECT_EQ(eswitch_->table_of(2), std::optional(TableKey{7}));
    EXPECT_EQ(eswitch_->table_of(3), std::nullopt);
    (void)eswitch_->del(Ufid{1, 1});
    EXPECT_EQ(eswitch_->table_of(2), std::optional(TableKey{7})) << "its packets may be under way";
    ASSERT_TRUE(installed(eswitch_->put({1, 1}, MegaflowBuilder().ipv4().recirc(9))));
    EXPECT_EQ(eswitch_->table_of(3), std::optional(TableKey{9}));
}

TEST_F(Recirculation, ADeviceThatRefusesAParentIsLeftAloneAlthoughAChildWaits) {
    FakeProvider::refuse_arrays(true);   // the parent's table is made each time, and goes again
    const auto parent = MegaflowBuilder().ipv4().output(2).recirc(7);
    const auto child = MegaflowBuilder().ipv4().behind(7).output(2).output(3);
    EXPECT_TRUE(std::holds_alternative<Reject>(eswitch_->put({1, 2}, child)));
    EXPECT_TRUE(std::holds_alternative<Error>(eswitch_->put({1, 1}, parent)));
    (void)FakeProvider::take_events();
    std::ptrdiff_t made = 0;
    const auto is_made = [&] {
        made += std::ranges::count_if(FakeProvider::take_events(), [](const std::string& event) {
            return event.starts_with("create FDB level 9 ");
        });
        return made > 0;
    };
    EXPECT_TRUE(becomes(is_made)) << "it is tried again";
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    (void)is_made();
    EXPECT_LT(made, 200) << "and the device gets some rest";
    FakeProvider::refuse_arrays(false);
    EXPECT_TRUE(becomes([&] { return eswitch_->explain({1, 1})->offloaded && eswitch_->explain({1, 2})->offloaded; }));
}

TEST_F(Recirculation, AMegaflowThatWaitedForATableAndIsRefusedByTheDeviceIsTriedAgain) {
    EXPECT_TRUE(std::holds_alternative<Reject>(eswitch_->put({1, 2}, MegaflowBuilder().ipv4().behind(7).output(2))));
    FakeProvider::set_room(0);
    EXPECT_TRUE(std::holds_alternative<Error>(eswitch_->put({1, 2}, MegaflowBuilder().ipv4().output(2))));
    FakeProvider::set_room(UINT_MAX);
    EXPECT_TRUE(becomes([&] { return eswitch_->explain({1, 2})->offloaded; }));
}

TEST_F(Recirculation, ATableThatTheDeviceDidNotMakeWholeNeverWas) {
    FakeProvider::set_room(1);   // for what names it, not for its miss rule
    EXPECT_TRUE(std::holds_alternative<Error>(eswitch_->put({1, 1}, MegaflowBuilder().ipv4().recirc(7))));
    (void)eswitch_->del(Ufid{1, 1});
    EXPECT_EQ(eswitch_->table_of(2), std::nullopt);
    FakeProvider::set_room(UINT_MAX);
}

TEST_F(Recirculation, WhereNoTwoRulesAreEqualPacketsLeaveTheOldTableBeforeItGoes) {
    ASSERT_TRUE(installed(eswitch_->put({1, 1}, MegaflowBuilder().ipv4().recirc(7))));
    FakeProvider::refuse_duplicates(true);
    (void)FakeProvider::take_events();
    ASSERT_TRUE(installed(eswitch_->put({1, 1}, MegaflowBuilder().ipv4().recirc(8))));
    FakeProvider::refuse_duplicates(false);
    const auto events = FakeProvider::take_events();
    const auto next = [&](auto from, std::string_view start) {
        return std::find_if(from, events.end(), [=](const std::string& event) { return event.starts_with(start); });
    };
    const auto out = next(events.begin(), "destroy FDB level 1 "), gone = next(out, "destroy FDB level 9 ");
    ASSERT_NE(gone, events.end());
    EXPECT_EQ(std::count(out, gone, "drain FDB"), 1);
}

TEST_F(Recirculation, ToKnowWhereAPacketMissedDoesNotWaitForATableThatIsBeingMade) {
    static Eswitch* asked;
    static unsigned answers, waits;
    ASSERT_TRUE(installed(eswitch_->put({1, 1}, MegaflowBuilder().ipv4().recirc(7))));
    asked = eswitch_.get();
    answers = waits = 0;
    FakeProvider::in_sync = [] {
        std::packaged_task<std::optional<TableKey>()> task([] { return asked->table_of(2); });
        auto answer = task.get_future();
        std::thread(std::move(task)).detach();
        ++(answer.wait_for(std::chrono::seconds(1)) == std::future_status::ready ? answers : waits);
    };
    EXPECT_TRUE(installed(eswitch_->put({1, 2}, MegaflowBuilder().ipv6().recirc(8))));
    FakeProvider::in_sync = nullptr;
    EXPECT_GT(answers, 0U);
    EXPECT_EQ(waits, 0U);
}

TEST_F(Recirculation, ARecirculationThatGoesBackIsTriedAgainWhenItsOwnTableLiesLower) {
    ASSERT_TRUE(installed(eswitch_->put({1, 1}, MegaflowBuilder(2).ipv4().recirc(10))));
    ASSERT_TRUE(installed(eswitch_->put({1, 2}, MegaflowBuilder(2).ipv4().behind(10).recirc(9))));
    ASSERT_TRUE(installed(eswitch_->put({1, 3}, MegaflowBuilder().ipv4().recirc(7))));
    ASSERT_TRUE(installed(eswitch_->put({1, 4}, MegaflowBuilder().ipv4().behind(7).recirc(8))));
    EXPECT_TRUE(std::holds_alternative<Reject>(eswitch_->put({1, 5}, MegaflowBuilder().ipv4().behind(8).recirc(9))));
    EXPECT_EQ(eswitch_->explain({1, 5})->text, "recirculation: recirc=0x9 (its table lies before this one)");
    (void)eswitch_->del(Ufid{1, 4});
    ASSERT_TRUE(installed(eswitch_->put({1, 6}, MegaflowBuilder().ipv6().recirc(8))));
    EXPECT_TRUE(becomes([&] { return eswitch_->explain({1, 5})->offloaded; })) << "8 lies before 9 now";
}

/// One list of actions, from two vports and at two levels.
TEST_F(Recirculation, APrivateTableIsOneVportsAtOneLevel) {
    ASSERT_TRUE(installed(eswitch_->put({1, 1}, MegaflowBuilder(1).ipv4().output(3).push(5).recirc(7))));
    ASSERT_TRUE(installed(eswitch_->put({1, 2}, MegaflowBuilder(2).ipv4().output(3).push(5).recirc(7))));
    EXPECT_EQ(rules_in("FDB level 2", "dest_table 9"), 2U);
    ASSERT_TRUE(installed(eswitch_->put({1, 3}, MegaflowBuilder(1).ipv4().behind(7).output(3).push(5).recirc(8))));
    ASSERT_TRUE(installed(eswitch_->put({1, 4}, MegaflowBuilder(1).ipv6().output(3).push(5).recirc(8))));
    EXPECT_EQ(rules_in("FDB level 10", "dest_table 17"), 1U);
    EXPECT_EQ(rules_in("FDB level 2", "dest_table 17"), 1U);
}

TEST_F(Recirculation, ExplainsEveryRuleOfAChainWithBranches) {
    ASSERT_TRUE(installed(eswitch_->put({1, 1}, MegaflowBuilder().ipv4().recirc(7))));
    ASSERT_TRUE(installed(eswitch_->put({1, 2}, MegaflowBuilder().ipv4().behind(7).output(2).push(5).recirc(8))));
    const std::vector<std::string> program{
        "FDB table 2, level 9: megaflows at recirc_id 0x7",
        "  matcher #2 priority 1: {ethertype, cvlan_tag, frag, ip_version, source_port}, 1 rules",
        "  rule: {ethertype=0x800, cvlan_tag=0x0, frag=0x0, ip_version=0x4, source_port=0x1}",
        "  actions: count#18(packets=0, bytes=0), dest_array [dest_vport 2, dest_table branch 1]",
        "FDB branch 1, level 10: a private table",
        "  matcher priority 0: {source_port}, 1 rule",
        "  rule: {source_port=0x1}",
        "  actions: push_vlan 0x8100 vid 5 pcp 0, dest_table 3 (recirc_id 0x8)",
        "FDB table 3, level 17: megaflows at recirc_id 0x8",
        "  1 matchers; what misses: set metadata_reg_c_1=0xd5000003, dest_table (level 60: default_miss)",
        "NIC_RX level 1: {metadata_reg_c_1=0xd5000003}: tag 0x3, to the port's queue",
    };
    EXPECT_EQ(eswitch_->explain({1, 2})->program, program);
}

/// What is behind such a megaflow waits for another that leads there.
TEST_F(Recirculation, AChoiceReachesMegaflowsThatAreThere) {
    const auto rewritten = MegaflowBuilder().ipv4().set(OVSDR_HEADER_IP_DST, {10, 0, 0, 1}).recirc(7);
    ASSERT_TRUE(installed(eswitch_->put({1, 1}, rewritten)));
    ASSERT_TRUE(installed(eswitch_->put({1, 2}, MegaflowBuilder().ipv4().behind(7).output(2))));
    ASSERT_TRUE(installed(eswitch_->put({1, 3}, MegaflowBuilder(2).ipv4().recirc(8))));
    eswitch_->choose({.exact_tunnel_source_port = true});
    EXPECT_EQ(eswitch_->explain({1, 1})->text, "unsupported action: recirc behind a change of what OVS hashes "
                                               "(other_config:dr-tunnel-source-port=exact): set(ipv4)");
    EXPECT_FALSE(eswitch_->explain({1, 1})->offloaded);
    EXPECT_TRUE(eswitch_->explain({1, 3})->offloaded) << "nothing is rewritten";
    eswitch_->choose({});
    EXPECT_TRUE(eswitch_->explain({1, 1})->offloaded);
    EXPECT_TRUE(eswitch_->explain({1, 2})->offloaded) << "behind it";
}

/// Each of them, not only the last.
TEST_F(Recirculation, NamesEveryTableThatIsOutOfReach) {
    ASSERT_TRUE(installed(eswitch_->put({1, 1}, MegaflowBuilder().ipv4().recirc(7).push(4).recirc(9))));
    ASSERT_TRUE(installed(eswitch_->put({1, 2}, MegaflowBuilder().ipv4().behind(7).recirc(8))));
    EXPECT_TRUE(std::holds_alternative<Reject>(
        eswitch_->put({1, 3}, MegaflowBuilder().ipv4().behind(8).recirc(7).push(4).recirc(9))));
    EXPECT_EQ(eswitch_->explain({1, 3})->reasons,
              (std::vector<std::string>{"recirculation: recirc=0x7 (its table lies before this one)",
                                        "recirculation: recirc=0x9 (its table lies before this one)"}));
    (void)eswitch_->del(Ufid{1, 1});
    (void)eswitch_->del(Ufid{1, 2});
    ASSERT_TRUE(installed(eswitch_->put({1, 4}, MegaflowBuilder(2).ipv4().recirc(8))));
    EXPECT_TRUE(becomes([&] { return eswitch_->explain({1, 3})->offloaded; })) << "both have gone";
}

}  // namespace
}  // namespace ovsdr::dr
