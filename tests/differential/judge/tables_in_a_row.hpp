// How many tables in a row a device needs behind a megaflow's own, worked out a second time.
//
// The model. A rule changes its packets in one order and leads them somewhere; what it cannot do goes on in a table
// with one rule, and so does each copy that differs from the others. Samplers stand in front of what they sample, one
// behind the other.
//
// Threads: pure.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/differential/judge/packet_shape.hpp"

namespace ovsdr::differential {

/// The packets of one shape that go somewhere.
struct Leg {
    PacketShape shape;
    bool decapsulates = false;              ///< they come out of a tunnel
    bool goes_out = false;                  ///< to vports, or to tables of megaflows
    std::map<std::string, bool> copies{};   ///< for software, by work: whether the device limits them by a meter
    unsigned samplers = 0;
};

[[nodiscard]] unsigned tables_in_a_row(const std::vector<Leg>& legs, bool from_wire, bool connectx_5);

}  // namespace ovsdr::differential
