// From the shapes in which a packet goes somewhere to one Path, and from a Path to one that a device takes.
//
// Model. join(): what all shapes have in common happens once, before the packet is copied; what they have not becomes a
// branch each. arrange(): a device takes actions in certain orders only, and fewer than that on one side of the FDB
// (device/action_order.hpp). Each rule begins anew, so whatever may not follow goes on along a branch.
//
// meter(): a rule for each meter, in front of all else but decapsulation. The rules behind them count what passed, with
// the length that the packets had when they met the meter.
//
// Threads: pure functions.
#pragma once

#include <span>
#include <vector>

#include "offload/dr/compile/obstacles.hpp"
#include "offload/dr/compile/plan.hpp"
#include "offload/dr/device/action_order.hpp"
#include "offload/dr/device/caps.hpp"

namespace ovsdr::dr {

/// `legs`: with distinct changes, each with an end.
[[nodiscard]] Path join(std::vector<Path> legs);

/// `path`: of a megaflow's rule, which counts, with so many rules in front for meters. Adds what no order can mend to
/// `obstacles`.
void arrange(Path& path, Side side, const DeviceCaps& caps, std::size_t meters, Obstacles& obstacles);

/// The path of packets that meet the meters first, one after the other. `path` is arranged.
[[nodiscard]] Path meter(Path path, std::span<const MeterUse> meters, Side side, const DeviceCaps& caps);

}  // namespace ovsdr::dr
