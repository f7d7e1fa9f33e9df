// The shapes of megaflows that OVN makes, and megaflows of such shapes.
//
// The model. A line of dpctl/dump-flows is a shape: which fields are matched under which masks, which actions follow.
// Values and ports are drawn anew, so that no two megaflows overlap. Lines are drawn as often as they are in the file,
// but for those with actions that no NIC does (ct, userspace, meter): they are most of the file, and one in ten here.
// Left out are lines that match what ct has set, ARP and ND, which trees.cpp poses.
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

/// About `length` leaves of a tree (trees.hpp) with this root. Empty where no shape is of its packets.
[[nodiscard]] std::vector<Megaflow> grow_shapes(Chance& chance, const std::vector<Shape>& shapes, const Megaflow& root,
                                                std::size_t length, const NextTable& next_table);

/// A shape of packets such as this megaflow's, in its tunnel or in none; null: there is none.
[[nodiscard]] const Shape* shape_like(Chance& chance, const std::vector<Shape>& shapes, const Megaflow& megaflow);

/// Draws ports, values and tables of actions that have none.
void draw_ports(Chance& chance, Megaflow& megaflow, const NextTable& next_table);

}  // namespace ovsdr::differential
