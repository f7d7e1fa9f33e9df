// A set action of a megaflow: which bits of which fields of a header are written.
//
// The model. As OVS writes them: set(eth(src,dst)), set(ipv4(src,dst,tos,ttl)), set(ipv6(src,dst,tclass,hlimit)),
// set(tcp(src,dst)), set(udp(src,dst)), whole or masked. What is not written is not masked. OVS puts one beside a match
// of the ethertype, and of the protocol for all but set(eth).
//
// Threads: pure.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "tests/differential/judge/chance.hpp"

namespace ovsdr::differential {

inline constexpr std::uint16_t type_ipv4 = 0x0800, type_ipv6 = 0x86dd, type_arp = 0x0806;
inline constexpr std::uint8_t protocol_icmp = 1, protocol_tcp = 6, protocol_udp = 17, protocol_gre = 47,
                              protocol_icmpv6 = 58, protocol_sctp = 132;

class Rarity;

enum class SetHeader : std::uint8_t { ethernet, ipv4, ipv6, tcp, udp };
inline constexpr std::size_t most_set_fields = 4;

struct SetAction {
    SetHeader header = SetHeader::ethernet;
    /// Of row_of(header), in its order; value within mask, mask 0: not written.
    std::array<Pattern, most_set_fields> fields{};

    friend bool operator==(const SetAction&, const SetAction&) = default;
};

/// The header's name and its fields, as OVS prints them.
struct SetField {
    const char* name;
    unsigned bits;
};
struct SetHeaderRow {
    SetHeader header;
    const char* name;
    std::span<const SetField> fields;
};
[[nodiscard]] const SetHeaderRow& row_of(SetHeader header);

/// One that OVS could put beside a match of this ethertype and protocol; `protocol` 0: the protocol is not matched.
[[nodiscard]] SetAction draw_set(Chance& chance, std::uint16_t eth_type, std::uint8_t protocol, Rarity& rarity);

[[nodiscard]] std::string text_of(const SetAction& set);

/// Whether it touches an address of IP or a port: what a checksum of TCP, UDP or ICMPv6 covers.
[[nodiscard]] bool touches_transport_checksum(const SetAction& set);

}  // namespace ovsdr::differential
