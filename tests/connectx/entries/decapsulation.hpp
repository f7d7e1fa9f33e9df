// A tunnel's headers off a packet, up to the frame inside.
//
// The model. What stands before the inner frame's destination address goes; the frame itself is not changed: no ECN is
// carried over, no length or checksum is looked at. docs/fidelity.md says what of this no public document tells.
//
// Threads: a pure function. Errors: Stopped for a packet without a frame inside that packet_headers.hpp knows of, for
// one on the TX side, and for bytes behind the outer IP packet.
#pragma once

#include "tests/connectx/entries/packet.hpp"

namespace ovsdr::connectx::entries {

void decapsulate(Packet& packet);

}  // namespace ovsdr::connectx::entries
