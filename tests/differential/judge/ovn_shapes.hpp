// The shapes of megaflows that OVN makes, and megaflows of such shapes.
//
// The model. A line of dpctl/dump-flows is a shape: which fields are matched under which masks, which actions follow.
// Values and ports are drawn anew. Megaflows of different shapes are told apart by the destination address, which OVN's
// match, too, but for a few. Lines are as frequent as in the file. Those whose match no judge can pose (what ct and ARP
// leave, tunnels that the packet came out of) are left out.
//
// Threads: pure. Errors: std::runtime_error for a file that is not there.
#pragma once

#include <string>
#include <vector>

#include "tests/differential/judge/action_list.hpp"

namespace ovsdr::differential {

struct Shape {
    Megaflow megaflow;   ///< masks and no values; of the actions no ports, ids and values
    bool refused = false;   ///< one of its actions no NIC does
};

[[nodiscard]] std::vector<Shape> read_shapes(const std::string& path);

/// About `length` leaves of a tree (trees.hpp) with this root. Empty where no shape has its ethertype and tags.
[[nodiscard]] std::vector<Megaflow> grow_shapes(Chance& chance, const std::vector<Shape>& shapes, const Megaflow& root,
                                                std::size_t length, const NextTable& next_table);

}  // namespace ovsdr::differential
