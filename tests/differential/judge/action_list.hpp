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
[[nodiscard]] std::vector<Action> draw_actions(Chance& chance, const Megaflow& megaflow, const NextTable& next_table,
                                               Rarity& rarity);

/// Puts copies for software and meters into a list.
void add_copies_and_meters(Chance& chance, const Megaflow& megaflow, bool connectx_5, std::vector<Action>& actions);

/// Whose packets a megaflow of the uplink takes, and nothing else.
[[nodiscard]] std::optional<TunnelKind> tunnel_of(const Megaflow& megaflow);

/// A port that is not the megaflow's own. Of a tunnel's rarely the uplink.
[[nodiscard]] Action draw_output(Chance& chance, const Megaflow& megaflow);
[[nodiscard]] Action draw_push(Chance& chance);

}  // namespace ovsdr::differential
