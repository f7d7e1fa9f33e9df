// Random packets aimed at megaflows, and near misses of them.
//
// The model. A packet takes what a megaflow looks at from its pattern and everything else from chance; then, for half
// of them, one thing is changed: a bit that the megaflow looks at, the port, the tags, the protocol, a fragment, a flag
// that ends a connection, a header that is cut short, a length or version that is not true, an LLC header. The last
// four bytes of each frame are its number.
//
// Left out, because only a card can tell; both NICs are made as if the device's parser did not look:
// - an IPv6 payload length beyond the frame: OVS takes such a packet for no IPv6;
// - a TCP data offset below 5 or beyond the packet: to OVS such a header has neither ports nor flags;
// - a chain of IPv6 extension headers that is cut short: OVS has the addresses then, and no TOS, hop limit or protocol;
// - reserved bits in an IPv6 fragment header: they make a fragment to OVS;
// - where a megaflow writes what a transport checksum covers: a TCP, UDP or ICMPv6 header that is cut short, and an
//   IPv6 fragment that is all there (OVS leaves its checksum wrong).
//
// Threads: pure; one seed, one list.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tests/differential/judge/megaflows.hpp"

namespace ovsdr::differential {

struct TestPacket {
    std::uint32_t in_port;   ///< datapath port number
    std::vector<std::uint8_t> bytes;
};

[[nodiscard]] std::vector<TestPacket> make_packets(std::uint64_t seed, std::size_t length,
                                                   std::span<const Megaflow> megaflows);

/// What follows the markers' megaflows.
[[nodiscard]] std::vector<std::uint8_t> marker_frame(std::uint32_t number);

/// Whether the rule ahead of all megaflows takes the frame (docs/architecture.md, "Tables"): TCP with FIN or RST. It
/// goes up whatever its megaflow is.
[[nodiscard]] bool ends_connection(const std::vector<std::uint8_t>& frame);

/// Whether rules are narrower than megaflows for such a frame: a broken IP header, an ethertype behind an LLC header.
[[nodiscard]] bool may_go_up(const std::vector<std::uint8_t>& frame);

}  // namespace ovsdr::differential
