// Random megaflows of packets as they come from a port, disjoint as those of dpif-netdev are.
//
// The model. They grow as leaves of trees: one tree for each in_port, ethertype and kind of tags; each inner node tells
// its children apart by values of one feature under one mask. Each tunnel's packets have trees of their own. So no
// packet belongs to two megaflows, megaflows of a tree share few masks (as a switch's do), and values that no child has
// are near misses.
//
// Threads: pure.
#pragma once

#include <functional>
#include <vector>

#include "tests/differential/judge/names.hpp"

namespace ovsdr::differential {

using DrawActions = std::function<std::vector<Action>(const Megaflow&)>;

/// Leaves of a root, about so many, of another kind of tree; none: it has no such tree.
using GrowInstead = std::function<std::vector<Megaflow>(const Megaflow& root, std::size_t share)>;

/// About `length` of them.
[[nodiscard]] std::vector<Megaflow> grow_trees(Chance& chance, Rarity& rarity, std::size_t length,
                                               const DrawActions& actions, const GrowInstead& grow_instead);

/// Looks for zero of some metadata in some megaflows.
void draw_metadata(Chance& chance, Megaflow& megaflow);

}  // namespace ovsdr::differential
