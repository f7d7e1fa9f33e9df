// Calls that fail while megaflows come in, as those of a device that is full for a moment.
#pragma once

#include <map>
#include <string>

#include "tests/connectx/device.hpp"

namespace ovsdr::differential {

/// Until `device.clear_faults()`. A megaflow that meets one waits, and must be in the NIC all the same when its phase
/// begins: no other judge hears of faults.
void make_calls_fail(connectx::Device& device);

/// What megaflows have made of the device, by kind: the same before the first one and behind the last.
[[nodiscard]] std::map<std::string, std::uint64_t> made_for_megaflows(const connectx::Device& device);

}  // namespace ovsdr::differential
