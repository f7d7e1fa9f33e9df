// What megaflows ask of the tunnel that their packets come through, as the device has it.
//
// Model. A megaflow with tnl_pop sends its packets, as they are, into the table of a tunnel port (plan.hpp): the device
// must open what OVS would, and all of them. Rules in that table match the outer headers and the tunnel's own beside
// the inner ones. As everywhere: exact, or narrower on purpose, or refused. Narrower is
// - IPv4: no options, with which OVS drops the packet;
// - VXLAN and Geneve: what the device's parser reads as such (UDP 4789, 6081), Geneve with an Ethernet frame inside;
// - GRE: an Ethernet frame inside, no checksum, which the device would not check, and no sequence number.
//
// What no device sees is the named difference (docs/tunnels.md): the outer UDP checksum, be it there or wrong. OVS
// matches that flag in every megaflow of a tunnel port, and don't fragment, which its tnl_pop never sets. Megaflows
// that differ in nothing else coincide.
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

/// Whether the device takes packets of this match out of the tunnel as OVS would. No: added to `obstacles`.
[[nodiscard]] bool is_opened_by_device(const MatchPlan& match, const TunnelPort& tunnel, const DeviceCaps& caps,
                                       Obstacles& obstacles);

struct TunnelFields {
    const ovsdr_tunnel_fields& key;
    const ovsdr_tunnel_fields& mask;
};

/// `plan`: of packets of this tunnel.
void match_tunnel(const TunnelFields& fields, const TunnelPort& tunnel, const DeviceCaps& caps, const Choices& choices,
                  MatchPlan& plan, Obstacles& obstacles);

/// Bytes in front of the inner frame, of a plan that match_tunnel() made; narrows it so that they are equal for all
/// packets. Nothing: they cannot be (IPv6 has extension headers).
[[nodiscard]] std::optional<std::uint16_t> fix_tunnel_size(const ovsdr_tunnel_fields& key, TunnelKind kind,
                                                           MatchPlan& plan) noexcept;

}  // namespace ovsdr::dr
