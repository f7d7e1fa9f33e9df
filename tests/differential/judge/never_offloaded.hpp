// Megaflows that no device takes, and that are not drawn, since OVS hardly makes them: values that it writes nowhere,
// lists that its translation does not end with, options of ovs-dr that no NIC fulfils.
//
// Each is put beside those of the scenario, must be refused by the name of what is in the way, and is deleted. No
// packet is asked.
//
// Threads: one. Errors: std::runtime_error for one that is not refused so.
#pragma once

#include "offload/dr/eswitch.hpp"

namespace ovsdr::differential {

/// Of an eswitch with this proof's ports and tunnel ports. Megaflows of tunnels leave the device and come again.
void check_never_offloaded(dr::Eswitch& eswitch);

}  // namespace ovsdr::differential
