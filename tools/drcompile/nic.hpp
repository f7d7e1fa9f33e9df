// What a NIC would make of all the megaflows of an input.
//
// Model. Each megaflow is compiled for itself; one that leads to a recirculation makes a table there, and those behind
// it go in when there is such a table. Tables get their levels as on a NIC that is offered the megaflows in the order
// of the input, and again what waited for a table: a live one may have got them in another order.
//
// Of megaflows that coincide to the device (install/tunnel_rules.hpp) each is taken for itself: which of them is there
// first a dump does not say.
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "offload/dr/compile/compile.hpp"
#include "offload/dr/megaflow_store.hpp"

namespace ovsdr::drcompile {

struct Verdict {
    std::optional<dr::RulePlan> plan;        ///< it is offloaded, by this
    std::uint32_t level = 0;                 ///< of its table
    std::vector<dr::Obstacle> obstacles;     ///< or all that keeps it in software
};

/// One for each megaflow.
[[nodiscard]] std::vector<Verdict> offload_all(std::span<const dr::StoredMegaflow> megaflows, const dr::PortMap& ports,
                                               const dr::DeviceCaps& caps);

}  // namespace ovsdr::drcompile
