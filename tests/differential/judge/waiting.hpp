// A megaflow that waits for a table, and changes while it waits.
//
// The scenario's megaflows wait for tables, and for a device that is full, but hardly ever for both in turn. This one
// does, before they come.
//
// Threads: one. Errors: std::runtime_error where it is not in the NIC, or is, and should not be.
#pragma once

#include <functional>

#include "offload/dr/eswitch.hpp"

namespace ovsdr::differential {

/// Of an eswitch with this proof's ports. `trouble(1)`: the next call fails that makes something; 0: none.
void check_waiting(dr::Eswitch& eswitch, const std::function<void(unsigned nth)>& trouble);

}  // namespace ovsdr::differential
