// The compiler for a plain function: what NIC_RX can do for a megaflow, or a Reject. Pure.
//
// Model. The match is compile.hpp's, without the port that packets come from: all that NIC_RX sees has come from the
// only one. All of the megaflow's mask is in it, or it is refused: a marked packet is the megaflow's for certain.
//
// What is refused though a mark would not change a packet: actions for which OVS needs a hash of the packet, which it
// takes when it looks at the headers, and of a marked packet it looks at none. tnl_push (UDP's source port), hash and
// lb_output need it, and lists that may have these inside, OVS's slow path's among them. Behind a recirculation OVS
// looks at the headers, of which no other hash must come by then than of those that came in (packet_hash.hpp).
//
// A VLAN tag is never taken off a packet here: OVS does all actions of the megaflow, and would take off another one.
#pragma once

#include "offload/dr/compile/compile.hpp"

namespace ovsdr::dr {

struct NicPlan {
    MatchPlan match;
    bool drops;   ///< false: marks
    friend bool operator==(const NicPlan&, const NicPlan&) = default;
};

/// `ports`: the function's own, if it is in the datapath. What comes from a policed port is never dropped here, since
/// the policer counts it.
[[nodiscard]] Compiled<NicPlan> compile_for_function(const ovsdr_megaflow& megaflow, const PortMap& ports,
                                                     const DeviceCaps& caps) noexcept;

}  // namespace ovsdr::dr
