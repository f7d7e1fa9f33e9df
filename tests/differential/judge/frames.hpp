// What a judge must know of a frame to say whether it may go up.
//
// Threads: pure.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace ovsdr::differential {

inline constexpr std::uint16_t tcp_ends = 0x005;   ///< FIN, RST
/// IPv6 extension headers whose size stands in their second byte: hop-by-hop, routing, AH, destination options.
inline constexpr std::uint8_t routing_header = 43, stepped_over[] = {0, routing_header, 51, 60}, fragment_header = 44;

/// Whether OVS's tnl_pop and a device's parser would look for a tunnel's header there.
[[nodiscard]] bool is_of_tunnel(const std::vector<std::uint8_t>& frame);
[[nodiscard]] bool has_gre_checksum(const std::vector<std::uint8_t>& frame);
/// The frame in a tunnel. Empty: there is none.
[[nodiscard]] std::vector<std::uint8_t> inside_of(const std::vector<std::uint8_t>& frame);

/// Whether the rule ahead of all megaflows takes the frame (docs/architecture.md, "Tables"): TCP with FIN or RST. It
/// goes up whatever its megaflow is.
[[nodiscard]] bool ends_connection(const std::vector<std::uint8_t>& frame);

/// Whether rules are narrower than megaflows for such a frame: a broken IP header, an ethertype behind an LLC header.
[[nodiscard]] bool may_go_up(const std::vector<std::uint8_t>& frame);

/// What a port's receive queues are told apart by. 0: neither IPv4 nor IPv6, or any protocol.
struct IpKind {
    std::uint8_t version = 0, protocol = 0;
};
/// Of the headers that come first, of a tunnel too. Nothing where each device reads the headers in its own way:
/// fragments, and broken headers.
[[nodiscard]] std::optional<IpKind> ip_kind_of(const std::vector<std::uint8_t>& frame);

/// Of TCP or UDP, host order, of the headers that come first. Nothing of fragments, nor of headers that are broken or
/// cut short.
struct TransportPorts {
    std::uint8_t protocol;
    std::uint16_t source, destination;
};
[[nodiscard]] std::optional<TransportPorts> ports_of(const std::vector<std::uint8_t>& frame);

/// What writing an address or a port does to such a packet only a card can tell (a TCP, UDP or ICMPv6 header that is
/// cut short, an address before a routing header: docs/fidelity.md), or OVS does wrong (an atomic fragment's checksum
/// is not mended: packet_rh_present()).
[[nodiscard]] bool has_no_answer(const std::vector<std::uint8_t>& frame);

}  // namespace ovsdr::differential
