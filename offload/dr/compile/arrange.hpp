// From the shapes in which a packet goes somewhere to one Path, and from a Path to one that a device takes.
//
// Model. join(): what all shapes have in common happens once, before the packet is copied; what they have not becomes a
// branch each. arrange(): a device takes actions in certain orders only, and fewer than that on one side of the FDB
// (device/action_order.hpp). Each rule begins anew, so whatever may not follow goes on along a branch.
//
// sample(): one of several packets is copied for software by a rule of its own, behind the changes and in front of
// where the packet goes.
//
// put_in_front(): a rule for each meter, and for the copies that are taken before the last of them, in front of all
// else but decapsulation. The rules behind meters count what passed, with the length that the packets had when they met
// the meter.
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

/// Of samples among its branches, which have none of their own, the path of packets that meet them.
[[nodiscard]] Path sample(Path path);

/// `path`: of a megaflow's rule, which counts, with so many rules in front. Adds what no order can mend to `obstacles`.
void arrange(Path& path, Side side, const DeviceCaps& caps, std::size_t in_front, Obstacles& obstacles);

/// The path of packets that meet these first, one after the other: a meter or a sample, which has no branch here, or a
/// copy of each packet, metered or not, which is one. `path` is arranged.
[[nodiscard]] Path put_in_front(Path path, std::span<const Path> front, Side side, const DeviceCaps& caps);

}  // namespace ovsdr::dr
