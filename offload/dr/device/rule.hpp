// A Direct Rule: a value of a matcher's mask, and what happens to the packets that have it.
//
// Owns the provider's rule; holds its matcher and its actions, and lets go of them after the rule is gone. A megaflow's
// counter is its own: what it counts into is held by whoever holds the rule.
//
// Threads: creation and destruction from any thread. Errors: errno of mlx5dv_dr_rule_create().
// Source: mlx5dv_dr_flow(3), "Rule".
#pragma once

#include <memory>

#include "offload/dr/device/action.hpp"
#include "offload/dr/device/matcher.hpp"

namespace ovsdr::dr {

class Rule {
public:
    /// `value` has no bit outside the matcher's mask. `counter`, if any, comes before the other actions and outlives
    /// the rule.
    [[nodiscard]] static Result<Rule> create(MatcherRef matcher, const MatchParam& value, ActionList actions,
                                             mlx5dv_dr_action* counter = nullptr) noexcept;

    Rule() noexcept = default;
    ~Rule();
    Rule(Rule&& other) noexcept;
    Rule& operator=(Rule&& other) noexcept;

    [[nodiscard]] explicit operator bool() const noexcept { return rule_ != nullptr; }
    /// Takes it out of the device; what it needs goes with the Rule, since packets may be under way in there. False:
    /// the device keeps it, and packets go on by it and count into its counter.
    bool end() noexcept;
    [[nodiscard]] const MatcherRef& matcher() const noexcept { return matcher_; }
    [[nodiscard]] const ActionList& actions() const noexcept { return actions_; }
    /// Fetches what its end touches first: of many rules that end together, each then waits for memory less.
    void prefetch() const noexcept { __builtin_prefetch(rule_, 1); }

private:
    Rule(MatcherRef matcher, ActionList actions, mlx5dv_dr_rule* rule) noexcept
        : rule_(rule), actions_(std::move(actions)), matcher_(std::move(matcher)) {}

    // The rule goes in the destructor's body; then, in reverse, the matcher's share, then actions and whatever else is
    // kept with them.
    mlx5dv_dr_rule* rule_ = nullptr;
    ActionList actions_;
    MatcherRef matcher_;
};

}  // namespace ovsdr::dr
