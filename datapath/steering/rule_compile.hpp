// A rule's list of actions, checked and turned into a Program.
#pragma once

#include <cstdint>
#include <span>

#include "datapath/steering/dr_action.hpp"
#include "datapath/steering/dr_matcher.hpp"
#include "datapath/steering/rule_table.hpp"

namespace ovsdr::soft {

/// Which sides a rule of `matcher` with this value exists on.
[[nodiscard]] std::uint8_t sides_of(const Matcher& matcher, const Key& value) noexcept;

/// All refusals of libmlx5 (and, for root tables, the kernel).
[[nodiscard]] int check_actions(const Matcher& matcher, std::uint8_t sides, std::span<Action* const> actions) noexcept;

/// Fills node.program and node.kept from a checked list. `queue` is the destination of its receiver action.
void compile_actions(const Matcher& matcher, std::span<Action* const> actions, std::uint16_t queue, RuleNode& node);

}  // namespace ovsdr::soft
