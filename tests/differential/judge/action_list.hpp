// The actions of a megaflow, drawn.
//
// Threads: pure.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "tests/differential/judge/megaflows.hpp"

namespace ovsdr::differential {

/// The recirc_id that a megaflow may lead to next; nothing: none.
using NextTable = std::function<std::optional<std::uint32_t>()>;

/// Outputs between changes of tags and headers, copies, tunnels, a recirculation; sometimes nothing, or changes that
/// nobody sees.
[[nodiscard]] std::vector<Action> draw_actions(Chance& chance, const Megaflow& megaflow, const NextTable& next_table);

/// A port that is not the megaflow's own.
[[nodiscard]] Action draw_output(Chance& chance, const Megaflow& megaflow);
[[nodiscard]] Action draw_push(Chance& chance);

}  // namespace ovsdr::differential
