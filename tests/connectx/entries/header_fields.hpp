// What the device's parser reads out of a frame's headers: the values that look-ups are composed of.
//
// The model. A Field is a number of at most 32 bits. HeaderFields holds all of them for one packet; the parser fills
// those of the headers, and those of the packet's metadata are refreshed apart, since entries change registers without
// a new parse.
//
// What the parser takes for a header is not written in any table of the device; these are the readings of this project
// (docs/architecture.md), made anew here:
// - Two VLAN tags at most, 0x8100 or 0x88a8 in any order; the ethertype is the one behind them.
// - An IP header counts when its version is that of the ethertype and it is there whole; IPv4 also when its lengths fit
//   the frame. Otherwise there is no L3, and all its fields are 0.
// - IPv6 extension headers (hop-by-hop, routing, fragment, AH, destination options) are stepped over; of a later
//   fragment the protocol is 44.
// - A fragment, the first one too, has no L4.
// - TCP counts with 20 bytes, UDP and ICMP with 8.
//
// The fields of a tunnel's header are read by packet_headers.hpp, which parses the frame inside by the same rules.
//
// Threads: pure functions. Source: PRM, the headers of steering entries; RFC 791, 8200, 9293, 768, 792, 4443; IEEE
// 802.1Q.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "tests/connectx/entries/packet.hpp"

namespace ovsdr::connectx::entries {

enum class Field : std::uint8_t {
    dmac_47_16, dmac_15_0, smac_47_16, smac_15_0, smac_47_32, smac_31_0,
    ethertype,
    first_qualifier, first_priority, first_cfi, first_vid,        // qualifier: 0 untagged, 1 service, 2 customer
    second_qualifier, second_priority, second_cfi, second_vid,
    l3_type, l4_type,                                             // 0 none; 1 IPv4, 2 IPv6; 1 TCP, 2 UDP
    ip_version, fragment, dscp, ecn, ip_ttl, protocol,            // version: 4, 6
    ipv4_ihl, ipv4_ttl, ipv4_source, ipv4_destination,
    ipv6_hop_limit, ipv6_flow_label,
    ipv6_source_127_96, ipv6_source_95_64, ipv6_source_63_32, ipv6_source_31_0,
    ipv6_destination_127_96, ipv6_destination_95_64, ipv6_destination_63_32, ipv6_destination_31_0,
    source_port, destination_port,
    tcp_flags, tcp_sequence, tcp_acknowledgement,                 // flags: NS CWR ECE URG ACK PSH RST SYN FIN
    icmp_type, icmp_code, icmp_data,                              // v4's and v6's; data: 4 bytes behind the checksum
    tunnel_header_0, tunnel_header_1,                             // the first words of any tunnel's header, as they are
    vxlan_vni,
    geneve_vni, geneve_options_length, geneve_oam, geneve_protocol,   // length in words of 4 bytes
    geneve_option_data, geneve_option_exists,                     // of the option that a GENEVE_TLV_OPT object names
    gre_checksum_present, gre_key_present, gre_sequence_present, gre_protocol, gre_key,
    source_gvmi, source_queue, looped_back,
    reg_a, reg_c_0, reg_c_1, reg_c_2, reg_c_3, reg_c_4, reg_c_5, reg_c_6, reg_c_7,
    count_of_fields,
};

/// Where the headers begin in the frame; 0: there is none.
struct HeaderOffsets {
    std::size_t tag = 0;              ///< the first one's 0x8100 or 0x88a8
    std::size_t ethertype = 0;        ///< behind all tags
    std::size_t ipv4 = 0, ipv6 = 0;
    std::size_t transport = 0;        ///< TCP, UDP, ICMP of the IP version; none in a fragment
    std::size_t payload = 0;          ///< behind the IP header and its extension headers; none in a fragment
    std::size_t end = 0;              ///< of the IP packet, if all of it is there
    bool routed = false;              ///< IPv6: a routing header says that the destination is not the last one
};

inline constexpr std::size_t field_length = static_cast<std::size_t>(Field::count_of_fields);

class HeaderFields {
public:
    [[nodiscard]] std::uint32_t operator[](Field field) const noexcept {
        return values_[static_cast<std::size_t>(field)];
    }
    void set(Field field, std::uint32_t value) noexcept { values_[static_cast<std::size_t>(field)] = value; }

    [[nodiscard]] const HeaderOffsets& offsets() const noexcept { return offsets_; }

    /// Reads the headers anew. The fields of the metadata stay.
    void parse(std::span<const std::uint8_t> frame) noexcept;
    /// Takes over source, queue and registers.
    void take_metadata(const Packet& packet) noexcept;

private:
    friend class HeaderParser;
    std::array<std::uint32_t, field_length> values_{};
    HeaderOffsets offsets_;
};

}  // namespace ovsdr::connectx::entries
