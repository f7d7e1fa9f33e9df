// Megaflows that no device takes, and that are not drawn, since OVS hardly makes them: values that it writes nowhere,
// lists that its translation does not end with, options of ovs-dr that no NIC fulfils.
//
// Each is put beside those of the scenario, must be refused by the name of what is in the way, and is deleted. No
// packet is asked.
//
// Threads: one. Errors: std::runtime_error for one that is not refused so.
#pragma once

#include <functional>

#include "offload/dr/eswitch.hpp"

namespace ovsdr::differential {

/// Of an eswitch with this proof's ports and tunnel ports. `while_exact` is called while it has to do what no NIC does
/// with tunnels (dr::Choices): megaflows of theirs leave the device for that, and come again.
void check_never_offloaded(dr::Eswitch& eswitch, const std::function<void()>& while_exact);

}  // namespace ovsdr::differential
