// The set of tables alone, on the recording provider: whom it tells of what, and ways that no plan asks for.
#include <gtest/gtest.h>

#include <cerrno>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "offload/dr/install/make.hpp"
#include "offload/dr/install/table_set.hpp"
#include "tests/unit/offload/fake_provider.hpp"

namespace ovsdr::dr {
namespace {

using ovsdr::test::FakeProvider;
using Keys = std::vector<TableKey>;

constexpr TableKey table{7}, other{8};

class Tables : public ::testing::Test {
protected:
    void SetUp() override {
        FakeProvider::reset();
        device_ = *Device::open("fake_0");
        fdb_ = *Domain::create(device_, DomainType::fdb);
        landing_ = *Landing::create(device_, {});
        set_ = std::make_shared<TableSet>(fdb_, *Action::default_miss(), *landing_, std::make_shared<LandingIds>());
        // Who is told may ask: of a table that has come, or has gone.
        set_->on_change([this](TableKey key) {
            told_.push_back(key);
            found_ = set_->find(key) != nullptr;
            changes_ = set_->changes();
        });
    }
    void TearDown() override {
        set_.reset();
        landing_.reset();
        fdb_.reset();
        device_.reset();
        EXPECT_EQ(FakeProvider::alive(), 0U);
        EXPECT_EQ(FakeProvider::violations(), std::vector<std::string>{});
    }
    Result<ActionRef> lead(TableKey to, std::uint32_t level = Levels::entry, unsigned depth = 0) {
        return set_->lead_to(to, level, depth);
    }
    /// Since it was asked last.
    Keys told() { return std::exchange(told_, {}); }

    std::shared_ptr<Device> device_;
    std::shared_ptr<Domain> fdb_;
    std::unique_ptr<Landing> landing_;
    std::shared_ptr<TableSet> set_;
    Keys told_;
    bool found_ = false;
    std::uint64_t changes_ = 0;
};

TEST_F(Tables, TellOnceWhenOneComesAndWhenItGoes) {
    auto first = lead(table);
    ASSERT_TRUE(first);
    EXPECT_EQ(told(), Keys{table});
    EXPECT_TRUE(found_);
    EXPECT_EQ(changes_, 1U) << "it had grown by then";
    auto second = lead(table);
    ASSERT_TRUE(second);
    EXPECT_EQ(*first, *second) << "one action";
    EXPECT_EQ(told(), Keys{}) << "it was there";
    EXPECT_EQ(set_->changes(), 1U);
    (void)fdb_->drain();
    *first = *second = ActionRef();
    EXPECT_EQ(told(), Keys{table});
    EXPECT_FALSE(found_);
    EXPECT_EQ(changes_, 2U);
    set_->tell(other);
    EXPECT_EQ(told(), Keys{other});
    EXPECT_EQ(set_->changes(), 3U);
}

TEST_F(Tables, NobodyIsToldOfOneThatTheDeviceDidNotMake) {
    for (const char* call : {"mlx5dv_dr_table_create", "tag", "modify_header", "mlx5dv_dr_matcher_create",
                             "mlx5dv_dr_rule_create", "mlx5dv_dr_domain_sync"}) {
        SCOPED_TRACE(call);
        FakeProvider::refuse(call, ENOMEM);
        const auto made = lead(table);
        FakeProvider::refuse(call, 0);
        ASSERT_FALSE(made);
        EXPECT_EQ(made.error().code, ENOMEM);
        EXPECT_EQ(told(), Keys{});
        EXPECT_EQ(set_->changes(), 0U);
        EXPECT_EQ(set_->find(table), nullptr);
        EXPECT_TRUE(set_->tables().empty());
        for (std::uint32_t id = Landing::entry_id + 1; id < 10; ++id) EXPECT_EQ(set_->key_of(id), std::nullopt) << id;
    }
    const auto leading = lead(table);
    ASSERT_TRUE(leading);
    EXPECT_EQ(told(), Keys{table});
    (void)fdb_->drain();
}

/// The table is there then, and nobody leads to it: it goes at once.
TEST_F(Tables, OneToWhichTheDeviceDoesNotLeadIsGone) {
    FakeProvider::refuse("dest_table", ENOMEM);
    const auto made = lead(table);
    FakeProvider::refuse("dest_table", 0);
    ASSERT_FALSE(made);
    EXPECT_EQ(set_->find(table), nullptr);
    EXPECT_TRUE(set_->tables().empty());
}

TEST_F(Tables, NoWayLeadsBackOrTooDeep) {
    ASSERT_TRUE(lead(other, Levels::highest - Levels::per_table));
    const auto back = lead(table);
    ASSERT_TRUE(back);
    const std::uint32_t level = Levels::entry + Levels::per_table;
    for (const auto& [from, depth] : {std::pair{level, 0U}, {level - 1, 1U}, {level + 1, 0U}}) {
        const auto refused = lead(table, from, depth);
        ASSERT_FALSE(refused) << from << "+" << depth;
        EXPECT_EQ(refused.error().code, ELOOP);
        EXPECT_EQ(refused.error().what, "no way up to recirc_id 0x7");
    }
    EXPECT_TRUE(lead(table, level - 1));
    const auto deep = lead(other, Levels::highest - Levels::per_table + 1);
    ASSERT_FALSE(deep);
    EXPECT_EQ(deep.error().code, ELOOP);
    (void)fdb_->drain();
}

TEST_F(Tables, AreKnownByTheirIds) {
    const auto entry = set_->make_entry();
    ASSERT_TRUE(entry);
    EXPECT_EQ(set_->key_of((*entry)->id()), std::optional(TableKey{}));
    EXPECT_TRUE(set_->tables().empty()) << "the entry is its maker's";
    EXPECT_EQ(set_->find(TableKey{}), nullptr);
    auto first = lead(table), second = lead(other);
    ASSERT_TRUE(first && second);
    EXPECT_TRUE(TableSet::any_ever());
    EXPECT_EQ(set_->tables().size(), 2U);
    const std::uint32_t id = set_->find(table)->id(), other_id = set_->find(other)->id();
    EXPECT_EQ(set_->key_of(id), std::optional(table));
    EXPECT_EQ(set_->key_of(other_id), std::optional(other));
    EXPECT_EQ(set_->key_of(other_id + 1), std::nullopt);
    (void)fdb_->drain();
    *first = ActionRef();
    EXPECT_EQ(set_->tables().size(), 1U);
    EXPECT_EQ(set_->key_of(id), std::optional(table)) << "packets may be under way with it";
}

/// From the inside: packets that have its mark come down as long as a rule gives it.
TEST_F(Tables, OneThatGoesTakesItsMarkOutLast) {
    auto leading = lead({0, 20});
    ASSERT_TRUE(leading);
    (void)fdb_->drain();
    (void)FakeProvider::take_events();
    *leading = ActionRef();
    std::vector<std::string> events = FakeProvider::take_events();
    for (std::string& event : events) event = event.substr(0, event.find(':'));
    ASSERT_EQ(events.size(), 7U + 1);
    for (int i = 0; i < 6; ++i) EXPECT_EQ(events[i], "destroy FDB level 9 priority 0") << "ends of connections";
    EXPECT_EQ(events[6], "destroy FDB level 9 priority 2");
    EXPECT_EQ(events[7], "destroy NIC_RX level 1 priority 0");
}

}  // namespace
}  // namespace ovsdr::dr
