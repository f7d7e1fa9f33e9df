// Copies for software on the recording provider: what leads them up, what their tags stand for, and devices that refuse
// a part of it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "tests/unit/offload/dr/eswitch_fixture.hpp"
#include "tests/unit/offload/software_actions.hpp"

namespace ovsdr::dr {
namespace {

using namespace std::string_view_literals;
using Rules = std::vector<std::vector<std::string>>;

using test::bytes, test::tap;

class Software : public EswitchTest {
protected:
    void SetUp() override {
        EswitchTest::SetUp();
        ASSERT_TRUE(eswitch_->lead_copies(CopyKind::other, &queue_pair_));
    }
    void TearDown() override {
        FakeProvider::fail_call(0, 0);
        FakeProvider::refuse("flow_sampler", 0);
        EswitchTest::TearDown();
    }

    static MegaflowBuilder flow(std::uint32_t in_port = 1) { return MegaflowBuilder(in_port).ipv4(); }
    static Ufid ufid(std::uint64_t number) { return {number, 0}; }

    /// Without numbers of counters and ids.
    static Rules rules_of(const std::string& table) {
        Rules rules;
        for (const auto& rule : FakeProvider::rules()) {
            if (rule.table != table) continue;
            rules.emplace_back();
            for (const std::string& action : rule.actions) {
                const bool numbered = action.starts_with("count ") || action.starts_with("tag ");
                rules.back().push_back(numbered ? action.substr(0, action.find(' ')) : action);
            }
        }
        std::ranges::sort(rules);
        return rules;
    }
    /// Tags of NIC_RX, but that of the table that packets enter.
    static std::set<std::uint32_t> tags() {
        std::set<std::uint32_t> tags;
        for (const auto& rule : FakeProvider::rules()) {
            if (rule.table != "NIC_RX level 1") continue;
            const auto tag = std::ranges::find_if(
                rule.actions, [](const std::string& action) { return action.starts_with("tag "); });
            tags.insert(static_cast<std::uint32_t>(std::stoul(tag->substr(4))));
        }
        tags.erase(1);
        return tags;
    }
    static std::map<std::string, unsigned> objects() {
        std::map<std::string, unsigned> alive;
        for (const char* kind : {"rule", "matcher", "table", "domain"}) alive[kind] = FakeProvider::alive(kind);
        alive["action"] = FakeProvider::alive("action") - FakeProvider::counting_actions();
        return alive;
    }
    static std::string reason_of(const PutOutcome& outcome) {
        const auto* reject = std::get_if<Reject>(&outcome);
        return reject != nullptr ? text_of(*reject) : installed_text(outcome);
    }
    static std::string installed_text(const PutOutcome& outcome) {
        const auto* error = std::get_if<Error>(&outcome);
        return error != nullptr ? error->what : "installed";
    }
};

TEST_F(Software, ACopyIsMarkedAndLedToItsOwnQueue) {
    ASSERT_TRUE(installed(eswitch_->put(ufid_, flow().software(bytes).output(2))));
    EXPECT_EQ(megaflow_rules().at(0).at(1), "dest_array [dest_vport 2, dest_table 2]");
    EXPECT_EQ(rules_of("FDB level 2"), (Rules{{"modify_header", "dest_table 60"}}));
    EXPECT_EQ(rules_of("NIC_RX level 1"), (Rules{{"count", "tag", "dest_table 2"}, {"tag", "dest_table 2"}}));
    EXPECT_EQ(rules_in("NIC_RX level 2", "dest_qp 0"), 3U + 1) << "a queue each port has, and one for copies";
}

TEST_F(Software, ASamplerIsBehindTheMarkAndInFrontOfTheRest) {
    ASSERT_TRUE(installed(eswitch_->put(ufid_, flow().software(bytes, 64).output(2).output(3))));
    const auto rule = megaflow_rules().at(0);
    EXPECT_EQ(std::vector(rule.begin() + 1, rule.end()),
              (std::vector<std::string>{"modify_header", "sample 1 of 64"}));
    EXPECT_EQ(rules_of("FDB level 2"), (Rules{{"dest_array [dest_vport 2, dest_vport 3]"}}));
    EXPECT_EQ(tags().size(), 1U);
}

TEST_F(Software, TheTagSaysWhatIsToBeDone) {
    ASSERT_TRUE(installed(eswitch_->put(ufid(1), flow().software(bytes).output(2))));
    const auto of_bytes = tags();
    ASSERT_TRUE(installed(eswitch_->put(ufid(2), flow(3).output(tap).output(2))));
    for (const std::uint32_t tag : tags()) {
        const auto work = eswitch_->work_of(tag);
        ASSERT_NE(work, nullptr);
        if (of_bytes.contains(tag)) {
            EXPECT_EQ(std::get<SoftwareWork::Actions>(work->work), (SoftwareWork::Actions{0x0c, 0x01}));
            EXPECT_EQ(work->in_port.value, 1U);
        } else {
            EXPECT_EQ(std::get<SoftwareWork::Ports>(work->work), SoftwareWork::Ports{{tap}});
            EXPECT_EQ(work->in_port.value, 3U);
        }
        EXPECT_FALSE(eswitch_->table_of(tag)) << "it has missed in no table";
    }
    EXPECT_EQ(tags().size(), 2U);
    EXPECT_EQ(eswitch_->work_of(1), nullptr) << "a table's";
    EXPECT_EQ(eswitch_->work_of(0), nullptr);
}

TEST_F(Software, MegaflowsShareWorkAndTheLastTakesItAway) {
    ASSERT_TRUE(installed(eswitch_->put(ufid(1), flow().software(bytes).output(2))));
    const auto before = tags();
    ASSERT_TRUE(installed(eswitch_->put(ufid(2), flow().proto(17).software(bytes).output(3))));
    EXPECT_EQ(tags(), before);
    (void)eswitch_->del(ufid(1));
    EXPECT_EQ(tags(), before);
    (void)eswitch_->del(ufid(2));
    EXPECT_TRUE(tags().empty());
    EXPECT_NE(eswitch_->work_of(*before.begin()), nullptr) << "copies may be under way";
}

/// A sampler's megaflows come and go, and its count goes on.
TEST_F(Software, CopiesCountForTheirSamplerAndItsRate) {
    const auto put = [&](std::uint64_t number, const char* sampler, std::uint32_t one_of) {
        return installed(eswitch_->put(ufid(number), flow().proto(static_cast<std::uint8_t>(number))
                                                         .software(bytes, one_of).for_sampler(sampler).output(2)));
    };
    const auto come_up = [&] {
        for (const std::uint32_t tag : tags()) eswitch_->work_of(tag)->count();
    };
    const auto counts = [&] {
        std::vector<std::string> rows;
        for (const auto& row : eswitch_->samplers()) {
            rows.push_back(fmt::format("{} {} {}", row->sampler.text(), row->one_of, row->copies.load()));
        }
        return rows;
    };
    ASSERT_TRUE(put(1, "sflow", 400) && put(2, "sflow", 400));
    come_up();
    EXPECT_EQ(counts(), (std::vector<std::string>{"sflow 400 1"})) << "one work";
    ASSERT_TRUE(put(3, "sflow", 64) && put(4, "controller", 1));
    come_up();
    EXPECT_EQ(counts(), (std::vector<std::string>{"sflow 400 2", "sflow 64 1", "controller 1 1"}));
    for (const std::uint64_t number : {1, 2, 3, 4}) (void)eswitch_->del(ufid(number));
    ASSERT_TRUE(tags().empty());
    ASSERT_TRUE(put(5, "sflow", 400));
    come_up();
    EXPECT_EQ(counts(), (std::vector<std::string>{"sflow 400 3", "sflow 64 1", "controller 1 1"}));
    ASSERT_TRUE(installed(eswitch_->put(ufid(6), flow(3).software("\x0d"sv).output(2))));
    come_up();
    EXPECT_EQ(eswitch_->samplers().size(), 3U) << "for nobody who samples";
}

/// Tables behind recirculations take ids from the same numbers.
TEST_F(Software, AnIdIsNotGivenAgainSoonAfterItWent) {
    std::set<std::uint32_t> seen;
    for (int i = 0; i < 200; ++i) {
        ASSERT_TRUE(installed(eswitch_->put(ufid_, flow().software(bytes).output(2).recirc(7))));
        for (const std::uint32_t tag : tags()) EXPECT_TRUE(seen.insert(tag).second) << tag;
        (void)eswitch_->del(ufid_);
    }
    EXPECT_EQ(seen.size(), 400U);
    std::set<std::uint32_t> works;
    for (const std::uint32_t tag : seen) {
        if (eswitch_->work_of(tag) != nullptr) works.insert(tag);
    }
    EXPECT_EQ(works.size(), 200U);
    for (int i = 0; i < 4096; ++i) {
        ASSERT_TRUE(installed(eswitch_->put(ufid_, flow().software(bytes).output(2))));
        (void)eswitch_->del(ufid_);
    }
    for (const std::uint32_t tag : works) EXPECT_EQ(eswitch_->work_of(tag), nullptr) << "that was long ago";
}

TEST_F(Software, AnIdThatNoPacketHadIsNotRemembered) {
    FakeProvider::refuse("tag", ENOMEM);
    ASSERT_NE(reason_of(eswitch_->put(ufid_, flow().software(bytes).output(2))), "installed");
    FakeProvider::refuse("tag", 0);
    (void)eswitch_->del(ufid_);
    for (std::uint32_t id = 0; id < 100; ++id) EXPECT_EQ(eswitch_->work_of(id), nullptr) << id;
}

TEST_F(Software, WithoutAQueueMegaflowsWaitForOne) {
    ASSERT_TRUE(installed(eswitch_->put(ufid(1), flow().software(bytes).output(2))));
    ASSERT_TRUE(installed(eswitch_->put(ufid(2), flow(3).output(2).output(tap))));
    ASSERT_TRUE(installed(eswitch_->put(ufid(3), flow(2).output(1))));
    eswitch_->stop_copies(CopyKind::other);
    EXPECT_EQ(eswitch_->explain(ufid(1))->text,
              "unsupported action: userspace (copies for software have no queue)");
    EXPECT_EQ(eswitch_->explain(ufid(2))->text,
              "output not offloaded: output to a port that is no dr port of this device: datapath port 77");
    EXPECT_TRUE(eswitch_->explain(ufid(3))->offloaded);
    EXPECT_EQ(rules_in("NIC_RX level 2", "dest_qp 0"), 3U) << "the queue's owner may destroy it";
    EXPECT_TRUE(tags().empty());
    ASSERT_TRUE(eswitch_->lead_copies(CopyKind::other, &queue_pair_));
    EXPECT_TRUE(eswitch_->explain(ufid(1))->offloaded);
    EXPECT_TRUE(eswitch_->explain(ufid(2))->offloaded);
}

TEST_F(Software, APortThatComesTakesItsPacketsItself) {
    ASSERT_TRUE(installed(eswitch_->put(ufid_, flow().output(2).output(4))));
    EXPECT_EQ(tags().size(), 1U);
    ASSERT_TRUE(attach(4));
    EXPECT_EQ(megaflow_rules().at(0).at(1), "dest_array [dest_vport 2, dest_vport 4]");
    EXPECT_TRUE(tags().empty());
    eswitch_->detach_port(VportId{4});
    EXPECT_EQ(tags().size(), 1U);
}

TEST_F(Software, AQueueIsReplacedWhileCopiesComeUp) {
    ASSERT_TRUE(installed(eswitch_->put(ufid_, flow().software(bytes).output(2))));
    const auto before = tags();
    (void)FakeProvider::take_events();
    alignas(16) std::uint8_t other[256]{};
    ASSERT_TRUE(eswitch_->lead_copies(CopyKind::other, reinterpret_cast<ibv_qp*>(other)));
    EXPECT_EQ(tags(), before) << "megaflows stay as they are";
    EXPECT_EQ(rules_in("NIC_RX level 2", "dest_qp 0"), 3U + 1);
    std::string order;
    for (const std::string& event : FakeProvider::take_events()) order += event.substr(0, event.find(':')) + "; ";
    EXPECT_EQ(order, "create NIC_RX level 2 priority 1; write NIC_RX; destroy NIC_RX level 2 priority 0; "
                     "drain NIC_RX; ");
}

TEST_F(Software, EachCallOfLeadingCopiesFailsOnceAndLeavesAllAsItWas) {
    close();
    open();
    const auto without = FakeProvider::alive("rule");
    ASSERT_TRUE(eswitch_->lead_copies(CopyKind::other, &queue_pair_));
    const auto of_queue = FakeProvider::alive("rule") - without;
    for (unsigned n = 1;; ++n) {
        close();
        open();
        ASSERT_EQ(reason_of(eswitch_->put(ufid_, flow().software(bytes).output(2))),
                  "unsupported action: userspace (copies for software have no queue)");
        const auto rules = FakeProvider::alive("rule");
        FakeProvider::fail_call(n, ENOMEM);
        const auto led = eswitch_->lead_copies(CopyKind::other, &queue_pair_);
        const std::string call = FakeProvider::failed_call();
        FakeProvider::fail_call(0, 0);
        SCOPED_TRACE("call " + std::to_string(n) + ", " + call);
        if (led && call.empty()) {
            EXPECT_GT(n, 8U);
            break;
        }
        if (led && !eswitch_->explain(ufid_)->offloaded) {
            EXPECT_EQ(FakeProvider::alive("rule"), rules + of_queue) << "a queue has all of its rules";
        }
        if (!led) {
            EXPECT_EQ(led.error().code, ENOMEM);
            EXPECT_FALSE(eswitch_->explain(ufid_)->offloaded);
            EXPECT_LE(FakeProvider::alive("rule"), rules + 1) << "no queue; the table of copies may be there";
            EXPECT_EQ(rules_in("NIC_RX level 2", "dest_qp 0"), 3U);
            ASSERT_TRUE(eswitch_->lead_copies(CopyKind::other, &queue_pair_));
        }
        // A megaflow that the device did not take is tried again by itself.
        EXPECT_TRUE(becomes([&] { return eswitch_->explain(ufid_)->offloaded; }));
        EXPECT_EQ(rules_in("NIC_RX level 2", "dest_qp 0"), 3U + 1);
        (void)eswitch_->del(ufid_);
        EXPECT_EQ(FakeProvider::alive("rule"), rules + of_queue) << "a queue has all of its rules";
    }
}

/// Where the device fails, the queue before goes on, and the new one gets nothing more when that is known.
TEST_F(Software, EachCallOfReplacingTheQueueFailsAndTheQueueBeforeGoesOn) {
    ASSERT_TRUE(installed(eswitch_->put(ufid_, flow().software(bytes).output(2))));
    for (const std::string replaced : {"behind", "in front"}) {   // where the new rule is
        unsigned undone = 0;
        for (unsigned n = 1;; ++n) {
            SCOPED_TRACE(replaced + ", call " + std::to_string(n));
            (void)FakeProvider::take_events();
            FakeProvider::fail_call(n, ENOMEM, 2);   // what is tried again, too
            const auto led = eswitch_->lead_copies(CopyKind::other, &queue_pair_);
            FakeProvider::fail_call(0, 0);
            EXPECT_EQ(rules_in("NIC_RX level 2", "dest_qp 0"), 3U + 1);
            if (led) break;
            const auto events = FakeProvider::take_events();
            if (std::ranges::count(events, "write NIC_RX") == 0) {
                EXPECT_EQ(std::ranges::count(events, "drain NIC_RX"), 0) << "nothing was led to the new queue";
                continue;
            }
            ++undone;
            EXPECT_EQ(events.back(), "drain NIC_RX");
            EXPECT_TRUE(events.at(events.size() - 2).starts_with("destroy NIC_RX level 2"));
        }
        EXPECT_GT(undone, 0U);
    }
}

class SoftwareOfTheHost : public Software {
protected:
    static constexpr std::uint32_t local = 80;

    void SetUp() override {
        Software::SetUp();
        eswitch_->set_host_port(OdpPort{local}, true);
    }
};

TEST_F(SoftwareOfTheHost, ItsCopiesHaveAQueueOfTheirOwn) {
    ASSERT_EQ(reason_of(eswitch_->put(ufid(1), flow().output(2).output(local))),
              "output not offloaded: output to a port that is no dr port of this device: datapath port 80");
    ASSERT_TRUE(installed(eswitch_->put(ufid(2), flow(3).output(2).output(tap))));
    ASSERT_TRUE(eswitch_->lead_copies(CopyKind::host, &queue_pair_));
    EXPECT_TRUE(eswitch_->explain(ufid(1))->offloaded);
    EXPECT_EQ(rules_in("NIC_RX level 2", "dest_qp 0"), 3U + 2);
    eswitch_->stop_copies(CopyKind::host);
    EXPECT_FALSE(eswitch_->explain(ufid(1))->offloaded);
    EXPECT_TRUE(eswitch_->explain(ufid(2))->offloaded) << "the others' queue is still there";
    eswitch_->set_gone_port(OdpPort{local}, true);
    eswitch_->set_host_port(OdpPort{local}, false);
    EXPECT_FALSE(eswitch_->explain(ufid(1))->offloaded);
    eswitch_->set_gone_port(OdpPort{local}, false);
    EXPECT_TRUE(eswitch_->explain(ufid(1))->offloaded) << "another port has the number, and the others' queue";
}

/// OVS deletes the megaflows that name it anyway.
TEST_F(SoftwareOfTheHost, WhenItGoesNothingIsCompiledAgain) {
    ASSERT_TRUE(eswitch_->lead_copies(CopyKind::host, &queue_pair_));
    ASSERT_TRUE(installed(eswitch_->put(ufid(1), flow().output(2).output(local))));
    (void)FakeProvider::take_events();
    eswitch_->set_gone_port(OdpPort{local}, true);
    eswitch_->set_host_port(OdpPort{local}, false);
    EXPECT_TRUE(FakeProvider::take_events().empty());
    eswitch_->del(ufid(1));
}

/// Of a vport's port, whose rules have to go: what went there goes nowhere, as in dpif-netdev, and not to software.
TEST_F(Software, AnOutputToAPortThatHasGoneIsNoCopy) {
    ASSERT_TRUE(installed(eswitch_->put(ufid(1), flow().output(2).output(3))));
    ASSERT_TRUE(installed(eswitch_->put(ufid(2), flow(3).output(2))));
    eswitch_->set_gone_port(OdpPort{2}, true);
    EXPECT_EQ(megaflow_rules().at(0).at(1), "dest_array [dest_vport 2, dest_vport 3]") << "its vport is still there";
    eswitch_->detach_port(VportId{2});
    EXPECT_TRUE(tags().empty());
    EXPECT_TRUE(eswitch_->explain(ufid(1))->offloaded);
    EXPECT_TRUE(eswitch_->explain(ufid(2))->offloaded);
    const auto rules = megaflow_rules();
    ASSERT_EQ(rules.size(), 2U);
    std::set<std::string> ends;
    for (const auto& rule : rules) ends.insert(rule.at(1));
    EXPECT_EQ(ends, (std::set<std::string>{"dest_vport 3", "drop"}));
    eswitch_->set_gone_port(OdpPort{2}, false);
    EXPECT_EQ(tags().size(), 1U) << "a port has the number, and it is another one's";
    EXPECT_FALSE(eswitch_->explain(ufid(2))->offloaded);
}

TEST_F(SoftwareOfTheHost, EachWorkIsCounted) {
    ASSERT_TRUE(eswitch_->lead_copies(CopyKind::host, &queue_pair_));
    ASSERT_TRUE(installed(eswitch_->put(ufid(1), flow().output(2).output(local).output(tap))));
    std::map<std::uint32_t, std::uint64_t> counted;   // by id
    for (const auto& rule : FakeProvider::rules()) {
        if (rule.table != "NIC_RX level 1" || !rule.actions.at(0).starts_with("count ")) continue;
        const auto id = static_cast<std::uint32_t>(std::stoul(rule.actions.at(1).substr(4)));
        counted[id] = 10 + counted.size();
        FakeProvider::count(static_cast<std::uint32_t>(std::stoul(rule.actions[0].substr(6))), counted[id], 0);
    }
    const auto works = eswitch_->works();
    ASSERT_EQ(works.size(), 2U);
    ASSERT_EQ(counted.size(), 2U);
    for (const auto& work : works) {
        EXPECT_EQ(work.copies, counted[work.id]);
        EXPECT_EQ(work.work, eswitch_->work_of(work.id));
    }
    EXPECT_NE(works[0].work->kind, works[1].work->kind);
    (void)eswitch_->del(ufid(1));
    EXPECT_TRUE(eswitch_->works().empty());
}

/// A plain copy, a sampler, a changed copy and a table behind.
TEST_F(Software, EachCallOfAnInstallIsUndone) {
    const ovsdr_megaflow megaflow =
        flow().software(bytes, 64).output(tap).output(2).push(5).software("\x0d"sv).software("\x0e"sv, 9).recirc(7);
    ASSERT_EQ(reason_of(eswitch_->put(ufid_, megaflow)), "installed");
    const auto wanted = objects();
    (void)eswitch_->del(ufid_);
    const auto before = objects();
    std::set<std::string> failed;
    for (unsigned n = 1;; ++n) {
        FakeProvider::fail_call(n, ENOMEM);
        const PutOutcome outcome = eswitch_->put(ufid_, megaflow);
        const std::string call = FakeProvider::failed_call();
        FakeProvider::fail_call(0, 0);
        SCOPED_TRACE("call " + std::to_string(n) + ", " + call);
        if (installed(outcome)) {
            EXPECT_EQ(objects(), wanted);
            (void)eswitch_->del(ufid_);
            EXPECT_EQ(objects(), before);
            if (call.empty()) break;
            continue;
        }
        failed.insert(call);
        (void)eswitch_->del(ufid_);   // so that nobody tries it again now
        EXPECT_EQ(objects(), before);
        EXPECT_TRUE(tags().empty());
        ASSERT_TRUE(installed(eswitch_->put(ufid_, megaflow)));
        EXPECT_EQ(objects(), wanted);
        (void)eswitch_->del(ufid_);
        EXPECT_TRUE(FakeProvider::violations().empty()) << FakeProvider::violations().front();
    }
    for (const char* call : {"mlx5dv_dr_table_create", "dest_table", "mlx5dv_dr_matcher_create",
                             "mlx5dv_dr_rule_create", "modify_header", "flow_sampler", "dest_array", "tag"}) {
        EXPECT_TRUE(failed.contains(call)) << call << " is no part of it";
    }
}

/// Samplers are firmware objects, of which there is an end.
TEST_F(Software, WhenSamplersAreUsedUpMegaflowsGoInAsSoonAsThereIsRoom) {
    FakeProvider::refuse("flow_sampler", ENOSPC);
    const PutOutcome outcome = eswitch_->put(ufid(1), flow().software(bytes, 64).output(2));
    const auto* error = std::get_if<Error>(&outcome);
    ASSERT_NE(error, nullptr);
    EXPECT_EQ(error->code, ENOSPC);
    EXPECT_NE(error->what.find("mlx5dv_dr_action_create_flow_sampler"), std::string::npos) << error->what;
    EXPECT_TRUE(tags().empty());
    ASSERT_TRUE(installed(eswitch_->put(ufid(2), flow(2).output(3)))) << "the device is not full for all";
    FakeProvider::refuse("flow_sampler", 0);
    EXPECT_TRUE(becomes([&] { return eswitch_->explain(ufid(1))->offloaded; }));
}

TEST_F(Software, PeopleReadWhereCopiesGo) {
    ASSERT_TRUE(installed(eswitch_->put(ufid(1), flow().software(bytes).output(2))));
    ASSERT_TRUE(installed(eswitch_->put(ufid(2), flow(3).software(bytes, 64).output(2))));
    const auto report = eswitch_->explain(ufid(1));
    EXPECT_NE(report->text.find("dest_array [dest_vport 2, dest_table (copy to software: userspace 0c01, from datapath "
                                "port 1)]"), std::string::npos) << report->text;
    EXPECT_NE(eswitch_->explain(ufid(2))->text.find("copy to software (1 of 64): userspace 0c01, from datapath port 3"),
              std::string::npos);
    std::string program;
    for (const std::string& line : report->program) program += line + "\n";
    const std::string id = fmt::format("{:#x}", eswitch_->work_of(*tags().begin())->in_port.value == 1
                                                    ? *tags().begin() : *tags().rbegin());
    EXPECT_NE(program.find("tag " + id + ", to the queue for copies"), std::string::npos) << program;
    EXPECT_NE(program.find("FDB branch 1, level 2"), std::string::npos) << program;
    const char* const up = ", dest_table (level 60: default_miss) (copy to software: userspace 0c01";
    EXPECT_NE(program.find(up), std::string::npos) << program;
    const Graph graph = eswitch_->graph();
    ASSERT_TRUE(graph.tables.contains("copies"));
    ASSERT_TRUE(graph.tables.contains("up copies"));
    const auto leads = [&](const std::string& from, const std::string& to) {
        return std::ranges::any_of(graph.edges, [&](const auto& edge) {
            return edge.first.from == from && edge.first.to == to;
        });
    };
    EXPECT_TRUE(leads("recirc_id 0x0 +1", "copies"));
    EXPECT_TRUE(leads("copies", "up 0"));
    EXPECT_TRUE(leads("recirc_id 0x0", "up 0")) << "the sampler's";
    EXPECT_TRUE(leads("up 1", "up copies"));
    EXPECT_TRUE(leads("up copies", "slow path"));
    EXPECT_FALSE(leads("recirc_id 0x0 +1", "drop"));
    EXPECT_NE(eswitch_->show(false).find("copies for software (1 matchers)"), std::string::npos);
}

/// To look at a work's copies is not to have counted them all: the next one with its counter begins at 0.
TEST_F(Software, WhoLooksAtCopiesGivesThemToNobodyElse) {
    const auto count = [](std::uint64_t packets) {
        for (const auto& rule : FakeProvider::rules()) {
            if (rule.table != "NIC_RX level 1" || !rule.actions.at(0).starts_with("count ")) continue;
            FakeProvider::count(static_cast<std::uint32_t>(std::stoul(rule.actions[0].substr(6))), packets, 0);
        }
    };
    ASSERT_TRUE(installed(eswitch_->put(ufid(1), flow().software(bytes).output(2))));
    count(5);
    ASSERT_EQ(eswitch_->works().at(0).copies, 5U);
    count(7);
    (void)eswitch_->del(ufid(1));
    ASSERT_TRUE(installed(eswitch_->put(ufid(2), flow(3).software(bytes).output(2))));
    EXPECT_EQ(eswitch_->works().at(0).copies, 0U);
    EXPECT_EQ(eswitch_->status(ufid(2))->stats.packets, 0U);
}

/// A command to the device takes the main thread's time.
TEST_F(Software, TheDeviceIsAskedOnceForAllWork) {
    constexpr std::uint32_t works = 40;
    for (std::uint32_t n = 0; n < works; ++n) {
        ASSERT_TRUE(installed(eswitch_->put(ufid(n), flow().output(tap + n).output(2))));
    }
    std::uint64_t packets = 0;
    for (const auto& rule : FakeProvider::rules()) {
        if (rule.table != "NIC_RX level 1" || !rule.actions.at(0).starts_with("count ")) continue;
        FakeProvider::count(static_cast<std::uint32_t>(std::stoul(rule.actions[0].substr(6))), ++packets, 0);
    }
    ASSERT_EQ(packets, works);
    const unsigned before = FakeProvider::queries();
    const auto told = eswitch_->works();
    EXPECT_LT(FakeProvider::queries() - before, 4U) << "all lie in one bulk; the poller may have come in between";
    std::set<std::uint64_t> counts;
    for (const auto& work : told) counts.insert(work.copies);
    EXPECT_EQ(counts.size(), works);
    EXPECT_EQ(*counts.begin(), 1U);
    EXPECT_EQ(*counts.rbegin(), works);
}

TEST_F(Software, CopiesAreCountedApartFromMisses) {
    ASSERT_TRUE(installed(eswitch_->put(ufid_, flow().software(bytes).output(2))));
    const auto misses = eswitch_->totals().misses;
    for (const auto& rule : FakeProvider::rules()) {
        if (rule.table != "NIC_RX level 2") continue;   // of ports and of copies
        FakeProvider::count(static_cast<std::uint32_t>(std::stoul(rule.actions[0].substr(6))), 7, 0);
    }
    EXPECT_EQ(eswitch_->totals().misses, misses);
    EXPECT_EQ(eswitch_->totals().copies, 7U);
}

}  // namespace
}  // namespace ovsdr::dr
