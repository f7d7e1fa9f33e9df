// A plain function on the recording provider: which megaflows are in NIC_RX and how, what its marks and counters say,
// and what is left when a call fails.
#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <future>
#include <set>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "offload/dr/backlog.hpp"
#include "offload/dr/device/leak.hpp"
#include "offload/dr/eswitch.hpp"
#include "offload/dr/nic/held_mark.hpp"
#include "offload/dr/nic/mark_table.hpp"
#include "offload/dr/nic/plain_function.hpp"
#include "tests/unit/offload/dr/queue_switches.hpp"
#include "tests/unit/offload/fake_provider.hpp"
#include "tests/unit/offload/megaflow_builder.hpp"

namespace ovsdr::dr {
namespace {

using ovsdr::test::FakeProvider;
using test::MegaflowBuilder;

constexpr VportId itself{0};
constexpr OdpPort odp_port{1};
constexpr Ufid ufid{1, 2}, other_ufid{3, 4};
constexpr std::uint32_t mark = 7;

const std::string megaflows_table = "NIC_RX level 2";

/// What the caller may not give to another megaflow.
std::multiset<std::uint32_t>& held_marks() {
    static std::multiset<std::uint32_t> marks;
    return marks;
}
/// The tags in the NIC may stand for none that is not held.
const PlainFunction* watched = nullptr;
std::set<std::uint32_t>& watched_tags() {
    static std::set<std::uint32_t> tags;
    return tags;
}

void hold(std::uint32_t held) { held_marks().insert(held); }

void let_go(std::uint32_t held) {
    const auto found = held_marks().find(held);
    ASSERT_NE(found, held_marks().end());
    held_marks().erase(found);
    for (const std::uint32_t tag : watched_tags()) {
        EXPECT_TRUE(watched->mark_of(tag) != held || held_marks().contains(held));
    }
}

class NicFunctionTest : public ::testing::Test {
protected:
    void SetUp() override {
        FakeProvider::reset();
        FakeProvider::has_eswitch = false;
        watched_tags().clear();
        on_marks({.hold = hold, .let_go = let_go});
    }
    void TearDown() override {
        close();
        on_marks({});
        EXPECT_TRUE(held_marks().empty());
        EXPECT_EQ(FakeProvider::alive(), 0U);
        EXPECT_TRUE(FakeProvider::violations().empty()) << FakeProvider::violations().front();
        EXPECT_EQ(leaked_objects(), 0U);
    }

    Result<void> open(std::uint16_t vlan = 0) {
        auto opened = Eswitch::open("fake_0");
        if (!opened) return tl::unexpected(opened.error());
        eswitch_ = *opened;
        return eswitch_->attach_port({.odp_port = odp_port,
                                      .vport = itself,
                                      .name = "nic",
                                      .slow_path_qp = &queue_pair_,
                                      .slow_path_sqn = 0x100,
                                      .vlan = vlan});
    }
    void close() {
        if (eswitch_ == nullptr) return;
        watched_tags().clear();
        eswitch_->detach_port(itself);
        eswitch_.reset();
    }
    PlainFunction& function() { return *eswitch_->plain_function(); }
    void watch(std::uint32_t tag) {
        watched = &function();
        watched_tags().insert(tag);
    }

    /// Actions of the rules of megaflows, which are those that count.
    static std::vector<std::vector<std::string>> megaflow_rules() {
        std::vector<std::vector<std::string>> rules;
        for (const auto& rule : FakeProvider::rules()) {
            if (rule.table == megaflows_table && rule.priority == 2) rules.push_back(rule.actions);
        }
        return rules;
    }
    static std::set<std::string> rules_of(const std::string& table) {
        std::set<std::string> rules;
        for (const auto& rule : FakeProvider::rules()) {
            if (rule.table != table) continue;
            std::string text = std::to_string(rule.priority) + ":";
            for (const std::string& action : rule.actions) {
                text += " " + (action.starts_with("count") ? "count" : action);
            }
            rules.insert(text);
        }
        return rules;
    }
    static std::uint32_t tag_in(const std::vector<std::string>& actions) {
        for (const std::string& action : actions) {
            if (action.starts_with("tag ")) return static_cast<std::uint32_t>(std::stoul(action.substr(4)));
        }
        return 0;
    }
    static std::uint32_t counter_in(const std::vector<std::string>& actions) {
        return static_cast<std::uint32_t>(std::stoul(actions.at(0).substr(6)));
    }
    static ovsdr_megaflow dropping() { return MegaflowBuilder().ipv4(); }
    static ovsdr_megaflow sending() { return MegaflowBuilder().ipv4().output(2); }

    static ovsdr_megaflow of_arp_address() {
        MegaflowBuilder builder;
        builder.arp().output(2).raw().mask.src[0] = 0xFF;
        return builder;
    }

    PutOutcome put(const ovsdr_megaflow& megaflow, const Ufid& as = ufid, std::uint32_t with = mark) {
        return eswitch_->put_marked(as, megaflow, 0, with);
    }
    static bool installed(const PutOutcome& outcome) { return std::holds_alternative<std::monostate>(outcome); }
    static std::string why(const PutOutcome& outcome) {
        if (const auto* reject = std::get_if<Reject>(&outcome)) return text_of(*reject);
        if (const auto* error = std::get_if<Error>(&outcome)) return error->what;
        return {};
    }

    std::shared_ptr<Eswitch> eswitch_;
    // The provider never looks into it.
    alignas(16) std::uint8_t queue_pair_bytes_[256]{};
    ibv_qp& queue_pair_ = reinterpret_cast<ibv_qp&>(queue_pair_bytes_);
};

TEST_F(NicFunctionTest, HasOnePortWhichIsItself) {
    ASSERT_TRUE(open());
    ASSERT_NE(eswitch_->plain_function(), nullptr);
    const auto other = eswitch_->attach_port({.odp_port = OdpPort{2}, .vport = VportId{1}, .name = "vf"});
    ASSERT_FALSE(other);
    EXPECT_EQ(other.error().code, ENOENT);
    const auto again = eswitch_->attach_port({.odp_port = OdpPort{2}, .vport = itself, .name = "again"});
    ASSERT_FALSE(again);
    EXPECT_EQ(again.error().code, EBUSY);
}

TEST_F(NicFunctionTest, WhatComesInGoesToTheQueue) {
    ASSERT_TRUE(open());
    EXPECT_EQ(rules_of("NIC_RX level 0"), std::set<std::string>{"0: dest_table 2"});
    EXPECT_TRUE(rules_of(megaflows_table).contains("3: dest_table 3"));
    EXPECT_EQ(rules_of("NIC_RX level 3").size(), 1U);
    EXPECT_EQ(rules_of("NIC_TX level 1"), std::set<std::string>{"1: count default_miss"});
}

TEST_F(NicFunctionTest, APortsVlanIsOnlyOutside) {
    ASSERT_TRUE(open(7));
    EXPECT_EQ(rules_of("NIC_RX level 0"), std::set<std::string>{"0: dest_table 1"});
    EXPECT_EQ(rules_of("NIC_RX level 1"), std::set<std::string>{"0: pop_vlan dest_table 2"});
    const auto sent = rules_of("NIC_TX level 1");
    ASSERT_EQ(sent.size(), 1U);
    EXPECT_NE(sent.begin()->find("push_vlan"), std::string::npos) << *sent.begin();
}

TEST_F(NicFunctionTest, AMegaflowThatDropsIsWholeInTheNic) {
    ASSERT_TRUE(open());
    ASSERT_TRUE(installed(put(dropping()))) << why(put(dropping()));
    const auto rules = megaflow_rules();
    ASSERT_EQ(rules.size(), 1U);
    EXPECT_EQ(rules[0].back(), "drop");
    FakeProvider::count(counter_in(rules[0]), 5, 500);
    const auto status = eswitch_->status(ufid);
    ASSERT_TRUE(status);
    EXPECT_TRUE(status->offloaded);
    EXPECT_FALSE(status->partly);
    const auto last = eswitch_->del(ufid);
    ASSERT_TRUE(last);
    EXPECT_EQ(last->packets, 5U);
    EXPECT_EQ(last->bytes, 500U);
    EXPECT_TRUE(megaflow_rules().empty());
}

TEST_F(NicFunctionTest, AnyOtherIsMarkedAndCountedBySoftware) {
    ASSERT_TRUE(open());
    ASSERT_TRUE(installed(put(sending())));
    const auto rules = megaflow_rules();
    ASSERT_EQ(rules.size(), 1U);
    const std::uint32_t tag = tag_in(rules[0]);
    EXPECT_NE(tag, 0U);
    EXPECT_EQ(rules[0].back(), "dest_table 3");
    EXPECT_EQ(function().mark_of(tag), mark);
    FakeProvider::count(counter_in(rules[0]), 5, 500);
    EXPECT_EQ(function().counts().received_marked, 5U);
    const auto status = eswitch_->status(ufid);
    ASSERT_TRUE(status);
    EXPECT_TRUE(status->offloaded);
    EXPECT_TRUE(status->partly);
    EXPECT_EQ(status->stats.packets, 0U);
    const auto last = eswitch_->del(ufid);
    ASSERT_TRUE(last);
    EXPECT_EQ(last->packets, 0U);
}

TEST_F(NicFunctionTest, ATagOfAMegaflowThatHasGoneStandsForNothing) {
    ASSERT_TRUE(open());
    ASSERT_TRUE(installed(put(sending())));
    const std::uint32_t tag = tag_in(megaflow_rules().at(0));
    EXPECT_EQ(held_marks(), std::multiset{mark});
    watch(tag);
    (void)eswitch_->del(ufid);
    EXPECT_EQ(function().mark_of(tag), PlainFunction::no_mark);
    EXPECT_TRUE(held_marks().empty());
    ASSERT_TRUE(installed(put(sending(), other_ufid)));
    EXPECT_EQ(function().mark_of(tag), PlainFunction::no_mark);
    EXPECT_EQ(function().mark_of(0), PlainFunction::no_mark);
}

TEST_F(NicFunctionTest, AModifyThatChangesNothingInTheNicKeepsTheRule) {
    ASSERT_TRUE(open());
    ASSERT_TRUE(installed(put(sending())));
    const auto before = megaflow_rules();
    ASSERT_TRUE(installed(put(MegaflowBuilder().ipv4().output(3).push(5).output(2))));
    EXPECT_EQ(megaflow_rules(), before);
    EXPECT_EQ(held_marks(), std::multiset{mark});
}

TEST_F(NicFunctionTest, AMegaflowThatIsPutWithAnotherMarkHoldsThatOne) {
    ASSERT_TRUE(open());
    ASSERT_TRUE(installed(put(sending())));
    const std::uint32_t tag = tag_in(megaflow_rules().at(0));
    watch(tag);
    ASSERT_TRUE(installed(put(sending(), ufid, mark + 1)));
    EXPECT_EQ(held_marks(), std::multiset{mark + 1});
    EXPECT_EQ(function().mark_of(tag), mark + 1);
}

/// One that waits for the device, or for its port, can be marked later with the number that it was put with.
TEST_F(NicFunctionTest, AMegaflowThatIsNotMarkedYetHoldsItsMark) {
    ASSERT_TRUE(open());
    ASSERT_TRUE(eswitch_->set_odp_port(itself, OdpPort{2}));
    EXPECT_FALSE(installed(put(sending())));
    EXPECT_EQ(held_marks(), std::multiset{mark});
    ASSERT_TRUE(eswitch_->set_odp_port(itself, odp_port));
    EXPECT_EQ(function().mark_of(tag_in(megaflow_rules().at(0))), mark);
    watch(tag_in(megaflow_rules().at(0)));
    eswitch_->flush(odp_port);
    EXPECT_TRUE(held_marks().empty());
}

TEST_F(NicFunctionTest, WhatWasDroppedCountsThoughTheMegaflowIsMarkedNow) {
    ASSERT_TRUE(open());
    ASSERT_TRUE(installed(put(dropping())));
    FakeProvider::count(counter_in(megaflow_rules().at(0)), 5, 500);
    ASSERT_TRUE(installed(put(sending())));
    EXPECT_EQ(megaflow_rules().size(), 1U);
    FakeProvider::count(counter_in(megaflow_rules().at(0)), 9, 900);
    ASSERT_TRUE(installed(put(dropping())));
    const auto last = eswitch_->del(ufid);
    ASSERT_TRUE(last);
    EXPECT_EQ(last->packets, 5U);
}

TEST_F(NicFunctionTest, RefusesWhatItCannotTellExactly) {
    ASSERT_TRUE(open());
    const std::vector<std::uint8_t> header(50);
    const std::vector<std::pair<ovsdr_megaflow, std::string>> refused{
        {of_arp_address(), "arp_spa"},
        {MegaflowBuilder().ipv4().behind(5).output(2), "recirc_id"},
        {MegaflowBuilder(9).ipv4().output(2), "in_port"},
        {MegaflowBuilder().ipv4().tunnel(header).output(2), "tnl_push"},
        {MegaflowBuilder().ipv4().unsupported("hash").output(2), "hash"},
        {MegaflowBuilder().ipv4().unsupported("lb_output"), "lb_output"},
        {MegaflowBuilder().ipv4().unsupported("sample"), "sample"},
        {MegaflowBuilder().ipv4().unsupported("tnl_push of GTP-U").output(2), "tnl_push of GTP-U"},
        {MegaflowBuilder().ipv4().unsupported("userspace"), "userspace"},
        {MegaflowBuilder().from_tunnel(5).ipv4().output(2), "tunnel of packets that come through none"},
        {MegaflowBuilder().ipv4().unsupported("ct(nat)").recirc(4), "recirc behind a change of what OVS hashes"},
    };
    for (const auto& [megaflow, name] : refused) {
        const auto outcome = put(megaflow);
        ASSERT_TRUE(std::holds_alternative<Reject>(outcome)) << name;
        EXPECT_NE(why(outcome).find(name), std::string::npos) << why(outcome);
        EXPECT_TRUE(megaflow_rules().empty());
    }
    EXPECT_TRUE(installed(put(MegaflowBuilder().ipv4().unsupported("ct").recirc(4))));
    EXPECT_TRUE(std::holds_alternative<Reject>(put(sending(), other_ufid, PlainFunction::no_mark)));
}

TEST_F(NicFunctionTest, WhatIsMarkedHasNotMissed) {
    ASSERT_TRUE(open());
    ASSERT_TRUE(installed(put(sending())));
    FakeProvider::count(counter_in(megaflow_rules().at(0)), 5, 500);
    for (const auto& rule : FakeProvider::rules()) {
        if (rule.table == "NIC_RX level 3") FakeProvider::count(counter_in(rule.actions), 7, 700);
    }
    EXPECT_EQ(eswitch_->totals().misses, 2U);
}

TEST_F(NicFunctionTest, TellsWhatItsTablesHold) {
    ASSERT_TRUE(open());
    const auto rules_in = [&](const std::string& domain, std::uint32_t level) {
        for (const auto& use : eswitch_->table_use()) {
            if (use.domain == domain && use.level == level) return use.rules;
        }
        return std::uint64_t{0};
    };
    const std::uint64_t before = rules_in("NIC_RX", 2);
    ASSERT_TRUE(installed(put(sending())));
    EXPECT_EQ(rules_in("NIC_RX", 2), before + 1);
    EXPECT_EQ(rules_in("NIC_TX", 1), 1U);
}

TEST_F(NicFunctionTest, WhatIsPolicedComesUp) {
    ASSERT_TRUE(open());
    ASSERT_TRUE(installed(put(dropping())));
    eswitch_->set_policed(itself, true);
    ASSERT_EQ(megaflow_rules().size(), 1U);
    EXPECT_NE(tag_in(megaflow_rules()[0]), 0U);
    eswitch_->set_policed(itself, false);
    EXPECT_EQ(megaflow_rules().at(0).back(), "drop");
}

TEST_F(NicFunctionTest, DownItDropsBothWaysAndCounts) {
    ASSERT_TRUE(open());
    ASSERT_TRUE(function().set_up(false));
    EXPECT_FALSE(function().is_up());
    EXPECT_TRUE(rules_of(megaflows_table).contains("0: count drop"));
    EXPECT_TRUE(rules_of("NIC_TX level 1").contains("0: count drop"));
    ASSERT_TRUE(function().set_up(true));
    EXPECT_FALSE(rules_of(megaflows_table).contains("0: count drop"));
    EXPECT_FALSE(rules_of("NIC_TX level 1").contains("0: count drop"));
}

TEST_F(NicFunctionTest, AQueueIsReplacedBehindTheMegaflows) {
    ASSERT_TRUE(open());
    ASSERT_TRUE(installed(put(sending())));
    const auto before = megaflow_rules();
    ASSERT_TRUE(eswitch_->switch_queue(itself, &queue_pair_, 0x200).made);
    eswitch_->forget_old_queue(itself);
    EXPECT_EQ(megaflow_rules(), before);
    EXPECT_EQ(rules_of("NIC_RX level 3").size(), 1U);
    ASSERT_TRUE(eswitch_->switch_queue(itself, &queue_pair_, 0x300).made);
    eswitch_->forget_old_queue(itself);
    EXPECT_EQ(rules_of("NIC_RX level 3").size(), 1U);
}

TEST_F(NicFunctionTest, WhatANewQueueGotIsToldWhenTheDeviceFailsWithIt) {
    ASSERT_TRUE(open());
    const QueuePairFor kinds[] = {{&queue_pair_, 4, 17}, {&queue_pair_, 4, 0}, {&queue_pair_, 6, 0}};
    test::expect_all_told_when_switches_fail(*eswitch_, itself, &queue_pair_, {}, "NIC_RX level 3");
    test::expect_all_told_when_switches_fail(*eswitch_, itself, &queue_pair_, kinds, "NIC_RX level 3");
}

TEST_F(NicFunctionTest, MegaflowsOfANumberThatThePortHadGo) {
    ASSERT_TRUE(open());
    ASSERT_TRUE(installed(put(sending())));
    ASSERT_TRUE(eswitch_->set_odp_port(itself, OdpPort{2}));
    EXPECT_TRUE(megaflow_rules().empty());
    EXPECT_FALSE(eswitch_->status(ufid)->offloaded);
    ASSERT_TRUE(eswitch_->set_odp_port(itself, odp_port));
    EXPECT_EQ(megaflow_rules().size(), 1U);
    eswitch_->flush(odp_port);
    EXPECT_FALSE(eswitch_->knows(ufid));
}

/// It needs a tag, which a megaflow that drops does not, and is tried again and again.
TEST_F(NicFunctionTest, OneThatTheDeviceNeverTakesKeepsNoNewOneWaiting) {
    ASSERT_TRUE(open());
    FakeProvider::refuse("tag", ENOMEM);
    ASSERT_TRUE(std::holds_alternative<Error>(put(sending())));
    FakeProvider::fail_call(0, 0);   // counts from here
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    constexpr unsigned most_calls_of_one = 2;
    while (FakeProvider::calls() <= most_calls_of_one * Backlog::full_after) {
        ASSERT_LT(std::chrono::steady_clock::now(), end) << "it is not tried again";
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    const auto outcome = put(dropping(), other_ufid);
    EXPECT_TRUE(installed(outcome)) << why(outcome);
    FakeProvider::refuse("tag", 0);
    EXPECT_TRUE(installed(put(sending())));
}

/// Whoever compiles holds the port map, across calls to the device.
TEST_F(NicFunctionTest, PutsThatFollowEachOtherDoNotKeepAPortChangeWaiting) {
    static std::atomic<bool> stops_one, is_stopped;
    stops_one = true;
    is_stopped = false;
    ASSERT_TRUE(open());
    FakeProvider::in_sync = [] {
        if (!stops_one.exchange(false)) return;
        is_stopped = true;
        is_stopped.notify_all();
        is_stopped.wait(true);
    };
    const auto put_beside = [this](const Ufid& as) {
        return std::async(std::launch::async, [this, as] { return installed(put(dropping(), as)); });
    };
    auto first = put_beside(ufid);
    is_stopped.wait(false);
    EXPECT_TRUE(put_beside(other_ufid).get()) << "puts go on side by side";
    auto change = std::async(std::launch::async, [this] { eswitch_->set_policed(itself, true); });
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    std::future<bool> next;
    do {
        next = put_beside(other_ufid);   // one that is there needs nothing of the device
    } while (next.wait_for(std::chrono::milliseconds(200)) == std::future_status::ready &&
             std::chrono::steady_clock::now() < end);
    EXPECT_EQ(next.wait_for(std::chrono::seconds(0)), std::future_status::timeout) << "a put overtakes the change";
    is_stopped = false;
    is_stopped.notify_all();
    EXPECT_TRUE(first.get());
    change.get();
    EXPECT_TRUE(next.get());
    FakeProvider::in_sync = nullptr;
}

/// Each call that opening makes fails once: nothing is left, and the next attempt works.
TEST_F(NicFunctionTest, OpeningFailsWholeOrWorks) {
    ASSERT_TRUE(open(7));
    const unsigned calls = FakeProvider::calls();
    close();
    unsigned failures = 0;
    for (unsigned n = 1; n <= calls; ++n) {
        FakeProvider::fail_call(n, ENOMEM);
        const auto opened = open(7);
        const std::string call = FakeProvider::failed_call();
        FakeProvider::fail_call(0, 0);
        failures += !opened;
        close();
        EXPECT_EQ(FakeProvider::alive(), 0U) << n << " " << call;
        ASSERT_TRUE(open(7)) << n << " " << call;
        close();
    }
    EXPECT_GT(failures, calls / 2);
}

/// Each call that a megaflow's life takes fails once: it is in the NIC or in software, never half, and is tried again.
TEST_F(NicFunctionTest, AMegaflowIsWholeOrInSoftware) {
    ASSERT_TRUE(open());
    const auto live = [&] {
        (void)put(dropping());
        (void)put(sending());
        (void)put(dropping());
        (void)function().set_up(false);
        (void)function().set_up(true);
        (void)eswitch_->del(ufid);
    };
    live();   // counters and matchers that stay
    FakeProvider::fail_call(0, 0);
    live();
    const unsigned calls = FakeProvider::calls();
    ASSERT_GT(calls, 8U);
    for (unsigned n = 1; n <= calls; ++n) {
        FakeProvider::fail_call(n, ENOMEM);
        live();
        FakeProvider::fail_call(0, 0);
        EXPECT_TRUE(megaflow_rules().empty()) << n;
        EXPECT_TRUE(function().is_up() || function().set_up(true)) << n;
        EXPECT_TRUE(installed(put(sending()))) << n;
        EXPECT_EQ(megaflow_rules().size(), 1U) << n;
        (void)eswitch_->del(ufid);
    }
}

TEST(MarkTableTest, ATagComesBackAsAnother) {
    MarkTable table;
    std::set<std::uint32_t> tags;
    const auto first = table.take(1);
    ASSERT_TRUE(first);
    table.give_back(*first, false);
    for (std::uint32_t i = 0; i < MarkTable::length; ++i) {
        const auto tag = table.take(i + 1);
        ASSERT_TRUE(tag);
        EXPECT_NE(*tag, *first);
        EXPECT_NE(*tag, 0U);
        EXPECT_LT(*tag, 1U << 24);
        EXPECT_TRUE(tags.insert(*tag).second);
        ASSERT_EQ(table.mark_of(*tag), i + 1);
    }
    EXPECT_FALSE(table.take(1));
    EXPECT_EQ(table.mark_of(*first), 0U);
    table.give_back(*tags.begin(), true);
    EXPECT_FALSE(table.take(1)) << "the device still has a rule with it";
}

}  // namespace
}  // namespace ovsdr::dr
