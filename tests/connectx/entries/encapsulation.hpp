// A tunnel's headers in front of a packet, as a reformat object of the type L2 to L2 tunnel puts them there.
//
// The model. The object's bytes go before the frame, unchanged but for what depends on the packet: the lengths of IPv4,
// IPv6 and UDP, IPv4's header checksum, and UDP's, which becomes 0 (none). docs/fidelity.md says what of this no public
// document tells.
//
// Threads: a pure function. Errors: Stopped for headers that end in the middle of one.
#pragma once

#include <cstdint>
#include <span>

#include "tests/connectx/entries/packet.hpp"

namespace ovsdr::connectx::entries {

void encapsulate(std::span<const std::uint8_t> headers, Packet& packet);

}  // namespace ovsdr::connectx::entries
