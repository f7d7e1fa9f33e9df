// Reads a frame's headers into a Key, once.
//
// Never reads past the frame. A header that is cut short, or whose own length fields contradict the frame, leaves its
// fields 0 and ends the parse: no field is ever invented. Fragments have ip fields and the frag bit but no L4. IPv6
// extension headers (hop-by-hop, routing, destination, AH, fragment) are skipped; of a later fragment ip_protocol is
// 44. Of VLAN tags as many are looked through as vlan.hpp says; ethertype is the one behind them.
#pragma once

#include <cstdint>

#include "datapath/steering/key.hpp"

namespace ovsdr::soft {

/// Where the headers of a frame begin, for those who rewrite it; 0 = not there.
struct Headers {
    std::uint16_t type;         ///< the ethertype behind the VLAN tags
    std::uint16_t vlan;         ///< the first tag; its TCI is at vlan + 2
    std::uint16_t l3;
    std::uint16_t l4;           ///< only with a complete TCP, UDP, ICMP or ICMPv6 header; first fragments have one
    std::uint8_t l3_version;    ///< 4, 6
    std::uint8_t l4_protocol;
    bool fragment;              ///< its L4 header is there for the sake of checksums only
    std::uint16_t payload;      ///< what an unfragmented IP header (and its options) is followed by
    std::uint32_t end;          ///< of the IP packet
};

inline constexpr std::uint32_t least_frame = 14;  ///< what is shorter is no Ethernet frame

/// Fills the outer block, second VLAN and ICMP words of `key` (which need not be initialised), and makes the rest of
/// its first Key::shallow_length words 0; leaves the others alone. False for what is
/// shorter than `least_frame`.
bool parse(const std::uint8_t* frame, std::uint32_t size, Key& key) noexcept;

/// The same walk over the headers, giving their places. Threads: any.
[[nodiscard]] Headers locate(const std::uint8_t* frame, std::uint32_t size) noexcept;

/// Both for a packet that begins with an IP header, as the ethertype `type` says; others have no fields.
void parse_ip(const std::uint8_t* packet, std::uint32_t size, std::uint16_t type, Key& key) noexcept;
[[nodiscard]] Headers locate_ip(const std::uint8_t* packet, std::uint32_t size, std::uint16_t type) noexcept;

}  // namespace ovsdr::soft
