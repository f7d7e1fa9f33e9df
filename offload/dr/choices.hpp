// What a user chose where the device cannot do what OVS does: other_config:dr-tunnel-*.
//
// Threads: a value.
#pragma once

namespace ovsdr::dr {

struct Choices {
    /// Each encapsulated packet must have the UDP source port that OVS would give it: not in the NIC. Nor may a packet
    /// come up whose hash, of which OVS makes that port, would be another one by then (compile/packet_hash.hpp).
    bool exact_tunnel_source_port = false;
    /// What the device does not see of a tunnel's headers must be as OVS has it, too: not in the NIC. No device sees
    /// UDP's CSUM flag, which OVS matches in every megaflow of a tunnel port; some do not see reserved bits.
    bool exact_tunnel_flags = false;
    friend bool operator==(const Choices&, const Choices&) = default;
};

}  // namespace ovsdr::dr
