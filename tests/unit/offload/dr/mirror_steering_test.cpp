// Storage mirrors on the recording provider: what leads their copies up, the filter of their services, and devices that
// refuse a part of it.
#include <gtest/gtest.h>

#include <cerrno>
#include <set>
#include <string>
#include <vector>

#include "tests/unit/offload/dr/eswitch_fixture.hpp"
#include "tests/unit/offload/software_actions.hpp"

namespace ovsdr::dr {
namespace {

using test::bytes, test::stor0, test::stor1, test::tap;
using Texts = std::vector<std::string>;

constexpr CopyKind mirror = mirror_kind(0);
constexpr MirrorSteering::Service iscsi{6, 3260}, rocev2{17, 4791};

class Mirrors : public EswitchTest {
protected:
    void SetUp() override {
        EswitchTest::SetUp();
        before_ = rule_texts();
    }
    void TearDown() override {
        FakeProvider::fail_call(0, 0);
        EswitchTest::TearDown();
    }
    static MegaflowBuilder flow(std::uint32_t in_port = 1) { return MegaflowBuilder(in_port).ipv4(); }
    static Ufid ufid(std::uint64_t number) { return {number, 0}; }
    Result<void> set(const MirrorSteering& steering = {}, CopyKind kind = mirror, std::uint32_t port = stor0) {
        return eswitch_->set_mirror_port(OdpPort{port}, kind, steering);
    }
    Result<void> lead(CopyKind kind = mirror) { return eswitch_->lead_copies(kind, &queue_pair_); }
    std::string why_not(const Ufid& ufid) const {
        const auto report = eswitch_->explain(ufid);
        return report->offloaded ? "offloaded" : report->text;
    }
    /// Rules of the tables of copies in NIC_RX: those that are at level 2 and no port's.
    Texts filter() const {
        Texts texts = rules_since(before_);
        std::erase_if(texts, [](const std::string& text) { return !text.starts_with("NIC_RX level 2 "); });
        return texts;
    }
    /// In the range of priorities that begins at `first`.
    static Texts filter_of_iscsi(unsigned first) {
        const std::string at = "NIC_RX level 2 priority " + std::to_string(first) + " {ip_protocol=0x6, frag=0x0, ";
        const std::string led = "=0xcbc}: count dest_qp 0";
        Texts texts{at + "ip_version=0x4, tcp_dport" + led, at + "ip_version=0x4, tcp_sport" + led,
                    at + "ip_version=0x6, tcp_dport" + led, at + "ip_version=0x6, tcp_sport" + led,
                    "NIC_RX level 2 priority " + std::to_string(first + 1) + " {}: count drop"};
        return texts;
    }
    static std::set<std::uint32_t> counters_of(const std::string& action) {
        std::set<std::uint32_t> counters;
        for (const auto& rule : FakeProvider::rules()) {
            if (rule.table != "NIC_RX level 2" || rule.actions.back() != action) continue;
            counters.insert(static_cast<std::uint32_t>(std::stoul(rule.actions.at(0).substr(6))));
        }
        return counters;
    }

    std::multiset<std::string> before_;
};

TEST_F(Mirrors, MegaflowsWaitForTheMirrorsQueue) {
    ASSERT_TRUE(set());
    ASSERT_FALSE(installed(eswitch_->put(ufid(1), flow().output(stor0).output(2))));
    EXPECT_EQ(why_not(ufid(1)),
              "output not offloaded: output to a storage mirror whose copies have no queue: datapath port 60");
    ASSERT_TRUE(lead(mirror_kind(1)));
    EXPECT_NE(why_not(ufid(1)), "offloaded") << "another mirror's queue";
    ASSERT_TRUE(lead());
    EXPECT_EQ(why_not(ufid(1)), "offloaded");
    const auto works = eswitch_->works();
    ASSERT_EQ(works.size(), 1U);
    EXPECT_EQ(works[0].work->kind, mirror);
    EXPECT_EQ(works[0].work->in_port.value, 1U);
    EXPECT_EQ(eswitch_->work_of(works[0].id), works[0].work);
    (void)eswitch_->del(ufid(1));
    const auto actions = FakeProvider::alive("action");
    eswitch_->stop_copies(mirror);
    EXPECT_EQ(FakeProvider::alive("action"), actions - 1) << "nothing leads to the queue pair any more";
    EXPECT_FALSE(installed(eswitch_->put(ufid(1), flow().output(stor0).output(2))));
    EXPECT_TRUE(eswitch_->works().empty());
    EXPECT_EQ(filter().size(), 1U) << "the other mirror's: the queue's owner may destroy it";
}

TEST_F(Mirrors, APortThatComesOrGoesIsCompiledAgain) {
    ASSERT_TRUE(lead());
    ASSERT_TRUE(eswitch_->lead_copies(CopyKind::other, &queue_pair_));
    ASSERT_TRUE(installed(eswitch_->put(ufid(1), flow().output(stor0).output(2))));
    ASSERT_TRUE(installed(eswitch_->put(ufid(2), flow(2).cut_output(bytes, 100, stor0).output(3))));
    const auto kinds = [&] {
        std::multiset<CopyKind> kinds_of_works;
        for (const auto& work : eswitch_->works()) kinds_of_works.insert(work.work->kind);
        return kinds_of_works;
    };
    EXPECT_EQ(kinds(), (std::multiset{CopyKind::other, CopyKind::other}));
    ASSERT_TRUE(set());
    EXPECT_EQ(kinds(), (std::multiset{mirror, mirror})) << "a cut output too";
    ASSERT_TRUE(set({.one_of = 8}));
    EXPECT_NE(eswitch_->explain(ufid(1))->text.find("copy to software (1 of 8)"), std::string::npos);
    eswitch_->remove_mirror_port(OdpPort{stor0});
    EXPECT_EQ(kinds(), (std::multiset{CopyKind::other, CopyKind::other}));
    EXPECT_EQ(eswitch_->status(ufid(1))->offloaded, true);
}

TEST_F(Mirrors, ServicesAreAFilterInFrontOfTheQueue) {
    ASSERT_TRUE(set({.services = {iscsi}}));
    ASSERT_TRUE(lead());
    EXPECT_EQ(filter(), filter_of_iscsi(0));
    EXPECT_EQ(counters_of("drop").size(), 1U);
    for (const std::uint32_t counter : counters_of("drop")) FakeProvider::count(counter, 5, 0);
    EXPECT_EQ(eswitch_->filtered_copies(mirror), 5U);
    EXPECT_EQ(eswitch_->copies(mirror), 0U);
    EXPECT_EQ(eswitch_->filtered_copies(mirror_kind(1)), 0U);
    EXPECT_EQ(eswitch_->totals().copies, 0U);
    EXPECT_NE(eswitch_->show(false).find("copies for mirror 0: 0 packets, 5 dropped by its filter"),
              std::string::npos);
}

TEST_F(Mirrors, WithoutServicesAllIsLed) {
    ASSERT_TRUE(lead());
    EXPECT_EQ(filter(), Texts{"NIC_RX level 2 priority 0 {}: count dest_qp 0"});
    ASSERT_TRUE(lead());
    EXPECT_EQ(filter(), Texts{"NIC_RX level 2 priority 2 {}: count dest_qp 0"});
    ASSERT_TRUE(lead());
    EXPECT_EQ(filter(), Texts{"NIC_RX level 2 priority 0 {}: count dest_qp 0"});
}

TEST_F(Mirrors, ServicesChangeWhileTheQueueIsThere) {
    ASSERT_TRUE(set({.services = {iscsi}}));
    ASSERT_TRUE(lead());
    ASSERT_TRUE(lead());
    EXPECT_EQ(filter(), filter_of_iscsi(2)) << "another queue";
    ASSERT_TRUE(set({.services = {rocev2, iscsi, rocev2}}));
    EXPECT_EQ(filter().size(), 4U + 4 + 1) << "each service once";
    ASSERT_TRUE(set());
    EXPECT_EQ(filter(), Texts{"NIC_RX level 2 priority 2 {}: count dest_qp 0"});
    (void)FakeProvider::take_events();
    ASSERT_TRUE(set());
    EXPECT_EQ(FakeProvider::take_events(), Texts{}) << "nothing has changed";
    ASSERT_TRUE(set({.services = {iscsi}}));
    EXPECT_EQ(filter(), filter_of_iscsi(0));
}

/// At any moment each copy finds one rule, and the right one.
TEST_F(Mirrors, TheRuleThatDropsComesLastAndGoesFirst) {
    ASSERT_TRUE(set({.services = {iscsi}}));
    ASSERT_TRUE(lead());
    for (const auto& [from, to] : {std::pair{0, 2}, {2, 0}}) {
        (void)FakeProvider::take_events();
        ASSERT_TRUE(lead());
        Texts events = FakeProvider::take_events();
        for (std::string& event : events) event = event.substr(0, event.find(':'));
        const auto at = [](const char* what, int priority) {
            return what + (" NIC_RX level 2 priority " + std::to_string(priority));
        };
        Texts expected(4, at("create", to));
        expected.push_back(at("create", to + 1));
        expected.push_back("write NIC_RX");
        expected.push_back(at("destroy", from + 1));
        expected.insert(expected.end(), 4, at("destroy", from));
        expected.push_back("drain NIC_RX");
        EXPECT_EQ(events, expected);
    }
}

TEST_F(Mirrors, WhatNoMirrorCanHaveIsRefused) {
    const auto refusal = [&](const MirrorSteering& steering, CopyKind kind = mirror) {
        const auto done = set(steering, kind);
        EXPECT_FALSE(done);
        if (done) return std::string();
        EXPECT_EQ(done.error().code, EINVAL);
        return done.error().what;
    };
    EXPECT_EQ(refusal({.services = {{1, 7}}}),
              "a service of IP protocol 1, port 7: only 6 (TCP) and 17 (UDP) have ports");
    EXPECT_EQ(refusal({.one_of = 0}), "a mirror of one in 0 packets: 1 is the least");
    EXPECT_EQ(refusal({}, CopyKind::other), "copies of kind 1 are no mirror's");
    EXPECT_EQ(refusal({}, mirror_kind(max_mirrors)), "copies of kind 10 are no mirror's");
}

TEST_F(Mirrors, AKindHasOnePort) {
    ASSERT_TRUE(set({.services = {iscsi}}));
    ASSERT_TRUE(lead());
    const auto second = set({}, mirror, stor1);
    ASSERT_FALSE(second);
    EXPECT_EQ(second.error().code, EBUSY);
    EXPECT_EQ(second.error().what, "mirror 0 has datapath port 60, and 61 cannot have it too");
    EXPECT_EQ(filter(), filter_of_iscsi(0)) << "the first one's services stay";
    eswitch_->remove_mirror_port(OdpPort{stor0});
    EXPECT_TRUE(set({}, mirror, stor1));
}

TEST_F(Mirrors, CountsBeginAnewWithAnotherMirrorOfTheKind) {
    ASSERT_TRUE(set({.services = {iscsi}}));
    ASSERT_TRUE(lead());
    for (const std::uint32_t counter : counters_of("drop")) FakeProvider::count(counter, 5, 0);
    for (const std::uint32_t counter : counters_of("dest_qp 0")) FakeProvider::count(counter, 3, 0);
    ASSERT_TRUE(lead());
    EXPECT_EQ(eswitch_->filtered_copies(mirror), 5U) << "another queue of the same mirror";
    EXPECT_EQ(eswitch_->copies(mirror), 3U);
    eswitch_->stop_copies(mirror);
    EXPECT_EQ(eswitch_->filtered_copies(mirror), 5U) << "the last words";
    ASSERT_TRUE(lead());
    EXPECT_EQ(eswitch_->filtered_copies(mirror), 0U);
    EXPECT_EQ(eswitch_->copies(mirror), 0U);
    for (const std::uint32_t counter : counters_of("drop")) FakeProvider::count(counter, 2, 0);
    EXPECT_EQ(eswitch_->filtered_copies(mirror), 2U);
}

/// OVS gives a number to another port before the one that had it is told.
TEST_F(Mirrors, ANumberThatAVportHadIsTheMirrors) {
    ASSERT_TRUE(lead());
    ASSERT_TRUE(set({}, mirror, 3));
    ASSERT_TRUE(installed(eswitch_->put(ufid_, flow().output(3).output(2))));
    ASSERT_EQ(eswitch_->works().size(), 1U);
    EXPECT_EQ(eswitch_->works()[0].work->kind, mirror);
}

/// The device fails at each call once, and at what is tried again.
TEST_F(Mirrors, EachCallOfLeadingAndOfChangingServicesFailsAndLeavesAllAsItWas) {
    const MirrorSteering one{.services = {iscsi}}, both{.services = {iscsi, rocev2}};
    for (const bool leads : {true, false}) {
        std::set<std::string> failed;
        for (const unsigned changes : {1U, 2U}) {   // from either range of priorities
            for (unsigned n = 1;; ++n) {
                close();
                open();
                ASSERT_TRUE(set(one));
                for (unsigned i = 0; i < changes; ++i) ASSERT_TRUE(lead());
                ASSERT_TRUE(installed(eswitch_->put(ufid_, flow().output(stor0).output(2))));
                const auto rules = rule_texts();
                const auto actions = FakeProvider::alive("action") - FakeProvider::counting_actions();
                FakeProvider::fail_call(n, ENOMEM, 2);
                const auto done = leads ? lead() : set(both);
                const std::string call = FakeProvider::failed_call();
                FakeProvider::fail_call(0, 0);
                SCOPED_TRACE("call " + std::to_string(n) + ", " + call);
                EXPECT_TRUE(eswitch_->explain(ufid_)->offloaded);
                if (done) {   // what failed is tried again, or is no part of the outcome
                    EXPECT_EQ(rule_texts().size(), rules.size() + (leads ? 0 : 4)) << "a queue has all of its rules";
                    if (call.empty()) break;
                    continue;
                }
                failed.insert(call);
                EXPECT_EQ(rule_texts(), rules);
                EXPECT_EQ(FakeProvider::alive("action") - FakeProvider::counting_actions(), actions);
                ASSERT_TRUE(leads ? lead() : set(both));
                EXPECT_EQ(rule_texts().size(), rules.size() + (leads ? 0 : 4));
            }
        }
        EXPECT_TRUE(failed.contains("mlx5dv_dr_rule_create"));
        EXPECT_TRUE(failed.contains("mlx5dv_dr_matcher_create"));
    }
}

TEST_F(Mirrors, EachCallOfTheFirstQueueFailsAndNothingIsLeft) {
    std::set<std::string> failed;
    for (unsigned n = 1;; ++n) {
        close();
        open();
        ASSERT_TRUE(set({.services = {iscsi}}));
        ASSERT_FALSE(installed(eswitch_->put(ufid_, flow().output(stor0).output(2))));
        FakeProvider::fail_call(n, ENOMEM);
        const auto led = lead();
        const std::string call = FakeProvider::failed_call();
        FakeProvider::fail_call(0, 0);
        SCOPED_TRACE("call " + std::to_string(n) + ", " + call);
        if (led && call.empty()) break;
        if (!led) {
            failed.insert(call);
            EXPECT_EQ(led.error().code, ENOMEM);
            EXPECT_EQ(filter(), Texts{}) << "the tables of copies may be there";
            EXPECT_NE(why_not(ufid_), "offloaded");
            ASSERT_TRUE(lead());
        }
        EXPECT_TRUE(becomes([&] { return eswitch_->explain(ufid_)->offloaded; }));
        EXPECT_EQ(filter(), filter_of_iscsi(0));
    }
    for (const char* call : {"mlx5dv_dr_table_create", "mlx5dv_dr_rule_create", "dest_table"}) {
        EXPECT_TRUE(failed.contains(call)) << call << " is no part of it";
    }
}

TEST_F(Mirrors, PeopleReadWhereCopiesGo) {
    ASSERT_TRUE(set({.services = {iscsi}}, mirror_kind(2)));
    ASSERT_TRUE(lead(mirror_kind(2)));
    ASSERT_TRUE(installed(eswitch_->put(ufid_, flow().output(stor0))));
    std::string program;
    const auto report = eswitch_->explain(ufid_);
    for (const std::string& line : report->program) program += line + "\n";
    EXPECT_NE(program.find("output to mirror 2, datapath port 60"), std::string::npos) << program;
    EXPECT_NE(program.find(", to the queue for mirror 2"), std::string::npos) << program;
    const Graph graph = eswitch_->graph();
    ASSERT_TRUE(graph.tables.contains("up mirror 2"));
    std::multiset<std::string> ends;
    for (const auto& [edge, traffic] : graph.edges) {
        if (edge.from == "up mirror 2") ends.insert(edge.to);
    }
    EXPECT_EQ(ends.count("drop"), 1U);
    EXPECT_EQ(ends.count("mirror 2"), 4U) << "a matcher each";
    EXPECT_EQ(graph.places.at("mirror 2"), "storage mirror 2");
    EXPECT_NE(eswitch_->show(false).find("copies for mirror 2 that go up (5 matchers)"), std::string::npos);
}

}  // namespace
}  // namespace ovsdr::dr
