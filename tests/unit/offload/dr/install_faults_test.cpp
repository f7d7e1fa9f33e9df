// Installs of several rules on the recording provider, each of whose calls fails once: what was made is unmade, the
// megaflow says which call it was, and goes in when it is put again. And devices that have run out of something.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <set>

#include "offload/dr/device/device.hpp"
#include "tests/unit/offload/dr/eswitch_fixture.hpp"
#include "tests/unit/offload/tunnel_headers.hpp"

namespace ovsdr::dr {
namespace {

/// What a megaflow leaves in the device by kind, but for bulks of counters, which stay for the next one.
using Objects = std::map<std::string, unsigned>;

class InstallFaults : public EswitchTest {
protected:
    void SetUp() override {
        EswitchTest::SetUp();
        ASSERT_TRUE(eswitch_->attach_port({OdpPort{9}, uplink_vport, "uplink", &queue_pair_, 0x109}));
    }
    void TearDown() override {
        FakeProvider::fail_call(0, 0);
        eswitch_->detach_port(uplink_vport);
        EswitchTest::TearDown();
    }

    static Objects objects() {
        Objects alive;
        for (const char* kind : {"rule", "matcher", "table", "domain"}) alive[kind] = FakeProvider::alive(kind);
        alive["action"] = FakeProvider::alive("action") - FakeProvider::counting_actions();
        return alive;
    }
    /// Rules by table and actions, without numbers of counters and tables.
    static std::multiset<std::string> rules() {
        std::multiset<std::string> texts;
        for (const auto& rule : FakeProvider::rules()) {
            std::string text = rule.table + ":";
            for (const std::string& action : rule.actions) {
                const bool is_number = action.starts_with("count ") || action.starts_with("tag ");
                text += " " + (is_number ? action.substr(0, action.find(' ')) : action);
            }
            texts.insert(text);
        }
        return texts;
    }
    /// A new device with single counters: the next megaflow needs another, and its action.
    void reopen_without_counters() {
        eswitch_->detach_port(uplink_vport);
        close();
        FakeProvider::set_counter_bulks(0);
        open();
        ASSERT_TRUE(eswitch_->attach_port({OdpPort{9}, uplink_vport, "uplink", &queue_pair_, 0x109}));
        bulks_ = FakeProvider::alive("devx");
    }
    void expect_named(const PutOutcome& outcome, const std::string& call) {
        const auto* error = std::get_if<Error>(&outcome);
        ASSERT_NE(error, nullptr);
        // What the fake calls "dest_array" is mlx5dv_dr_action_create_dest_array to offload/.
        const std::string name = call == "mlx5dv_devx_obj_create" ? "ALLOC_FLOW_COUNTER" : call;
        EXPECT_NE(error->what.find(name), std::string::npos) << error->what;
        EXPECT_NE(error->what.find(std::strerror(error->code)), std::string::npos) << error->what;
        const auto counts = eswitch_->reasons();
        EXPECT_TRUE(std::ranges::any_of(counts, [&](const auto& count) {
            return count.reason == "device error" && count.total == 1 && count.detail.find(name) != std::string::npos;
        }));
    }
    std::uint32_t counter_of(const Ufid& ufid) {
        const std::string text = eswitch_->explain(ufid)->text;
        return static_cast<std::uint32_t>(std::stoul(text.substr(text.find("count#") + 6)));
    }

    /// A copy into a tunnel, a rewrite, a port, and a new table behind a tag: a rule, two private tables, an array.
    MegaflowBuilder parent() const {
        return MegaflowBuilder(1).ipv4().proto(17).copy().tunnel(vxlan_).output(9).end_copy()
            .set(OVSDR_HEADER_IP_TTL, {63}).output(2).push(5).recirc(7);
    }

    const test::HeaderBytes vxlan_ = test::vxlan();
    unsigned bulks_ = 0;   ///< with which the device begins
};

TEST_F(InstallFaults, EachCallOfAnInstallOfSeveralRulesIsUndoneAndNamed) {
    const ovsdr_megaflow megaflow = parent();
    ASSERT_TRUE(installed(eswitch_->put(ufid_, megaflow)));
    const std::multiset<std::string> wanted = rules();
    (void)eswitch_->del(ufid_);
    const std::multiset<std::string> without = rules();
    std::set<std::string> failed;
    unsigned calls = 0;
    // Twice, for what is asked a second time.
    for (const unsigned times : {1U, 2U}) {
        for (unsigned n = 1;; ++n) {
            reopen_without_counters();
            const Objects before = objects();
            FakeProvider::fail_call(n, ENOMEM, times);
            const PutOutcome outcome = eswitch_->put(ufid_, megaflow);
            const std::string call = FakeProvider::failed_call();
            FakeProvider::fail_call(0, 0);
            SCOPED_TRACE("call " + std::to_string(n) + ", " + call);
            if (installed(outcome)) {
                EXPECT_EQ(rules(), wanted);
                if (call.empty()) break;
                // Those two are asked again; the poller asks as well.
                EXPECT_TRUE(call == "mlx5dv_devx_obj_query" || (times == 1 && call == "mlx5dv_dr_domain_sync"));
                continue;
            }
            failed.insert(call);
            ++calls;
            expect_named(outcome, call);
            (void)eswitch_->del(ufid_);   // so that nobody tries it again now
            EXPECT_EQ(objects(), before);
            EXPECT_EQ(rules(), without);
            ASSERT_TRUE(installed(eswitch_->put(ufid_, megaflow)));
            EXPECT_EQ(rules(), wanted);
            EXPECT_EQ(FakeProvider::alive("devx"), bulks_ + 1) << "a bulk that came stays, and serves";
            (void)eswitch_->del(ufid_);
            EXPECT_EQ(objects(), before);
            EXPECT_TRUE(FakeProvider::violations().empty()) << FakeProvider::violations().front();
        }
    }
    for (const char* call : {"mlx5dv_devx_obj_create", "flow_counter", "mlx5dv_dr_table_create", "dest_table",
                             "mlx5dv_dr_matcher_create", "mlx5dv_dr_rule_create", "modify_header", "packet_reformat",
                             "push_vlan", "dest_array", "tag", "mlx5dv_dr_domain_sync"}) {
        EXPECT_TRUE(failed.contains(call)) << call << " is no part of it";
    }
    std::printf("FIGURE %u failures of calls of one install\n", calls);
}

/// Each kind of change before each other one, in one rule: an action that could not be made is not passed over.
TEST_F(InstallFaults, ARuleHasAllOfItsActionsOrThereIsNone) {
    constexpr std::uint32_t tunnel = 20;
    eswitch_->set_tunnel_port({OdpPort{tunnel}, TunnelKind::vxlan, 4789, "vxlan_sys_4789"});
    MegaflowBuilder into(9);
    into.ipv4().proto(17).ports(0, 4789).tunnel_pop(tunnel).raw().mask.be_tp_src = 0;
    ASSERT_TRUE(installed(eswitch_->put({9, 9}, into)));
    const auto change = [](MegaflowBuilder flow) {
        return flow.ipv4().vlan(5, 0x88a8).second_vlan(6).set(OVSDR_HEADER_IP_TTL, {63}).pop().pop();
    };
    for (const MegaflowBuilder& megaflow : {change(MegaflowBuilder(1)).push(7).push(8).output(2),
                                            change(MegaflowBuilder(1)).push(7).tunnel(vxlan_).output(9),
                                            change(MegaflowBuilder(1)).push(7).output(2).output(3).recirc(8),
                                            change(MegaflowBuilder(tunnel).from_tunnel(5)).push(7).output(2)}) {
        const std::multiset<std::string> without = rules();
        ASSERT_TRUE(installed(eswitch_->put(ufid_, megaflow))) << eswitch_->explain(ufid_)->text;
        const std::multiset<std::string> wanted = rules();
        (void)eswitch_->del(ufid_);
        for (unsigned n = 1;; ++n) {
            FakeProvider::fail_call(n, ENOMEM);
            const PutOutcome outcome = eswitch_->put(ufid_, megaflow);
            const std::string call = FakeProvider::failed_call();
            FakeProvider::fail_call(0, 0);
            if (installed(outcome)) {
                EXPECT_EQ(rules(), wanted) << "call " << n << ", " << call;
            }
            (void)eswitch_->del(ufid_);
            EXPECT_EQ(rules(), without) << "call " << n << ", " << call;
            if (call.empty()) break;
            ASSERT_TRUE(installed(eswitch_->put(ufid_, megaflow))) << "nothing is left of the failure";
            (void)eswitch_->del(ufid_);
        }
    }
    (void)eswitch_->del(Ufid{9, 9});
}

/// The megaflow had another rule: that goes, its count stays.
TEST_F(InstallFaults, EachCallOfAModificationLeavesNoRuleAndNoCountBehind) {
    const ovsdr_megaflow simple = MegaflowBuilder(1).ipv4().proto(17).output(3), megaflow = parent();
    const Objects before = objects();
    for (unsigned n = 1;; ++n) {
        ASSERT_TRUE(installed(eswitch_->put(ufid_, simple)));
        FakeProvider::count(counter_of(ufid_), 5, 500);
        FakeProvider::fail_call(n, ENOSPC);
        const PutOutcome outcome = eswitch_->put(ufid_, megaflow);
        const std::string call = FakeProvider::failed_call();
        FakeProvider::fail_call(0, 0);
        SCOPED_TRACE("call " + std::to_string(n) + ", " + call);
        if (!installed(outcome)) {
            EXPECT_EQ(std::get<Error>(outcome).code, ENOSPC);
            EXPECT_TRUE(becomes([&] { return eswitch_->explain(ufid_)->offloaded; })) << "tried again by itself";
            FakeProvider::count(counter_of(ufid_), 2, 200);
        }
        EXPECT_EQ(eswitch_->del(ufid_)->packets, installed(outcome) ? 5U : 7U);
        EXPECT_EQ(objects(), before);
        if (call.empty()) break;
    }
}

/// What waits behind a recirculation goes in when the parent does, and not before.
TEST_F(InstallFaults, AChildWaitsForAParentThatFails) {
    const ovsdr_megaflow megaflow = parent(), child = MegaflowBuilder(1).ipv4().proto(17).vlan(5).behind(7).output(3);
    const Objects before = objects();
    for (unsigned n = 1;; ++n) {
        EXPECT_TRUE(std::holds_alternative<Reject>(eswitch_->put({1, 2}, child)));
        FakeProvider::fail_call(n, ENOMEM);
        const PutOutcome outcome = eswitch_->put(ufid_, megaflow);
        const std::string call = FakeProvider::failed_call();
        FakeProvider::fail_call(0, 0);
        SCOPED_TRACE("call " + std::to_string(n) + ", " + call);
        const auto both = [&] { return eswitch_->explain(ufid_)->offloaded && eswitch_->explain({1, 2})->offloaded; };
        EXPECT_TRUE(becomes(both));
        (void)eswitch_->del(ufid_);
        (void)eswitch_->del(Ufid{1, 2});
        EXPECT_EQ(objects(), before);
        if (call.empty()) break;
    }
}

/// Something of which a device may have no more, and whether plain megaflows need it too.
struct Resource {
    const char* call;
    int code;
    bool of_all;
};

class Exhaustion : public InstallFaults, public ::testing::WithParamInterface<Resource> {};

TEST_P(Exhaustion, MegaflowsStayInSoftwareUntilThereIsRoom) {
    const auto& [call, code, of_all] = GetParam();
    reopen_without_counters();
    const Objects before = objects();
    FakeProvider::refuse(call, code);
    constexpr std::uint64_t some = 30;
    const auto ready = [&](std::uint64_t first, std::uint64_t last) {
        for (std::uint64_t i = first; i < last; ++i) {
            if (!eswitch_->explain({i, 1})->offloaded) return false;
        }
        return true;
    };
    for (std::uint64_t i = 0; i < some; ++i) {
        MegaflowBuilder flow = parent();
        flow.ports(static_cast<std::uint16_t>(i), 53).raw().actions[flow.raw().n_actions - 1].recirc_id = 7 + i;
        const PutOutcome outcome = eswitch_->put({i, 1}, flow);
        ASSERT_TRUE(std::holds_alternative<Error>(outcome)) << i;
        if (i == 0) {
            EXPECT_EQ(std::get<Error>(outcome).code, code);
            expect_named(outcome, call);
        }
    }
    for (std::uint64_t i = some; i < 2 * some; ++i) {
        (void)eswitch_->put({i, 1}, MegaflowBuilder(2).ipv4().proto(17).ports(i, 53).output(3));
    }
    if (!of_all) {
        EXPECT_TRUE(becomes([&] { return ready(some, 2 * some); })) << "megaflows that do not need it go in";
    }
    EXPECT_EQ(eswitch_->totals().failed, of_all ? 2 * some : some);
    EXPECT_FALSE(eswitch_->explain({0, 1})->offloaded);
    FakeProvider::refuse(call, 0);
    EXPECT_TRUE(becomes([&] { return ready(0, 2 * some); })) << "there is room";
    EXPECT_EQ(eswitch_->totals().failed, 0U);
    for (std::uint64_t i = 0; i < 2 * some; ++i) (void)eswitch_->del(Ufid{i, 1});
    EXPECT_EQ(objects(), before);
}

INSTANTIATE_TEST_SUITE_P(Each, Exhaustion,
                         ::testing::Values(Resource{"mlx5dv_dr_table_create", ENOMEM, false},
                                           Resource{"mlx5dv_dr_matcher_create", ENOSPC, true},
                                           Resource{"mlx5dv_dr_rule_create", ENOMEM, true},
                                           Resource{"mlx5dv_devx_obj_create", ENOSPC, true},
                                           Resource{"packet_reformat", ENOMEM, false},
                                           Resource{"modify_header", ENOSPC, false},
                                           Resource{"dest_array", ENOMEM, false}),
                         [](const auto& each) { return std::string(each.param.call); });

}  // namespace
}  // namespace ovsdr::dr
