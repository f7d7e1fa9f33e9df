// A port's queue is replaced while packets come up, and each call of the device fails in turn.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <span>

#include "offload/dr/eswitch.hpp"
#include "tests/unit/offload/fake_provider.hpp"

namespace ovsdr::dr::test {

/// Lets each call of a switch fail in turn, until one switch is made. Each rule of the new queue, in `table`, has led
/// packets to it by the time it goes: the outcome must say how many these were, and the old queue's rules must stay.
inline void expect_all_told_when_switches_fail(Eswitch& eswitch, VportId vport, ibv_qp* qp,
                                               std::span<const QueuePairFor> by_kind, const std::string& table) {
    using ovsdr::test::FakeProvider;
    const auto rules_there = [&table] {
        return std::ranges::count(FakeProvider::rules(), table, &FakeProvider::RuleView::table);
    };
    const auto before = rules_there();
    constexpr unsigned packets = 7;
    static std::uint32_t sqn = 0x2000;
    unsigned most = 0;
    for (unsigned call = 1;; ++call) {
        SCOPED_TRACE(call);
        const std::uint64_t misses = eswitch.totals().misses;
        FakeProvider::count_at_destroy(packets);
        FakeProvider::fail_call(call, ENOSPC, 2);   // a sync is asked for twice
        const QueueSwitch outcome = eswitch.switch_queue(vport, qp, ++sqn, by_kind);
        FakeProvider::fail_call(0, 0);
        FakeProvider::count_at_destroy(0);
        ASSERT_LT(call, 100U);
        if (outcome.made) break;
        EXPECT_EQ(outcome.led_up, packets * FakeProvider::destroyed_rules());
        // An eSwitch counts them before they come down.
        const std::uint64_t more = eswitch.plain_function() != nullptr ? outcome.led_up : 0;
        EXPECT_EQ(eswitch.totals().misses, misses + more);
        EXPECT_EQ(rules_there(), before) << "those of the old queue";
        most = std::max(most, FakeProvider::destroyed_rules());
    }
    EXPECT_EQ(most, by_kind.size() + 1) << "the last thing that fails is the wait for the device";
    eswitch.forget_old_queue(vport);
}

}  // namespace ovsdr::dr::test
