// What megaflows ask of the tunnel that their packets come through, as the device has it.
//
// Model. A megaflow with tnl_pop sends its packets, as they are, into the table of a tunnel port (plan.hpp): the device
// must open what OVS would, and all of them. Rules in that table match the outer headers and the tunnel's own beside
// the inner ones. As everywhere: exact, or narrower on purpose, or refused. Narrower is
// - IPv4: no options, with which OVS drops the packet;
// - VXLAN and Geneve: what the device's parser reads as such (UDP 4789, 6081), Geneve with an Ethernet frame inside;
// - GRE: an Ethernet frame inside, no checksum, which the device would not check, and no sequence number;
// - the tunnel's own header: versions, flags and reserved bits as those have them whose packets OVS takes an Ethernet
//   frame out of. That is asked where packets enter the tunnel: others go up there, as they came.
//
// What a device does not see is the named difference (docs/tunnels.md): the outer UDP checksum, be it there or wrong,
// which no device sees; on ConnectX-5 reserved bits of Geneve and GRE. OVS matches the CSUM flag in every megaflow of a
// tunnel port. Megaflows that differ in nothing else coincide.
//
// Threads: pure functions. Source: OVS lib/netdev-native-tnl.c, lib/tun-metadata.c, ofproto/tunnel.c tnl_wc_init().
#pragma once

#include <cstdint>
#include <optional>

#include "offload/dr/choices.hpp"
#include "offload/dr/compile/obstacles.hpp"
#include "offload/dr/compile/plan.hpp"
#include "offload/dr/device/caps.hpp"
#include "offload/dr/megaflow.h"

namespace ovsdr::dr {

/// Narrows a match to packets that the device takes out of the tunnel as OVS would. False: it has none of those, or may
/// have others; added to `obstacles`.
[[nodiscard]] bool narrow_to_tunnel(MatchPlan& match, const TunnelPort& tunnel, const DeviceCaps& caps,
                                    const Choices& choices, Obstacles& obstacles);

struct TunnelFields {
    const ovsdr_tunnel_fields& key;
    const ovsdr_tunnel_fields& mask;
};

/// `plan`: of packets of this tunnel.
void match_tunnel(const TunnelFields& fields, const TunnelPort& tunnel, const DeviceCaps& caps, const Choices& choices,
                  MatchPlan& plan, Obstacles& obstacles);

/// `fields`: of a megaflow whose packets come through no tunnel. They have zeros there, and a match for these is none.
void match_no_tunnel(const TunnelFields& fields, Obstacles& obstacles);

/// Bytes in front of the inner frame, of a plan that match_tunnel() made; narrows it so that they are equal for all
/// packets. Nothing: they cannot be (IPv6 has extension headers).
[[nodiscard]] std::optional<std::uint16_t> fix_tunnel_size(const ovsdr_tunnel_fields& key, TunnelKind kind,
                                                           MatchPlan& plan) noexcept;

}  // namespace ovsdr::dr
