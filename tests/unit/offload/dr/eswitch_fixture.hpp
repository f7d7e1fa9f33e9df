// An Eswitch with three ports on the recording provider, and what tests ask of the two.
#pragma once

#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <set>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "offload/dr/compile/plan.hpp"
#include "offload/dr/device/leak.hpp"
#include "offload/dr/eswitch.hpp"
#include "tests/unit/offload/fake_provider.hpp"
#include "tests/unit/offload/megaflow_builder.hpp"

namespace ovsdr::dr {

using ovsdr::test::FakeProvider;
using test::MegaflowBuilder;

/// Waits for what another thread brings about; long enough for any machine.
template <typename Condition>
bool becomes(Condition&& condition) {
    for (int i = 0; i < 60000 && !condition(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return condition();
}

class EswitchTest : public ::testing::Test {
protected:
    void SetUp() override {
        FakeProvider::reset();
        open();
    }
    void TearDown() override {
        close();
        EXPECT_EQ(FakeProvider::alive(), 0U);
        EXPECT_TRUE(FakeProvider::violations().empty()) << FakeProvider::violations().front();
        EXPECT_EQ(leaked_objects(), 0U);
    }

    void open() {
        auto opened = Eswitch::open("fake_0");
        ASSERT_TRUE(opened) << opened.error().what;
        eswitch_ = *opened;
        for (const std::uint32_t odp : {1U, 2U, 3U}) ASSERT_TRUE(attach(odp));
    }
    void close() {
        if (eswitch_ == nullptr) return;
        for (const std::uint16_t vport : {1, 2, 3}) eswitch_->detach_port(VportId{vport});
        eswitch_.reset();
    }
    Result<void> attach(std::uint32_t odp) {
        return eswitch_->attach_port({OdpPort{odp}, VportId{static_cast<std::uint16_t>(odp)},
                                      "vf" + std::to_string(odp), &queue_pair_, 0x100 + odp});
    }

    /// Actions of the rules in the megaflow table, but the one that marks misses.
    static std::vector<std::vector<std::string>> megaflow_rules() {
        std::vector<std::vector<std::string>> rules;
        for (const auto& rule : FakeProvider::rules()) {
            const bool counts = !rule.actions.empty() && rule.actions[0].starts_with("count");
            if (rule.table == "FDB level 1" && counts) rules.push_back(rule.actions);
        }
        return rules;
    }
    /// Rules of the table that have this action.
    static std::size_t rules_in(const std::string& table, const std::string& action) {
        const auto rules = FakeProvider::rules();
        return static_cast<std::size_t>(std::ranges::count_if(rules, [&](const auto& rule) {
            return rule.table == table && std::ranges::count(rule.actions, action) != 0;
        }));
    }
    /// All rules: "FDB level 1 priority 2 {source_port=0x1}: count, dest_vport 2"; without numbers of counters.
    static std::multiset<std::string> rule_texts() {
        const auto param_of = [](const std::vector<std::uint8_t>& bytes) {
            MatchParam param;
            std::copy_n(bytes.begin(), std::min(bytes.size(), param.bytes.size()), param.bytes.begin());
            return param;
        };
        std::multiset<std::string> texts;
        for (const auto& rule : FakeProvider::rules()) {
            std::string text = rule.table + " priority " + std::to_string(rule.priority) + " " +
                               text_of(param_of(rule.mask), param_of(rule.value)) + ":";
            for (const std::string& action : rule.actions) {
                text += " " + (action.starts_with("count ") ? "count" : action);
            }
            texts.insert(text);
        }
        return texts;
    }
    /// Those that have come since.
    static std::vector<std::string> rules_since(const std::multiset<std::string>& before) {
        const std::multiset<std::string> now = rule_texts();
        std::vector<std::string> added;
        std::ranges::set_difference(now, before, std::back_inserter(added));
        return added;
    }
    /// The counter that the only megaflow rule counts into.
    static std::uint32_t only_counter() {
        const auto rules = megaflow_rules();
        EXPECT_EQ(rules.size(), 1U);
        return rules.empty() ? 0 : static_cast<std::uint32_t>(std::stoul(rules[0][0].substr(6)));
    }
    bool installed(const PutOutcome& outcome) { return std::holds_alternative<std::monostate>(outcome); }

    std::shared_ptr<Eswitch> eswitch_;
    // The provider never looks into it.
    alignas(16) std::uint8_t queue_pair_bytes_[256]{};
    ibv_qp& queue_pair_ = reinterpret_cast<ibv_qp&>(queue_pair_bytes_);
    static constexpr Ufid ufid_{0x1122334455667788, 0x99aabbccddeeff00};
};

}  // namespace ovsdr::dr
