// Tunnels: what an outer header carries, found from the outer header on.
//
//   VXLAN      UDP to 4789, VNI flag          Ethernet
//   VXLAN-GPE  UDP to 4790                    by its next protocol: IPv4, IPv6, Ethernet
//   Geneve     UDP to 6081, version 0         by its protocol type: Ethernet, IPv4, IPv6; one option, see ParserSetup
//   GRE        IP protocol 47, version 0      by its protocol: Ethernet (NVGRE), IPv4, IPv6; MPLS by its first label
//              or 1                           only (of version 1 only what has no acknowledgement number)
//   GTP-U      UDP to 2152, version 1         G-PDUs: IPv4 or IPv6, by its version
//   MPLS       UDP to 6635                    its first label only
//   IP in IP   IP protocol 4 or 41            IPv4, IPv6
//
// As parse(), it never reads past the frame or the outer packet; what is cut short carries nothing. Fragments carry
// nothing. The checksum of GRE and the outer UDP are not looked at.
//
// Source: RFC 7348, RFC 7637, RFC 2637, RFC 2784, RFC 2890, RFC 8926, RFC 2003, RFC 2473, RFC 4023, RFC 7510;
// 3GPP TS 29.281; draft-ietf-nvo3-vxlan-gpe.
#pragma once

#include <cstdint>

#include "datapath/steering/key.hpp"

namespace ovsdr::soft {

/// The option that the flexible parser looks for in Geneve headers; the first of its kind counts. `length` 0: none.
struct GeneveOption {
    std::uint16_t option_class = 0;
    std::uint8_t type = 0;    ///< with its critical bit
    std::uint8_t length = 0;  ///< of its data, in units of 4 bytes

    friend bool operator==(const GeneveOption&, const GeneveOption&) = default;
};

/// What the device's flexible parser is set up for at present.
struct alignas(8) ParserSetup {
    bool gtpu = false;  ///< inner headers of GTP-U
    GeneveOption option{};
};

struct Tunnel {
    enum class Kind : std::uint8_t { none, vxlan, vxlan_gpe, geneve, gtpu, mpls, gre, ip };

    Kind kind = Kind::none;
    std::uint16_t header = 0;  ///< where its own header begins
    std::uint16_t inner = 0;   ///< where the inner packet begins; 0 = carries nothing that can be read
    std::uint16_t type = 0;    ///< of the inner packet: type_ethernet, or the ethertype of IPv4 or IPv6
    std::uint32_t end = 0;     ///< of the inner packet

    static constexpr std::uint16_t type_ethernet = 0x6558, type_ipv4 = 0x0800, type_ipv6 = 0x86dd;
};

/// By a parser that is set up for everything.
[[nodiscard]] Tunnel find_tunnel(const std::uint8_t* frame, std::uint32_t size) noexcept;

/// Fills the words and bits that parse() leaves alone: tunnels, inner headers, TCP numbers, flow labels, MPLS. `key`
/// has been parsed from the same frame.
void parse_deep(const std::uint8_t* frame, std::uint32_t size, const ParserSetup& setup, Key& key) noexcept;

/// Adds to a mask the inner fields that become the outer ones of its when an L2 tunnel is taken away.
void add_inner_of_outer(Key& mask) noexcept;

/// What is known of a packet once its L2 tunnel was taken away: as much of each field as was known of the inner one
/// that it was; nothing of those that no inner one became. `taint` has a 1 for each bit that is not known.
void taint_by_decapsulation(Key& taint) noexcept;

/// Everything that parse() and parse_deep() read.
void taint_headers(Key& taint) noexcept;

/// What parse_deep() reads.
void taint_deep(Key& taint) noexcept;

}  // namespace ovsdr::soft
