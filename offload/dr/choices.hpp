// What a user chose where the device cannot do what OVS does: other_config:dr-tunnel-*.
//
// Threads: a value.
#pragma once

namespace ovsdr::dr {

struct Choices {
    /// Each encapsulated packet must have the UDP source port that OVS would give it: not in the NIC.
    bool exact_tunnel_source_port = false;
    /// A match for a tunnel's CSUM flag (and for DF, if a packet had it: OVS's tnl_pop never sets it), which the device
    /// does not see, must hold: not in the NIC. OVS matches both in every megaflow of a tunnel port.
    bool exact_tunnel_flags = false;
    friend bool operator==(const Choices&, const Choices&) = default;
};

}  // namespace ovsdr::dr
