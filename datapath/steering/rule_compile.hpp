// A rule's list of actions, checked and turned into a Program.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "datapath/steering/dr_action.hpp"
#include "datapath/steering/dr_matcher.hpp"
#include "datapath/steering/rule_table.hpp"
#include "datapath/steering/short_list.hpp"

namespace ovsdr::soft {

/// Which sides a rule of `matcher` with this value exists on.
[[nodiscard]] std::uint8_t sides_of(const Matcher& matcher, const Key& value) noexcept;

/// All refusals of libmlx5 (and, for root tables, the kernel).
[[nodiscard]] int check_actions(const Matcher& matcher, std::uint8_t sides, std::span<Action* const> actions) noexcept;

/// A counter, an edit, two decapsulations and two encapsulations, three ASO objects, a meter, a sampler and its edit,
/// an array.
inline constexpr unsigned max_rule_objects = 13;

/// A checked list of actions as a Program that has no node yet.
struct RulePlan {
    ShortList<Op, max_rule_ops> ops;
    End end;
    /// What the ops and the end point to.
    ShortList<std::shared_ptr<const void>, max_rule_objects> kept;
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

/// A node for a rule of that value; the plan has gone into it.
[[nodiscard]] std::unique_ptr<RuleNode> make_node(const Matcher& matcher, const Key& value, RulePlan& plan);

}  // namespace ovsdr::soft
