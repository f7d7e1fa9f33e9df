// A device that does not let go of a rule. In a program of its own: what is leaked is counted per process.
#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <optional>

#include "offload/dr/eswitch.hpp"
#include "offload/dr/device/leak.hpp"
#include "tests/unit/offload/fake_provider.hpp"
#include "tests/unit/offload/megaflow_builder.hpp"

namespace ovsdr::dr {
namespace {

using ovsdr::test::FakeProvider;
using test::MegaflowBuilder;

TEST(KeptRule, CountsIntoNoOthersCounter) {
    FakeProvider::reset();
    const auto eswitch = *Eswitch::open("fake_0");
    alignas(16) std::uint8_t queue_pair[256]{};   // the provider never looks into it
    for (const std::uint16_t vport : {1, 2}) {
        const PortSpec port{OdpPort{vport}, VportId{vport}, "vf", reinterpret_cast<ibv_qp*>(queue_pair), vport};
        ASSERT_TRUE(eswitch->attach_port(port));
    }
    ASSERT_TRUE(std::holds_alternative<std::monostate>(eswitch->put({1, 1}, MegaflowBuilder().ipv4().output(2))));
    const auto counter_of = [&](const Ufid& ufid) {
        const std::string text = eswitch->explain(ufid)->text;
        return static_cast<std::uint32_t>(std::stoul(text.substr(text.find("count#") + 6)));
    };
    const std::uint32_t kept = counter_of({1, 1});
    EXPECT_EQ(eswitch->totals().kept_rules, 0U);
    FakeProvider::keep_rules(true);
    (void)eswitch->del(Ufid{1, 1});
    FakeProvider::keep_rules(false);
    EXPECT_EQ(eswitch->totals().kept_rules, 1U);
    EXPECT_GE(leaked_objects(), 1U) << "its matcher stays with it";
    ASSERT_TRUE(std::holds_alternative<std::monostate>(eswitch->put({2, 2}, MegaflowBuilder().ipv6().output(2))));
    EXPECT_NE(counter_of({2, 2}), kept);
    FakeProvider::count(kept, 5, 500);   // the rule goes on
    EXPECT_EQ(eswitch->del(Ufid{2, 2})->packets, 0U);
    for (const std::uint16_t vport : {1, 2}) eswitch->detach_port(VportId{vport});
}

/// A modification whose new rule does not get into the device's memory, and does not leave it either: it shares the
/// counter of the old rule, which goes.
TEST(KeptRule, OfAModificationThatFailedHasTheCounterForItself) {
    const auto eswitch = *Eswitch::open("fake_0");
    alignas(16) std::uint8_t queue_pair[256]{};
    for (const std::uint16_t vport : {1, 2, 3}) {
        const PortSpec port{OdpPort{vport}, VportId{vport}, "vf", reinterpret_cast<ibv_qp*>(queue_pair), vport};
        ASSERT_TRUE(eswitch->attach_port(port));
    }
    ASSERT_TRUE(std::holds_alternative<std::monostate>(eswitch->put({1, 1}, MegaflowBuilder().ipv4().output(2))));
    const auto counter_of = [&](const Ufid& ufid) {
        const std::string text = eswitch->explain(ufid)->text;
        return static_cast<std::uint32_t>(std::stoul(text.substr(text.find("count#") + 6)));
    };
    const std::uint32_t shared = counter_of({1, 1});
    FakeProvider::refuse("mlx5dv_dr_domain_sync", EIO);
    FakeProvider::keep_rules(true, "dest_vport 3");
    ASSERT_TRUE(std::holds_alternative<Error>(eswitch->put({1, 1}, MegaflowBuilder().ipv4().output(3))));
    FakeProvider::keep_rules(false);
    FakeProvider::refuse("mlx5dv_dr_domain_sync", 0);
    EXPECT_EQ(eswitch->totals().kept_rules, 1U);
    (void)eswitch->del(Ufid{1, 1});
    ASSERT_TRUE(std::holds_alternative<std::monostate>(eswitch->put({2, 2}, MegaflowBuilder().ipv6().output(2))));
    EXPECT_NE(counter_of({2, 2}), shared) << "the rule that the device keeps goes on counting";
    (void)eswitch->del(Ufid{2, 2});
    for (const std::uint16_t vport : {1, 2, 3}) eswitch->detach_port(VportId{vport});
}

TEST(KeptRule, LeadsToATableThatStaysWhole) {
    const auto eswitch = *Eswitch::open("fake_0");
    alignas(16) std::uint8_t queue_pair[256]{};
    const PortSpec port{OdpPort{1}, VportId{1}, "vf", reinterpret_cast<ibv_qp*>(queue_pair), 1};
    ASSERT_TRUE(eswitch->attach_port(port));
    ASSERT_TRUE(std::holds_alternative<std::monostate>(eswitch->put({1, 1}, MegaflowBuilder().ipv4().recirc(7))));
    const auto misses_go_up = [] {
        return std::ranges::any_of(FakeProvider::rules(), [](const auto& rule) {
            return rule.table == "FDB level 9" && std::ranges::count(rule.actions, "dest_table 60") != 0;
        });
    };
    ASSERT_TRUE(misses_go_up());
    ASSERT_TRUE(std::holds_alternative<std::monostate>(eswitch->put({1, 2}, MegaflowBuilder().ipv4().behind(7))));
    FakeProvider::keep_rules(true);
    (void)eswitch->del(Ufid{1, 1});
    FakeProvider::keep_rules(false);
    (void)eswitch->del(Ufid{1, 2});
    EXPECT_TRUE(misses_go_up()) << "packets still come by the rule that the device keeps";
    EXPECT_EQ(eswitch->table_of(2), std::optional(TableKey{7}));
    eswitch->detach_port(VportId{1});
}

}  // namespace
}  // namespace ovsdr::dr
