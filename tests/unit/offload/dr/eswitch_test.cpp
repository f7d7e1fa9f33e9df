// The Eswitch on the recording provider: what it makes, what it leaves behind when a call fails, and what it counts.
#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <climits>
#include <set>
#include <thread>

#include "offload/dr/backlog.hpp"
#include "offload/dr/install/pipeline.hpp"
#include "tests/unit/offload/dr/eswitch_fixture.hpp"

namespace ovsdr::dr {
namespace {

TEST_F(EswitchTest, InstallsOneRuleAndTakesItAway) {
    ASSERT_TRUE(installed(eswitch_->put(ufid_, MegaflowBuilder().ipv4().output(2))));
    ASSERT_EQ(megaflow_rules().size(), 1U);
    EXPECT_EQ(megaflow_rules()[0][1], "dest_vport 2");
    FakeProvider::count(only_counter(), 10, 1000);
    const auto final = eswitch_->del(ufid_);
    ASSERT_TRUE(final);
    EXPECT_EQ(final->packets, 10U);
    EXPECT_EQ(final->bytes, 1000U);
    EXPECT_TRUE(megaflow_rules().empty());
    EXPECT_FALSE(eswitch_->del(ufid_));
}

TEST_F(EswitchTest, SendsUpWhatEndsAConnection) {
    unsigned ends = 0;
    for (const auto& rule : FakeProvider::rules()) {
        if (rule.table != "FDB level 1" || rule.priority != FlowTable::first_priority || rule.actions.size() != 2) {
            continue;
        }
        EXPECT_EQ(rule.actions[0], "modify_header");
        EXPECT_EQ(rule.actions[1], "dest_table 60");
        ++ends;
    }
    EXPECT_EQ(ends, 6U) << "FIN, RST, both; IPv4 and IPv6";
}

TEST_F(EswitchTest, SharesOneMatcherPerMask) {
    const unsigned before = FakeProvider::alive("matcher");
    for (std::uint16_t type = 0x9000; type < 0x9010; ++type) {
        ASSERT_TRUE(installed(eswitch_->put({1, type}, MegaflowBuilder().eth_type(type).output(2))));
    }
    EXPECT_EQ(FakeProvider::alive("matcher"), before + 1);
    EXPECT_EQ(megaflow_rules().size(), 16U);
    eswitch_->flush(std::nullopt);
    EXPECT_EQ(FakeProvider::alive("matcher"), before);
}

TEST_F(EswitchTest, LeavesAnUnchangedMegaflowAlone) {
    ASSERT_TRUE(installed(eswitch_->put(ufid_, MegaflowBuilder().ipv4().output(2))));
    FakeProvider::fail_call(1, ENOMEM);
    EXPECT_TRUE(installed(eswitch_->put(ufid_, MegaflowBuilder().ipv4().output(2))));
    EXPECT_EQ(FakeProvider::calls(), 0U);
    FakeProvider::fail_call(0, 0);
}

TEST_F(EswitchTest, KeepsTheCounterOfAModifiedMegaflow) {
    ASSERT_TRUE(installed(eswitch_->put(ufid_, MegaflowBuilder().ipv4().output(2))));
    const std::uint32_t counter = only_counter();
    FakeProvider::count(counter, 3, 300);
    ASSERT_TRUE(installed(eswitch_->put(ufid_, MegaflowBuilder().ipv4().output(3))));
    EXPECT_EQ(only_counter(), counter);
    EXPECT_EQ(megaflow_rules()[0][1], "dest_vport 3");
    ASSERT_TRUE(installed(eswitch_->put(ufid_, MegaflowBuilder().eth_type(0x88cc).output(3))));
    FakeProvider::count(counter, 4, 400);
    EXPECT_EQ(eswitch_->del(ufid_)->packets, 7U);
}

TEST_F(EswitchTest, ModifiesWhereDuplicatesAreRefused) {
    FakeProvider::refuse_duplicates(true);
    ASSERT_TRUE(installed(eswitch_->put(ufid_, MegaflowBuilder().ipv4().output(2))));
    FakeProvider::count(only_counter(), 3, 300);
    ASSERT_TRUE(installed(eswitch_->put(ufid_, MegaflowBuilder().ipv4().output(3))));
    EXPECT_EQ(megaflow_rules()[0][1], "dest_vport 3");
    EXPECT_EQ(eswitch_->del(ufid_)->packets, 3U);
}

TEST_F(EswitchTest, LeavesNoRuleOfAModificationThatIsRejected) {
    ASSERT_TRUE(installed(eswitch_->put(ufid_, MegaflowBuilder().ipv4().output(2))));
    FakeProvider::count(only_counter(), 3, 300);
    const PutOutcome outcome = eswitch_->put(ufid_, MegaflowBuilder().ipv4().unsupported("ct").output(2));
    ASSERT_TRUE(std::holds_alternative<Reject>(outcome));
    EXPECT_TRUE(megaflow_rules().empty());
    EXPECT_FALSE(eswitch_->status(ufid_)->offloaded);
    EXPECT_EQ(eswitch_->explain(ufid_)->text, "unsupported action: ct");
    EXPECT_EQ(eswitch_->totals().packets, 3U);
    EXPECT_EQ(eswitch_->del(ufid_)->packets, 3U);
}

/// Rules in the FDB's root that lead a vport's packets in.
unsigned entrances() {
    unsigned count = 0;
    for (const auto& rule : FakeProvider::rules()) count += rule.table == "FDB level 0" && rule.priority == 1;
    return count;
}

TEST_F(EswitchTest, HasNoCountsOfWhatWasNeverInTheDevice) {
    EXPECT_FALSE(eswitch_->status(ufid_)) << "nobody knows it";
    EXPECT_TRUE(std::holds_alternative<Reject>(eswitch_->put(ufid_, MegaflowBuilder().output(99))));
    EXPECT_FALSE(eswitch_->status(ufid_)) << "no rule was made of it";
}

TEST_F(EswitchTest, ClosesTheEntranceOfAPortUntilItHasANumberAgain) {
    ASSERT_TRUE(installed(eswitch_->put(ufid_, MegaflowBuilder(1).ipv4().output(2))));
    ASSERT_EQ(entrances(), 3U);
    const unsigned syncs = FakeProvider::syncs();
    eswitch_->close_entrance(VportId{1});
    EXPECT_EQ(entrances(), 2U);
    EXPECT_GT(FakeProvider::syncs(), syncs) << "packets that are under way must have been counted";
    EXPECT_EQ(megaflow_rules().size(), 1U);
    eswitch_->close_entrance(VportId{1});
    eswitch_->close_entrance(VportId{44});
    ASSERT_TRUE(eswitch_->set_odp_port(VportId{1}, OdpPort{UINT32_MAX}));
    EXPECT_EQ(entrances(), 2U);
    ASSERT_TRUE(eswitch_->set_odp_port(VportId{1}, OdpPort{1}));
    EXPECT_EQ(entrances(), 3U);
    ASSERT_TRUE(eswitch_->set_odp_port(VportId{1}, OdpPort{1}));
    EXPECT_EQ(entrances(), 3U);
}

TEST_F(EswitchTest, KeepsMegaflowsOfAPolicedPortInSoftware) {
    const Ufid to_it{2, 2}, later{3, 3};
    ASSERT_TRUE(installed(eswitch_->put(ufid_, MegaflowBuilder(1).ipv4().output(2))));
    FakeProvider::count(only_counter(), 3, 300);
    ASSERT_TRUE(installed(eswitch_->put(to_it, MegaflowBuilder(2).ipv4().output(1))));
    const unsigned syncs = FakeProvider::syncs();
    eswitch_->set_policed(VportId{1}, true);
    EXPECT_GT(FakeProvider::syncs(), syncs) << "no packet may be under way";
    EXPECT_EQ(megaflow_rules(), (std::vector<std::vector<std::string>>{{megaflow_rules()[0][0], "dest_vport 1"}}));
    EXPECT_FALSE(eswitch_->status(ufid_)->offloaded);
    EXPECT_EQ(eswitch_->status(ufid_)->stats.packets, 3U);
    EXPECT_EQ(eswitch_->explain(ufid_)->text,
              "policed port: in_port has a policer, which is in the slow path: datapath port 1");
    EXPECT_FALSE(installed(eswitch_->put(later, MegaflowBuilder(1).eth_type(0x9000).output(3))));

    // It stays with the vport when that gets another number.
    ASSERT_TRUE(eswitch_->set_odp_port(VportId{1}, OdpPort{7}));
    EXPECT_FALSE(installed(eswitch_->put({4, 4}, MegaflowBuilder(7).ipv4().output(2))));
    ASSERT_TRUE(eswitch_->set_odp_port(VportId{1}, OdpPort{1}));

    eswitch_->set_policed(VportId{1}, false);
    EXPECT_TRUE(eswitch_->status(ufid_)->offloaded);
    EXPECT_TRUE(eswitch_->status(later)->offloaded);
    EXPECT_EQ(megaflow_rules().size(), 3U);
    eswitch_->set_policed(VportId{44}, true);
}

TEST_F(EswitchTest, AttachesAPolicedPort) {
    eswitch_->detach_port(VportId{1});
    ASSERT_TRUE(eswitch_->attach_port({.odp_port = OdpPort{1}, .vport = VportId{1}, .name = "vf1",
                                       .slow_path_qp = &queue_pair_, .slow_path_sqn = 0x101, .policed = true}));
    EXPECT_FALSE(installed(eswitch_->put(ufid_, MegaflowBuilder(1).ipv4().output(2))));
    EXPECT_TRUE(megaflow_rules().empty());
}

TEST_F(EswitchTest, SaysWhenAnEntranceCannotBeOpenedAgain) {
    eswitch_->close_entrance(VportId{1});
    FakeProvider::fail_call(1, ENOSPC);
    const auto opened = eswitch_->set_odp_port(VportId{1}, OdpPort{1});
    ASSERT_FALSE(opened);
    EXPECT_EQ(opened.error().code, ENOSPC);
    FakeProvider::fail_call(0, 0);
    EXPECT_TRUE(eswitch_->set_odp_port(VportId{1}, OdpPort{1}));
    EXPECT_EQ(entrances(), 3U);
}

TEST_F(EswitchTest, StartsARecycledCounterAtZero) {
    ASSERT_TRUE(installed(eswitch_->put(ufid_, MegaflowBuilder().ipv4().output(2))));
    const std::uint32_t counter = only_counter();
    FakeProvider::count(counter, 5, 500);
    eswitch_->del(ufid_);
    ASSERT_TRUE(installed(eswitch_->put({2, 2}, MegaflowBuilder().ipv4().output(2))));
    EXPECT_EQ(only_counter(), counter);
    FakeProvider::count(counter, 1, 100);
    EXPECT_EQ(eswitch_->totals().packets, 6U);
    EXPECT_EQ(eswitch_->del(Ufid{2, 2})->packets, 1U);
}

TEST_F(EswitchTest, SeesCountersGrowByItself) {
    ASSERT_TRUE(installed(eswitch_->put(ufid_, MegaflowBuilder().ipv4().output(2))));
    EXPECT_EQ(eswitch_->status(ufid_)->stats.used_ms, 0);
    FakeProvider::count(only_counter(), 5, 500);
    EXPECT_TRUE(becomes([&] { return eswitch_->status(ufid_)->stats.packets == 5; }));
    EXPECT_GT(eswitch_->status(ufid_)->stats.used_ms, 0);
}

TEST_F(EswitchTest, InstallsWhatWaitedForAPort) {
    EXPECT_TRUE(std::holds_alternative<Reject>(eswitch_->put(ufid_, MegaflowBuilder().ipv4().output(44))));
    ASSERT_TRUE(eswitch_->set_odp_port(VportId{3}, OdpPort{44}));
    EXPECT_TRUE(eswitch_->status(ufid_)->offloaded);
    EXPECT_EQ(megaflow_rules()[0][1], "dest_vport 3");
    eswitch_->detach_port(VportId{3});
    EXPECT_TRUE(megaflow_rules().empty());
    EXPECT_NE(eswitch_->explain(ufid_)->text.find("port 44"), std::string::npos);
    ASSERT_TRUE(attach(3));
    EXPECT_TRUE(megaflow_rules().empty()) << "that is datapath port 3";
    ASSERT_TRUE(eswitch_->set_odp_port(VportId{3}, OdpPort{44}));
    EXPECT_EQ(megaflow_rules().size(), 1U);
}

TEST_F(EswitchTest, RemovesTheRulesOfADeadPort) {
    ASSERT_TRUE(installed(eswitch_->put({1, 1}, MegaflowBuilder(1).ipv4().output(2))));
    ASSERT_TRUE(installed(eswitch_->put({1, 2}, MegaflowBuilder(2).ipv4().output(1).output(3))));
    ASSERT_TRUE(installed(eswitch_->put({1, 3}, MegaflowBuilder(3).ipv4().output(1))));
    const std::size_t rules = FakeProvider::rules().size();
    eswitch_->detach_port(VportId{2});
    EXPECT_EQ(megaflow_rules().size(), 1U);
    EXPECT_EQ(FakeProvider::rules().size(), rules - 2 - 5);
    eswitch_->flush(OdpPort{3});
    EXPECT_FALSE(eswitch_->explain({1, 3}));
    EXPECT_TRUE(eswitch_->explain({1, 2}));
}

TEST_F(EswitchTest, CountsReasonsByFieldAndAction) {
    ASSERT_TRUE(installed(eswitch_->put({1, 1}, MegaflowBuilder().ipv4().output(2))));
    for (std::uint64_t i = 2; i < 5; ++i) {
        (void)eswitch_->put({1, i}, MegaflowBuilder().ipv4().unsupported("meter").output(2));
    }
    eswitch_->del(Ufid{1, 4});
    bool seen = false;
    for (const auto& row : eswitch_->reasons()) {
        if (row.detail != "meter") continue;
        seen = true;
        EXPECT_EQ(row.reason, "unsupported action");
        EXPECT_EQ(row.megaflows, 2U);
        EXPECT_EQ(row.total, 3U);
    }
    EXPECT_TRUE(seen);
    EXPECT_EQ(eswitch_->totals().offloaded, 1U);
    EXPECT_EQ(eswitch_->totals().rejected, 2U);
}

TEST_F(EswitchTest, SharesOneDeviceAndTellsWhatThereIs) {
    const auto again = Eswitch::open("fake_0");
    ASSERT_TRUE(again);
    EXPECT_EQ(*again, eswitch_);
    EXPECT_EQ(open_eswitches().size(), 1U);
    const auto missing = Eswitch::open("mlx5_9");
    ASSERT_FALSE(missing);
    EXPECT_EQ(missing.error().code, ENODEV);
    EXPECT_NE(missing.error().what.find("fake_0"), std::string::npos);
}

TEST_F(EswitchTest, TakesPutsAndDeletesFromSeveralThreads) {
    std::vector<std::thread> threads;
    for (std::uint64_t thread = 0; thread < 4; ++thread) {
        threads.emplace_back([this, thread] {
            for (std::uint64_t i = 0; i < 300; ++i) {
                const Ufid ufid{thread + 1, i};
                const auto type = static_cast<std::uint16_t>(0x9000 + i % 50);
                EXPECT_TRUE(
                    installed(eswitch_->put(ufid, MegaflowBuilder().eth_type(type).output(2).push(5).output(3))));
                (void)eswitch_->status(ufid);
                if (i % 3 != 0) eswitch_->del(ufid);
            }
        });
    }
    for (int i = 0; i < 20; ++i) {
        EXPECT_TRUE(eswitch_->set_odp_port(VportId{3}, OdpPort{3}));
        (void)eswitch_->show(false);
        (void)eswitch_->totals();
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(eswitch_->totals().offloaded, 400U);
}

TEST_F(EswitchTest, TriesAMegaflowAgainThatTheDeviceCouldNotTake) {
    FakeProvider::fail_call(1, ENOSPC);
    ASSERT_TRUE(std::holds_alternative<Error>(eswitch_->put(ufid_, MegaflowBuilder().ipv4().output(2))));
    EXPECT_EQ(eswitch_->totals().failed, 1U);
    EXPECT_EQ(eswitch_->reasons()[0].total, 1U);
    ASSERT_TRUE(becomes([&] { return eswitch_->totals().offloaded == 1; }));
    EXPECT_TRUE(eswitch_->status(ufid_)->offloaded);
    FakeProvider::count(only_counter(), 2, 200);
    EXPECT_EQ(eswitch_->del(ufid_)->packets, 2U);
}

TEST_F(EswitchTest, CountsAFailureThatRepeatsOnce) {
    FakeProvider::set_room(0);
    ASSERT_TRUE(std::holds_alternative<Error>(eswitch_->put(ufid_, MegaflowBuilder().ipv4().output(2))));
    const unsigned refused = FakeProvider::refused();
    ASSERT_TRUE(becomes([&] { return FakeProvider::refused() >= refused + 2; })) << "it is tried again";
    ASSERT_EQ(eswitch_->reasons().size(), 1U) << "the same failure is one row";
    EXPECT_EQ(eswitch_->reasons()[0].total, 1U) << "and one megaflow";
    FakeProvider::set_room(UINT_MAX);
}

TEST_F(EswitchTest, FillsRoomThatReturnsAndAsksLittleWhileThereIsNone) {
    constexpr std::uint64_t waiting = 4000;   // each is looked for among all rules: four times as many take a minute
    FakeProvider::set_room(0);
    for (std::uint64_t i = 0; i < waiting; ++i) {
        (void)eswitch_->put({1, i},
                            MegaflowBuilder().eth_type(static_cast<std::uint16_t>(0x9000 + i % 0x1000)).output(2));
    }
    EXPECT_EQ(eswitch_->totals().failed, waiting);
    // The rests double: were it not so, 4,000 puts and any number of rounds would have asked.
    EXPECT_LT(FakeProvider::refused(), 1000U);
    FakeProvider::set_room(UINT_MAX);
    ASSERT_TRUE(becomes([&] { return eswitch_->totals().offloaded == waiting; }));
    EXPECT_EQ(eswitch_->totals().failed, 0U);
}

TEST_F(EswitchTest, TakesAMegaflowOutOfTheLineWithItsDeletion) {
    FakeProvider::set_room(0);
    for (std::uint64_t i = 0; i < 20; ++i) (void)eswitch_->put({1, i}, MegaflowBuilder().ipv4().output(2));
    for (std::uint64_t i = 0; i < 19; ++i) EXPECT_FALSE(eswitch_->del(Ufid{1, i}));
    FakeProvider::set_room(UINT_MAX);
    ASSERT_TRUE(becomes([&] { return eswitch_->totals().offloaded == 1; }));
    EXPECT_EQ(megaflow_rules().size(), 1U);
}

TEST_F(EswitchTest, OneThatFailsAlwaysDoesNotHoldUpTheOthers) {
    FakeProvider::set_room(0);
    // An array of destinations fails for ever, plain outputs only while there is no room.
    FakeProvider::refuse_arrays(true);
    for (std::uint64_t i = 0; i < 30; ++i) (void)eswitch_->put({1, i}, MegaflowBuilder().ipv4().output(2).output(3));
    (void)eswitch_->put({2, 1}, MegaflowBuilder().ipv4().output(2));
    FakeProvider::set_room(UINT_MAX);
    ASSERT_TRUE(becomes([&] { return eswitch_->totals().offloaded == 1; }));
    EXPECT_EQ(eswitch_->totals().failed, 30U);
    FakeProvider::refuse_arrays(false);
}

TEST_F(EswitchTest, AsksForANewMegaflowBeforeThoseThatHaveFailed) {
    constexpr unsigned failing = 400;
    FakeProvider::refuse_arrays(true);
    for (std::uint64_t i = 0; i < failing; ++i) {
        (void)eswitch_->put({1, i}, MegaflowBuilder().ipv4().output(2).output(3));
    }
    FakeProvider::fail_call(0, 0);
    (void)eswitch_->put({2, 1}, MegaflowBuilder().ipv4().output(2));
    ASSERT_TRUE(becomes([&] { return eswitch_->totals().offloaded == 1; }));
    EXPECT_LT(FakeProvider::calls(), failing) << "all that fail have been asked for before";
    FakeProvider::refuse_arrays(false);
}

TEST_F(EswitchTest, TakesACounterOfAnyBulkBeforeTheDeviceIsFull) {
    const auto put = [&](std::uint64_t i, std::uint16_t neighbourhood) {
        const auto type = static_cast<std::uint16_t>(0x9000 + i);
        return installed(eswitch_->put({1, i}, MegaflowBuilder().eth_type(type).output(2), neighbourhood));
    };
    std::uint64_t next = 0;
    for (; FakeProvider::alive("devx") < 8; ++next) ASSERT_TRUE(put(next, static_cast<std::uint16_t>(next % 2)));
    FakeProvider::refuse_bulks(true);
    unsigned of_one = 0, of_other = 0;
    for (; put(next++, 0); ++of_one) continue;
    for (; put(next++, 1); ++of_other) continue;
    EXPECT_GT(of_one, 0U);
    EXPECT_EQ(of_other, 0U) << "free counters, while megaflows were refused for want of one";
    FakeProvider::refuse_bulks(false);
}

TEST_F(EswitchTest, DeletesInBatchesWithOneDrainAndOneQueryABulk) {
    std::vector<Eswitch::Deletion> deletions;
    for (std::uint64_t i = 0; i < 50; ++i) {
        const auto type = static_cast<std::uint16_t>(0x9000 + i);
        ASSERT_TRUE(installed(eswitch_->put({1, i}, MegaflowBuilder().eth_type(type).output(2))));
        deletions.push_back({{1, i}});
    }
    for (const auto& rule : megaflow_rules()) {
        FakeProvider::count(static_cast<std::uint32_t>(std::stoul(rule[0].substr(6))), 3, 300);
    }
    deletions.push_back({{9, 9}});
    deletions.push_back({{1, 0}});
    const unsigned syncs = FakeProvider::syncs(), queries = FakeProvider::queries();
    eswitch_->del(deletions);
    EXPECT_EQ(FakeProvider::syncs(), syncs + 1);
    EXPECT_LE(FakeProvider::queries(), queries + 2) << "the poller's may be among them";
    for (std::size_t i = 0; i < 50; ++i) EXPECT_EQ(deletions[i].last->packets, 3U);
    EXPECT_FALSE(deletions[50].last) << "unknown";
    EXPECT_FALSE(deletions[51].last) << "forgotten by the same batch";
    EXPECT_TRUE(megaflow_rules().empty());
    EXPECT_EQ(eswitch_->totals().packets, 150U);
}

TEST_F(EswitchTest, CountersOfANeighbourhoodLieTogether) {
    constexpr std::uint64_t neighbourhoods = 16, each = 400;
    const auto megaflow_of = [](std::uint64_t i) {
        return MegaflowBuilder().ipv4().proto(6).ports(static_cast<std::uint16_t>(i), 80).output(2);
    };
    // As traffic makes them: whose neighbourhood comes next is anyone's guess.
    for (std::uint64_t i = 0; i < neighbourhoods * each; ++i) {
        ASSERT_TRUE(installed(eswitch_->put({1, i}, megaflow_of(i), static_cast<std::uint16_t>(i % neighbourhoods))));
    }
    // 50 of each, from the first to the last that came: they are in all 13 bulks, unless neighbours lie together.
    unsigned fewest = UINT_MAX;   // the poller's queries may be among those of one batch, not of all
    for (std::uint64_t neighbourhood = 0; neighbourhood < neighbourhoods; ++neighbourhood) {
        std::vector<Eswitch::Deletion> deletions;
        for (std::uint64_t n = 0; n < 50; ++n) deletions.push_back({{1, neighbourhood + 8 * n * neighbourhoods}});
        const unsigned queries = FakeProvider::queries();
        eswitch_->del(deletions);
        fewest = std::min(fewest, FakeProvider::queries() - queries);
    }
    EXPECT_LE(fewest, 7U);
    eswitch_->flush(std::nullopt);
    EXPECT_EQ(eswitch_->totals().offloaded, 0U);
}

TEST_F(EswitchTest, EachMegaflowOfABatchGetsItsOwnCount) {
    std::vector<Eswitch::Deletion> deletions;
    for (std::uint64_t i = 0; i < 40; ++i) {
        const auto type = static_cast<std::uint16_t>(0x9000 + i);
        ASSERT_TRUE(installed(eswitch_->put({1, i}, MegaflowBuilder().eth_type(type).output(2))));
    }
    for (std::uint64_t i = 0; i < 40; ++i) {
        const auto report = eswitch_->explain({1, i});
        const std::size_t at = report->text.find("count#");
        ASSERT_NE(at, std::string::npos) << report->text;
        FakeProvider::count(static_cast<std::uint32_t>(std::stoul(report->text.substr(at + 6))), i + 1, 100 * (i + 1));
    }
    for (std::uint64_t i = 0; i < 40; ++i) deletions.push_back({{1, i * 7 % 40}});   // not as their counters lie
    eswitch_->del(deletions);
    for (const Eswitch::Deletion& deletion : deletions) EXPECT_EQ(deletion.last->packets, deletion.ufid[1] + 1);
}

TEST_F(EswitchTest, APortThatGoesTouchesOnlyItsOwnMegaflows) {
    for (std::uint64_t i = 0; i < 300; ++i) {
        const auto type = static_cast<std::uint16_t>(0x9000 + i);
        ASSERT_TRUE(installed(eswitch_->put({1, i}, MegaflowBuilder(1).eth_type(type).output(2))));
    }
    ASSERT_TRUE(installed(eswitch_->put({2, 1}, MegaflowBuilder(3).ipv4().output(2))));
    const unsigned syncs = FakeProvider::syncs();
    eswitch_->detach_port(VportId{3});
    EXPECT_LE(FakeProvider::syncs(), syncs + 4);
    EXPECT_EQ(megaflow_rules().size(), 300U);
    EXPECT_FALSE(eswitch_->explain({2, 1})->offloaded);
}

TEST_F(EswitchTest, FindsAMegaflowByThePortsThatItsModificationNames) {
    ASSERT_TRUE(installed(eswitch_->put({1, 1}, MegaflowBuilder(1).ipv4().output(2))));
    ASSERT_TRUE(installed(eswitch_->put({1, 2}, MegaflowBuilder(1).eth_type(0x9000).output(2))));
    ASSERT_TRUE(installed(eswitch_->put({1, 1}, MegaflowBuilder(1).ipv4().output(3))));
    eswitch_->detach_port(VportId{2});
    EXPECT_TRUE(eswitch_->explain({1, 1})->offloaded);
    EXPECT_FALSE(eswitch_->explain({1, 2})->offloaded);
    eswitch_->detach_port(VportId{3});
    EXPECT_FALSE(eswitch_->explain({1, 1})->offloaded);
}

/// Each call of a modification that can fail, in turn: what the old rule had counted, and what came while both rules
/// were there, is in the final statistics.
TEST_F(EswitchTest, LosesNoHitOfARuleThatMakesRoomForAModification) {
    // What comes from the wire and loses a tag is counted short, and needs a counter of its own.
    ASSERT_TRUE(eswitch_->attach_port({OdpPort{4}, VportId{0xFFFF}, "uplink", &queue_pair_, 0x200}));
    for (const bool duplicates_refused : {true, false}) {
        for (const bool other_counter : {true, false}) {
            for (unsigned n = 0; n < 24; ++n) {
                FakeProvider::refuse_duplicates(duplicates_refused);
                const MegaflowBuilder next = other_counter ? MegaflowBuilder(4).vlan(5).pop().output(3)
                                                           : MegaflowBuilder().ipv4().output(3);
                const MegaflowBuilder first = other_counter ? MegaflowBuilder(4).vlan(5).output(2)
                                                            : MegaflowBuilder().ipv4().output(2);
                ASSERT_TRUE(installed(eswitch_->put(ufid_, first)));
                FakeProvider::count(only_counter(), 5, 500);
                FakeProvider::count_at_destroy(2);
                FakeProvider::fail_call(n / 2, ENOMEM, 1 + n % 2);   // some are tried twice
                (void)eswitch_->put(ufid_, next);
                const std::string failed = FakeProvider::failed_call();
                FakeProvider::fail_call(0, 0);
                const auto last = eswitch_->del(ufid_);
                FakeProvider::count_at_destroy(0);
                ASSERT_TRUE(last);
                if (n % 2 == 1 && failed == "mlx5dv_devx_obj_query") continue;   // a device that does not answer twice
                EXPECT_EQ(last->packets, 5 + 2 * FakeProvider::destroyed_rules()) << "call " << n << ", " << failed;
            }
        }
    }
    eswitch_->detach_port(VportId{0xFFFF});
}

/// Of a port with queues for kinds of packets, whichever call fails.
TEST_F(EswitchTest, LeadsEachKindOfPacketToItsQueueOrSaysThatItDoesNot) {
    const QueuePairFor kinds[] = {{&queue_pair_, 4, 6}, {&queue_pair_, 4, 0}, {&queue_pair_, 6, 0}};
    const PortSpec spec{.odp_port = OdpPort{4}, .vport = VportId{4}, .name = "vf4", .slow_path_qp = &queue_pair_,
                        .slow_path_sqn = 0x104, .by_kind = kinds};
    const auto landings = [] {
        const auto rules = FakeProvider::rules();
        return std::ranges::count(rules, "NIC_RX level 2", &FakeProvider::RuleView::table);
    };
    const auto before = landings();
    std::set<std::string> failed;
    for (unsigned n = 1;; ++n) {
        FakeProvider::fail_call(n, ENOSPC);
        const auto attached = eswitch_->attach_port(spec);
        const std::string call = FakeProvider::failed_call();
        FakeProvider::fail_call(0, 0);
        EXPECT_EQ(landings(), before + (attached ? 4 : 0)) << "call " << n << ", " << call;
        if (attached) {
            const auto switched = eswitch_->switch_queue(VportId{4}, &queue_pair_, 0x204, kinds);
            EXPECT_TRUE(switched.made);
            EXPECT_EQ(landings(), before + 4);
            eswitch_->detach_port(VportId{4});
        }
        EXPECT_EQ(landings(), before);
        if (call.empty()) break;
        failed.insert(call);
    }
    EXPECT_TRUE(failed.contains("mlx5dv_dr_rule_create"));
    EXPECT_TRUE(failed.contains("dest_ibv_qp"));
}

TEST_F(EswitchTest, AsksASecondTimeWhereThereIsNoLater) {
    ASSERT_TRUE(installed(eswitch_->put(ufid_, MegaflowBuilder().ipv4().output(2))));
    FakeProvider::count(only_counter(), 5, 500);
    FakeProvider::fail_call(2, EINTR);   // the drain, then the counter
    EXPECT_EQ(eswitch_->del(ufid_)->packets, 5U);
    EXPECT_EQ(FakeProvider::failed_call(), "mlx5dv_devx_obj_query");
}

/// Each call that can fail, in turn: open, attach, put, modify. Nothing may be left of what failed.
TEST(EswitchFaults, LeavesNothingBehindWhicheverCallFails) {
    alignas(16) std::uint8_t bytes[256]{};
    auto* queue_pair = reinterpret_cast<ibv_qp*>(bytes);
    const ovsdr_megaflow first = MegaflowBuilder(1).ipv4().output(2).push(5).output(3);
    const ovsdr_megaflow second = MegaflowBuilder(1).ipv4().output(3);
    std::set<std::string> failed;
    // What nothing fails of has all of its rules: no call's success hides that one before it failed.
    constexpr unsigned of_eswitch = 9, of_port = 5;
    for (unsigned n = 1;; ++n) {
        FakeProvider::reset();
        FakeProvider::fail_call(n, ENOSPC);
        auto opened = Eswitch::open("fake_0");
        if (opened) {
            auto& eswitch = *opened;
            bool all = true;
            EXPECT_EQ(FakeProvider::alive("rule"), of_eswitch) << "after " << FakeProvider::failed_call();
            for (const std::uint16_t vport : {1, 2, 3}) {
                const unsigned rules = FakeProvider::alive("rule"), actions = FakeProvider::alive("action");
                if (eswitch->attach_port({{vport}, {vport}, "vf", queue_pair, vport})) {
                    EXPECT_EQ(FakeProvider::alive("rule"), rules + of_port) << "after " << FakeProvider::failed_call();
                    continue;
                }
                all = false;
                EXPECT_EQ(FakeProvider::alive("rule"), rules) << "after " << FakeProvider::failed_call();
                EXPECT_EQ(FakeProvider::alive("action"), actions) << "after " << FakeProvider::failed_call();
            }
            for (const ovsdr_megaflow* megaflow : {&first, &second}) {
                const auto begin = std::chrono::steady_clock::now();
                const PutOutcome outcome = eswitch->put({1, 1}, *megaflow);
                if (const auto* error = std::get_if<Error>(&outcome)) {
                    EXPECT_EQ(error->code, ENOSPC);
                    EXPECT_EQ(eswitch->totals().failed, 1U);
                    const bool offloaded = eswitch->explain({1, 1})->offloaded;
                    // On a busy machine it may have been tried again by now.
                    const auto passed = std::chrono::steady_clock::now() - begin;
                    EXPECT_FALSE(offloaded && passed < Backlog::shortest_rest) << FakeProvider::failed_call();
                    EXPECT_TRUE(becomes([&] { return eswitch->explain({1, 1})->offloaded; }))
                        << "not tried again after " << FakeProvider::failed_call();
                }
            }
            eswitch->del({1, 1});
            EXPECT_TRUE(all || !FakeProvider::failed_call().empty());
            for (const std::uint16_t vport : {1, 2, 3}) eswitch->detach_port({vport});
            eswitch.reset();
        } else {
            EXPECT_EQ(opened.error().code, ENOSPC) << opened.error().what;
        }
        const std::string call = FakeProvider::failed_call();
        EXPECT_EQ(FakeProvider::alive(), 0U) << "after call " << n << ", " << call;
        EXPECT_TRUE(FakeProvider::violations().empty()) << call << ": " << FakeProvider::violations().front();
        if (call.empty()) break;
        failed.insert(call);
    }
    for (const char* call :
         {"mlx5dv_open_device", "ibv_alloc_pd", "mlx5dv_dr_domain_create", "mlx5dv_dr_table_create",
          "mlx5dv_dr_matcher_create", "mlx5dv_dr_rule_create", "mlx5dv_devx_obj_create", "mlx5dv_devx_obj_query",
          "mlx5dv_dr_domain_sync", "dest_array", "dest_vport", "push_vlan"}) {
        EXPECT_TRUE(failed.count(call)) << call << " was never made to fail";
    }
    EXPECT_EQ(leaked_objects(), 0U);
}

}  // namespace
}  // namespace ovsdr::dr
