// A rule's list of actions, checked and turned into a Program.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "datapath/steering/dr_action.hpp"
#include "datapath/steering/dr_matcher.hpp"
#include "datapath/steering/rule_table.hpp"

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
    std::array<Op, max_rule_ops> ops{};
    std::uint8_t length = 0;
    End end;
    /// What the ops and the end point to.
    std::array<std::shared_ptr<const void>, max_rule_objects> kept;
    std::uint8_t kept_length = 0;
};

/// What an action list needs to know beyond its actions.
struct RuleContext {
    std::uint16_t queue = 0;           ///< the destination of the list's receiver action
    const AsoUse* linked = nullptr;    ///< what its connection-tracking action asks by a link, not by itself
};
[[nodiscard]] RulePlan compile_actions(const Matcher& matcher, std::span<Action* const> actions,
                                       const RuleContext& context);

/// A node for a rule of that value.
[[nodiscard]] std::unique_ptr<RuleNode> make_node(const Matcher& matcher, const Key& value, RulePlan plan);

}  // namespace ovsdr::soft
