// Which frames that software gives to a mirror are of its services: what the rules of a NIC decide for copies
// (dr::MirrorSteering), decided here for a frame in memory.
//
// Model. A frame is of a service if it is TCP or UDP over IPv4 or IPv6, from or to the service's port. Up to two VLAN
// tags may stand in front, and IPv6's extension headers. A fragment is of no service, the first neither: to a device it
// has no ports. What is inside of a tunnel is not looked at: the outer headers decide, as they do in a NIC.
//
// Threads: pure.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "offload/dr/software.hpp"

namespace ovsdr::mirror {

struct TransportPorts {
    std::uint8_t ip_protocol;   ///< 6 or 17
    std::uint16_t source, destination;
};

/// Nothing: the frame has no TCP or UDP ports, or is cut in front of them.
[[nodiscard]] std::optional<TransportPorts> transport_ports(std::span<const std::byte> frame) noexcept;

struct TcpEnd {
    std::uint16_t port;
    std::array<std::uint8_t, 16> address;   ///< network byte order; IPv4's as ::ffff:a.b.c.d

    friend auto operator<=>(const TcpEnd&, const TcpEnd&) = default;
};
struct TcpEnds {
    TcpEnd source, destination;
};
/// Nothing: the frame is no TCP, a fragment, or cut in front of the ports.
[[nodiscard]] std::optional<TcpEnds> tcp_ends(std::span<const std::byte> frame) noexcept;

/// `services`: any of them will do; none: every frame passes.
[[nodiscard]] bool passes(std::span<const dr::MirrorSteering::Service> services,
                          std::span<const std::byte> frame) noexcept;

}  // namespace ovsdr::mirror
