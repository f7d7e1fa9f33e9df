// From the shapes in which a packet goes somewhere to one Path, and from a Path to one that a device takes.
//
// Model. join(): what all shapes have in common happens once, before the packet is copied; what they have not becomes a
// branch each. arrange(): a device takes actions in certain orders only, and fewer than that on one side of the FDB
// (device/action_order.hpp). Each rule begins anew, so whatever may not follow goes on along a branch.
//
// Threads: pure functions.
#pragma once

#include <vector>

#include "offload/dr/compile/obstacles.hpp"
#include "offload/dr/compile/plan.hpp"
#include "offload/dr/device/action_order.hpp"
#include "offload/dr/device/caps.hpp"

namespace ovsdr::dr {

/// `legs`: with distinct changes, each with an end.
[[nodiscard]] Path join(std::vector<Path> legs);

/// `path`: of a megaflow's rule, which counts. Adds what no order can mend to `obstacles`.
void arrange(Path& path, Side side, const DeviceCaps& caps, Obstacles& obstacles);

}  // namespace ovsdr::dr
