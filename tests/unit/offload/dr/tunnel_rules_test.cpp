// What rules of tunnels' tables have against one another, without the rules: who waits is told when it may go in, and
// no sooner. On the recording provider.
#include <gtest/gtest.h>

#include <cerrno>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "offload/dr/install/make.hpp"
#include "offload/dr/install/tunnel_rules.hpp"
#include "tests/unit/offload/fake_provider.hpp"

namespace ovsdr::dr {
namespace {

using ovsdr::test::FakeProvider;
using Held = std::shared_ptr<FlowTable>;
using Keys = std::vector<TableKey>;

constexpr TableKey tunnel{0, 20}, behind{4, 20};
constexpr GeneveOption first{0x102, 0x80}, second{0x102, 0x81};

class RulesOfTunnels : public ::testing::Test {
protected:
    void SetUp() override {
        FakeProvider::reset();
        device_ = *Device::open("fake_0");
        fdb_ = *Domain::create(device_, DomainType::fdb);
        landing_ = *Landing::create(device_, {});
        tables_ = std::make_shared<TableSet>(fdb_, *Action::default_miss(), *landing_, std::make_shared<LandingIds>());
        rules_ = std::make_shared<TunnelRules>(device_, tables_);
        lead_ = *tables_->lead_to(tunnel, Levels::entry, 0);
        table_ = tables_->find(tunnel);
        tables_->on_change([this](TableKey key) {
            told_.push_back(key);
            if (when_told_) when_told_();
        });
    }
    void TearDown() override {
        FakeProvider::refuse("mlx5dv_devx_obj_create", 0);
        (void)fdb_->drain();
        lead_.reset();
        table_.reset();
        rules_.reset();
        tables_.reset();
        landing_.reset();
        fdb_.reset();
        device_.reset();
        EXPECT_EQ(FakeProvider::alive(), 0U);
    }
    /// To a vport.
    static RulePlan plan(TableKey table, std::uint16_t to, std::optional<GeneveOption> option = {}) {
        RulePlan made;
        made.match.table = table;
        made.match.geneve_option = option;
        made.match.ask(field::source_port, 0xFFFF, 0xFFFF);
        made.path.vports = {VportId{to}};
        return made;
    }
    static Ufid ufid(std::uint64_t number) { return {number, 0}; }
    Result<Held> hold(std::uint64_t number, const RulePlan& plan) { return rules_->hold(ufid(number), plan, table_); }
    std::string obstacle(std::uint64_t number, const RulePlan& plan) {
        const auto no_way = rules_->obstacle_to(ufid(number), plan);
        return no_way ? std::string(no_way->reject.obstacles.at(0).name.text()) : "";
    }
    /// Since it was asked last.
    Keys told() { return std::exchange(told_, {}); }
    /// The device will not look for an option.
    void refuse(int code, unsigned times) {
        FakeProvider::refuse("mlx5dv_devx_obj_create", code);
        for (unsigned i = 0; i < times; ++i) {
            const auto held = hold(100 + i, plan(tunnel, 1, first));
            ASSERT_FALSE(held);
            EXPECT_EQ(held.error().code, code);
        }
        FakeProvider::refuse("mlx5dv_devx_obj_create", 0);
    }

    static constexpr unsigned most_refusals = 4;   // until it is left alone for a while

    std::shared_ptr<Device> device_;
    std::shared_ptr<Domain> fdb_;
    std::unique_ptr<Landing> landing_;
    std::shared_ptr<TableSet> tables_;
    std::shared_ptr<TunnelRules> rules_;
    ActionRef lead_;
    Held table_;
    Keys told_;
    std::function<void()> when_told_;
};

TEST_F(RulesOfTunnels, OneMatchIsOneMegaflowsUntilThatHasGone) {
    auto held = hold(1, plan(tunnel, 1));
    ASSERT_TRUE(held);
    EXPECT_EQ(*held, table_);
    EXPECT_EQ(obstacle(1, plan(tunnel, 2)), "") << "its own";
    EXPECT_EQ(obstacle(2, plan(tunnel, 1)), "") << "a twin";
    EXPECT_EQ(obstacle(2, plan(tunnel, 2)), "tun_flags");
    RulePlan other_flags = plan(tunnel, 1);
    other_flags.match.unseen_flags = 1;
    EXPECT_EQ(obstacle(3, other_flags), "tun_flags") << "no twin";
    const auto refused = hold(2, plan(tunnel, 2));
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, EBUSY);
    when_told_ = [this] { EXPECT_EQ(obstacle(2, plan(tunnel, 2)), "") << "it has gone by now"; };
    held->reset();
    EXPECT_EQ(told(), Keys{tunnel}) << "once for all that wait";
    when_told_ = nullptr;
    auto next = hold(4, plan(tunnel, 1));
    ASSERT_TRUE(next);
    next->reset();
    EXPECT_EQ(told(), Keys{}) << "nobody waits";
}

TEST_F(RulesOfTunnels, TheLastOfTwinsMakesRoom) {
    auto one = hold(1, plan(tunnel, 1)), twin = hold(2, plan(tunnel, 1));
    ASSERT_TRUE(one && twin);
    EXPECT_EQ(obstacle(3, plan(tunnel, 2)), "tun_flags");
    one->reset();
    EXPECT_EQ(told(), Keys{}) << "its twin is there";
    EXPECT_EQ(obstacle(4, plan(tunnel, 2)), "tun_flags");
    twin->reset();
    EXPECT_EQ(told(), Keys{tunnel});
}

/// A megaflow that is modified holds its match twice, for two paths.
TEST_F(RulesOfTunnels, OneThatIsModifiedTellsWhenItsOldRuleGoes) {
    auto old = hold(1, plan(tunnel, 1)), modified = hold(1, plan(tunnel, 2));
    ASSERT_TRUE(old && modified);
    EXPECT_EQ(obstacle(2, plan(tunnel, 2)), "tun_flags");
    old->reset();
    EXPECT_EQ(told(), Keys{tunnel});
    EXPECT_EQ(obstacle(2, plan(tunnel, 2)), "") << "a twin now";
    RulePlan other_flags = plan(tunnel, 3);
    other_flags.match.unseen_flags = 1;
    auto flags = hold(1, other_flags);
    ASSERT_TRUE(flags);
    EXPECT_EQ(obstacle(2, plan(tunnel, 2)), "tun_flags");
    flags->reset();
    EXPECT_EQ(told(), Keys{tunnel});
}

TEST_F(RulesOfTunnels, OneMatchInOtherTablesIsAnother) {
    std::vector<Held> all;
    std::uint16_t number = 0;
    constexpr std::uint32_t high = 0x80000000;
    for (const TableKey table : {tunnel, TableKey{0, 21}, TableKey{0, high + 20}, TableKey{1, 20}, TableKey{2, 20},
                                 TableKey{1, 21}, TableKey{20, 1}, TableKey{high + 1, 20}, TableKey{high, 20}}) {
        ++number;
        EXPECT_EQ(obstacle(number, plan(table, number)), "") << text_of(table);
        auto held = hold(number, plan(table, number));
        ASSERT_TRUE(held) << text_of(table);
        all.push_back(std::move(*held));
    }
}

TEST_F(RulesOfTunnels, AnotherOptionWaitsUntilTheLastOfTheFirstHasGone) {
    auto one = hold(1, plan(tunnel, 1, first));
    RulePlan also = plan(tunnel, 1, first);
    also.match.ask(field::source_port, 1, 0xFFFF);
    auto other = hold(2, also);
    ASSERT_TRUE(one && other);
    EXPECT_EQ(obstacle(3, plan(behind, 1, first)), "");
    EXPECT_EQ(obstacle(3, plan(behind, 1, second)), "tun_metadata");
    EXPECT_EQ(obstacle(4, plan(tunnel, 1)), "") << "none is none of another";
    const auto refused = hold(3, plan(behind, 1, second));
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, EBUSY);
    one->reset();
    EXPECT_EQ(told(), Keys{behind}) << "who finds that it has to wait still";
    EXPECT_EQ(obstacle(3, plan(behind, 1, second)), "tun_metadata");
    when_told_ = [this] { EXPECT_EQ(obstacle(3, plan(behind, 1, second)), ""); };
    other->reset();
    EXPECT_EQ(told(), Keys{behind});
    when_told_ = nullptr;
    EXPECT_TRUE(hold(3, plan(behind, 1, second)));
    EXPECT_EQ(told(), Keys{}) << "nobody waits";
}

/// Whatever the device said.
TEST_F(RulesOfTunnels, ADeviceThatRefusesOptionsIsLeftAloneAndThenEverybodyIsTold) {
    for (const int code : {EINVAL, ENOMEM}) {
        refuse(code, most_refusals - 1);
        EXPECT_EQ(obstacle(1, plan(tunnel, 1, first)), "") << "not refused often enough";
        refuse(code, 1);
        const auto no_way = rules_->obstacle_to(ufid(1), plan(behind, 1, first));
        ASSERT_TRUE(no_way);
        EXPECT_TRUE(no_way->again_at);
        EXPECT_EQ(no_way->because, behind);
        EXPECT_GT(*no_way->again_at, std::chrono::steady_clock::now() + std::chrono::seconds(1));
        EXPECT_EQ(obstacle(1, plan(tunnel, 1)), "") << "without one";
        auto held = hold(1, plan(tunnel, 1, first));   // it was asked all the same
        ASSERT_TRUE(held);
        EXPECT_EQ(told(), Keys{behind});
        EXPECT_EQ(obstacle(2, plan(behind, 1, first)), "") << "it looks for that one now";
        held->reset();
        EXPECT_EQ(told(), Keys{});
        rules_ = std::make_shared<TunnelRules>(device_, tables_);
    }
}

TEST_F(RulesOfTunnels, RefusalsInARowAreCountedAnewAfterOneThatIsTaken) {
    refuse(ENOMEM, most_refusals - 1);
    auto held = hold(1, plan(tunnel, 1, first));
    ASSERT_TRUE(held);
    EXPECT_EQ(obstacle(2, plan(behind, 1, second)), "tun_metadata");
    held->reset();
    EXPECT_EQ(told(), Keys{behind});
    refuse(ENOMEM, most_refusals - 1);
    EXPECT_EQ(obstacle(1, plan(tunnel, 1, first)), "");
}

/// That the device looks for another one says nothing of what it would do without that.
TEST_F(RulesOfTunnels, AnOptionInTheWayIsNoRefusalOfTheDevices) {
    auto held = hold(1, plan(tunnel, 1, first));
    ASSERT_TRUE(held);
    for (unsigned i = 0; i < 2 * most_refusals; ++i) EXPECT_FALSE(hold(2, plan(tunnel, 1, second)));
    held->reset();
    EXPECT_EQ(obstacle(2, plan(tunnel, 1, second)), "");
}

}  // namespace
}  // namespace ovsdr::dr
