// A rule's list of actions, checked and turned into what lanes do by it.
#pragma once

#include <cstdint>
#include <span>

#include "datapath/steering/dr_action.hpp"
#include "datapath/steering/dr_matcher.hpp"
#include "datapath/steering/program.hpp"
#include "datapath/steering/short_list.hpp"

namespace ovsdr::soft {

/// Which sides a rule of `matcher` with this value exists on.
[[nodiscard]] std::uint8_t sides_of(const Matcher& matcher, const Key& value) noexcept;

/// All refusals of libmlx5 (and, for root tables, the kernel).
[[nodiscard]] int check_actions(const Matcher& matcher, std::uint8_t sides, std::span<Action* const> actions) noexcept;

/// A checked list of actions as what a rule does, before there is the rule.
struct RulePlan {
    ShortList<Op, max_rule_ops> ops;
    End end;
};

/// What an action list needs to know beyond its actions.
struct RuleContext {
    std::uint8_t sides = side_both;    ///< that the rule exists on
    std::uint16_t queue = 0;           ///< the destination of the list's receiver action
    const AsoUse* linked = nullptr;    ///< what its connection-tracking action asks by a link, not by itself
};
/// `plan` is empty.
void compile_actions(const Matcher& matcher, std::span<Action* const> actions, const RuleContext& context,
                     RulePlan& plan);

}  // namespace ovsdr::soft
