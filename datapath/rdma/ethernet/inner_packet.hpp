// The packet that a tunnel carries, for receivers that look inside (tunnel offloads of a TIR).
//
// GTP-U is left out: it is read only where the device's parser is set up for it, and no offload of it is announced.
// Source: PRM, TIR context (tunneled_offload_en).
#pragma once

#include <cstdint>
#include <span>

#include "datapath/steering/parser.hpp"
#include "datapath/steering/tunnel.hpp"

namespace ovsdr::soft {

struct InnerPacket {
    std::span<const std::uint8_t> bytes;  ///< empty: the frame carries none
    Headers headers;                      ///< places in `bytes`
};

[[nodiscard]] inline InnerPacket inner_packet(std::span<const std::uint8_t> frame) noexcept {
    const Tunnel tunnel = find_tunnel(frame.data(), static_cast<std::uint32_t>(frame.size()));
    if (tunnel.inner == 0 || tunnel.kind == Tunnel::Kind::gtpu) return {};
    const std::span inner = frame.subspan(tunnel.inner, tunnel.end - tunnel.inner);
    const auto size = static_cast<std::uint32_t>(inner.size());
    return {inner, tunnel.type == Tunnel::type_ethernet ? locate(inner.data(), size)
                                                        : locate_ip(inner.data(), size, tunnel.type)};
}

}  // namespace ovsdr::soft
