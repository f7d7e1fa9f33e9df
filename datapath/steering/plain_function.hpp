// A device that is a plain function: its owner has no rights on the eSwitch that it is part of. There is no FDB and no
// vport but itself; what its queues send and no rule takes goes to the uplink, and what comes from there to its NIC_RX.
//
// libmlx5 makes an FDB domain on such a function all the same, in which then nothing can be made: the calls in
// verbs/dr refuse it.
//
// Threads: the first before the first packet, the second any.
#pragma once

namespace ovsdr::soft {

class Steering;

void make_plain_function(Steering& steering) noexcept;
[[nodiscard]] bool is_plain_function(const Steering& steering) noexcept;

}  // namespace ovsdr::soft
