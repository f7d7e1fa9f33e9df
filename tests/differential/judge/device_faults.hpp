// Calls that fail while megaflows come in, as those of a device that is full for a moment.
#pragma once

#include <map>
#include <string>

#include "tests/connectx/device.hpp"

namespace ovsdr::differential {

/// Until `device.clear_faults()`. A megaflow that meets one waits, and must be in the NIC all the same when its phase
/// begins: no other judge hears of faults.
void make_calls_fail(connectx::Device& device);

/// The next reading of counters fails, once. Whoever reads counters for the last time must then read them again.
void make_next_read_fail(connectx::Device& device);

/// The `nth` call from now on that makes something fails, and no other one; 0: none. Whether the one before did.
bool make_one_call_fail(connectx::Device& device, unsigned nth);

/// Objects alive, by kind.
using Objects = std::map<std::string, std::uint64_t>;

/// What megaflows have made of the device: the same before the first one and behind the last. Without what is kept for
/// megaflows to come, which goes with the eswitch.
[[nodiscard]] Objects made_for_megaflows(const connectx::Device& device);

/// libmlx5 shares a definer among matchers of one mask, as it finds them: which of the standing ones share depends on
/// who came when. So fewer of them than before, and a few more, are as many; none is left when the eswitch has gone.
[[nodiscard]] Objects with_shared_definers(const Objects& before, Objects after);

/// std::runtime_error, with the kinds of which there are more or fewer now.
void check_same(const Objects& before, const Objects& after, const std::string& what);

}  // namespace ovsdr::differential
