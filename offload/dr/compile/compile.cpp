#include "offload/dr/compile/compile.hpp"

#include <endian.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "offload/dr/compile/tunnel_match.hpp"

namespace ovsdr::dr {

namespace {

constexpr int bytes_per_tag = 4;

}  // namespace

Compiled<RulePlan> compile(const ovsdr_megaflow& megaflow, const PortMap& ports, const DeviceCaps& caps,
                           const Choices& choices) noexcept {
    Obstacles obstacles;
    for (std::uint64_t left = megaflow.unsupported_match.bits; left != 0; left &= left - 1) {
        const char* name = megaflow.unsupported_match.names[std::countr_zero(left)];
        obstacles.add(RejectReason::unsupported_match, StaticName::of_table(name));
    }
    MatchPlan match = compile_match(megaflow.key, megaflow.mask, ports, caps, obstacles);
    const TunnelFields tunnel_fields{megaflow.tunnel_key, megaflow.tunnel_mask};
    const TunnelPort* tunnel = match.in_tunnel() ? ports.find_tunnel(OdpPort{match.table.tunnel_port}) : nullptr;
    if (tunnel != nullptr) {
        match_tunnel(tunnel_fields, *tunnel, caps, choices, match, obstacles);
    } else {
        match_no_tunnel(tunnel_fields, obstacles);
    }
    const std::size_t n_actions = std::min<std::size_t>(megaflow.n_actions, OVSDR_MAX_ACTIONS);
    if (n_actions < megaflow.n_actions) {
        obstacles.add(RejectReason::too_many_actions, "more than a megaflow may have",
                      fmt::format(": {}, the most is {}", megaflow.n_actions, n_actions));
    }
    Packets packets{OdpPort{megaflow.key.in_port}, megaflow.key.vlan_limit};
    if (tunnel != nullptr) {
        packets.tunnel = {megaflow.tunnel_key, megaflow.tunnel_mask};
        // Collectors are told of it, whatever the megaflow asks for. No other packets come out of the port.
        packets.tunnel.key.be_tp_dst = htobe16(tunnel->udp_port);
        packets.tunnel.mask.be_tp_dst = UINT16_MAX;
    }
    Path path = compile_actions({megaflow.actions, n_actions}, match, packets, ports, caps, choices, obstacles);
    const int popped = match.source == uplink_vport && caps.counts_after_pop() ? path.changes.pops : 0;
    int uncounted = popped * bytes_per_tag;
    const bool counts_inner = path.changes.decapsulates && caps.counts_after_decapsulation();
    if (tunnel != nullptr && !counts_inner) {
        const auto size = fix_tunnel_size(megaflow.tunnel_key, tunnel->kind, match);
        if (!size) {
            obstacles.add(RejectReason::device_limit, "bytes of packets from a tunnel over IPv6",
                          " (the device counts headers of unknown size with them)");
        }
        uncounted -= size.value_or(0);
    }
    if (!obstacles.empty()) return tl::unexpected(obstacles.take());
    return RulePlan{std::move(match), std::move(path), static_cast<std::int16_t>(uncounted)};
}

}  // namespace ovsdr::dr
