// The rows of edits.hpp: what the windows of modify-header commands hold.
//
// A window of format 0 can hold fields of IPv4 and of IPv6: which of them it is, the packet says. Formats 1 and 2 have
// their fields in the upper half, at the same codes but for the registers.
//
// Source: PRM, modify-header field codes.
#pragma once

#include <cstdint>

#include "tests/connectx/entries/rewrite.hpp"

namespace ovsdr::connectx::entries {

/// `field` stands in the window `code`, its lowest bit at `low`.
struct EditRow {
    std::uint8_t code, low;
    FieldPlace field;
    bool adds = false;   ///< ADD works on it
};

namespace tables {

inline constexpr FieldPlace dmac_47_16{Header::ethernet, 0, 4, 0, 32}, dmac_15_0{Header::ethernet, 4, 2, 0, 16};
inline constexpr FieldPlace smac_47_16{Header::ethernet, 6, 4, 0, 32}, smac_15_0{Header::ethernet, 10, 2, 0, 16};
inline constexpr FieldPlace ethertype{Header::ethertype, 0, 2, 0, 16};
/// Priority, DEI and VLAN id, whatever the name of it in libmlx5.
inline constexpr FieldPlace first_tci{Header::tag, 2, 2, 0, 16};
inline constexpr FieldPlace ipv4_dscp{Header::ipv4, 0, 2, 2, 6}, ipv4_ecn{Header::ipv4, 0, 2, 0, 2};
inline constexpr FieldPlace ipv6_dscp{Header::ipv6, 0, 2, 6, 6}, ipv6_ecn{Header::ipv6, 0, 2, 4, 2};
inline constexpr FieldPlace ipv4_ttl{Header::ipv4, 8, 2, 8, 8}, ipv6_hop_limit{Header::ipv6, 6, 2, 0, 8};
inline constexpr FieldPlace ipv4_source{Header::ipv4, 12, 4, 0, 32}, ipv4_destination{Header::ipv4, 16, 4, 0, 32};
inline constexpr FieldPlace source_port{Header::ports, 0, 2, 0, 16}, destination_port{Header::ports, 2, 2, 0, 16};
inline constexpr FieldPlace tcp_sequence{Header::tcp, 4, 4, 0, 32}, tcp_acknowledgement{Header::tcp, 8, 4, 0, 32};
inline constexpr FieldPlace tcp_flags{Header::tcp, 12, 2, 0, 9};   ///< NS CWR ECE URG ACK PSH RST SYN FIN

/// Words count from the front.
constexpr FieldPlace ipv6_source(std::uint8_t word) {
    return {Header::ipv6, static_cast<std::uint8_t>(8 + 4 * word), 4, 0, 32};
}
constexpr FieldPlace ipv6_destination(std::uint8_t word) {
    return {Header::ipv6, static_cast<std::uint8_t>(24 + 4 * word), 4, 0, 32};
}
constexpr FieldPlace reg_c(std::uint8_t number) { return {Header::registers, number, 4, 0, 32}; }
inline constexpr FieldPlace reg_a{Header::registers, 8, 4, 0, 32}, reg_b{Header::registers, 9, 4, 0, 32};

inline constexpr EditRow edits_0[] = {
    {0x00, 16, dmac_47_16},
    {0x00, 0, dmac_15_0},
    {0x01, 16, smac_47_16},
    {0x01, 0, smac_15_0},
    {0x02, 32, ethertype},
    {0x02, 0, first_tci},
    {0x03, 32, ipv4_destination},
    {0x03, 0, ipv4_source},
    {0x03, 32, ipv6_destination(0)},
    {0x03, 0, ipv6_destination(1)},
    {0x04, 0, ipv4_dscp},
    {0x04, 6, ipv4_ecn},
    {0x04, 8, ipv4_ttl, true},
    {0x04, 0, ipv6_dscp},
    {0x04, 6, ipv6_ecn},
    {0x04, 8, ipv6_hop_limit, true},
    {0x05, 32, ipv6_destination(2)},
    {0x05, 0, ipv6_destination(3)},
    {0x06, 32, ipv6_source(0)},
    {0x06, 0, ipv6_source(1)},
    {0x07, 32, ipv6_source(2)},
    {0x07, 0, ipv6_source(3)},
    {0x08, 0, source_port},
    {0x08, 16, destination_port},
    {0x08, 48, tcp_flags},
    {0x09, 32, tcp_sequence, true},
    {0x09, 0, tcp_acknowledgement, true},
    {0x0c, 32, reg_c(0)},
    {0x0c, 0, reg_c(1)},
    {0x0d, 32, reg_c(2)},
    {0x0d, 0, reg_c(3)},
    {0x0e, 32, reg_c(4)},
    {0x0e, 0, reg_c(5)},
    {0x16, 32, reg_b},
    {0x16, 0, reg_a},
};

inline constexpr EditRow edits_1_and_2[] = {
    {0x00, 32, dmac_47_16},
    {0x01, 48, dmac_15_0},
    {0x01, 32, ethertype},
    {0x02, 32, first_tci},
    {0x08, 32, smac_47_16},
    {0x09, 48, smac_15_0},
    {0x0e, 40, ipv4_ttl, true},
    {0x0e, 48, ipv4_ecn},
    {0x0e, 50, ipv4_dscp},
    {0x0e, 40, ipv6_hop_limit, true},
    {0x0e, 48, ipv6_ecn},
    {0x0e, 50, ipv6_dscp},
    {0x18, 48, source_port},
    {0x18, 32, destination_port},
    {0x19, 48, tcp_flags},
    {0x40, 32, ipv4_source},
    {0x41, 32, ipv4_destination},
    {0x44, 32, ipv6_destination(0)},
    {0x45, 32, ipv6_destination(1)},
    {0x46, 32, ipv6_destination(2)},
    {0x47, 32, ipv6_destination(3)},
    {0x4c, 32, ipv6_source(0)},
    {0x4d, 32, ipv6_source(1)},
    {0x4e, 32, ipv6_source(2)},
    {0x4f, 32, ipv6_source(3)},
    {0x5e, 32, tcp_sequence, true},
    {0x5f, 32, tcp_acknowledgement, true},
    {0x7b, 32, reg_b},
    {0x7c, 32, reg_a},
};
inline constexpr EditRow registers_of_1[] = {
    {0x8c, 32, reg_c(4)}, {0x8d, 32, reg_c(5)}, {0x8e, 32, reg_c(2)},
    {0x8f, 32, reg_c(3)}, {0x90, 32, reg_c(0)}, {0x91, 32, reg_c(1)},
};
inline constexpr EditRow registers_of_2[] = {
    {0x90, 32, reg_c(4)}, {0x91, 32, reg_c(5)}, {0x92, 32, reg_c(2)},
    {0x93, 32, reg_c(3)}, {0x94, 32, reg_c(0)}, {0x95, 32, reg_c(1)},
};

}  // namespace tables

}  // namespace ovsdr::connectx::entries
