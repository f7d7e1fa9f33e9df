// The rows of lookups.hpp.
#pragma once

#include "tests/connectx/entries/definer_tables.hpp"
#include "tests/connectx/entries/lookups.hpp"

namespace ovsdr::connectx::entries::tables {

/// The same rows, of the inner headers.
template <std::size_t length>
constexpr std::array<LookupRow, length> inside(const LookupRow (&rows)[length]) {
    std::array<LookupRow, length> inner{};
    for (std::size_t i = 0; i < length; ++i) inner[i] = {rows[i].bits, rows[i].field, Layer::inner};
    return inner;
}

inline constexpr LookupRow ipv6_source[] = {
    {{0, 32}, Field::ipv6_source_127_96},
    {{32, 32}, Field::ipv6_source_95_64},
    {{64, 32}, Field::ipv6_source_63_32},
    {{96, 32}, Field::ipv6_source_31_0},
};
inline constexpr LookupRow ipv6_destination[] = {
    {{0, 32}, Field::ipv6_destination_127_96},
    {{32, 32}, Field::ipv6_destination_95_64},
    {{64, 32}, Field::ipv6_destination_63_32},
    {{96, 32}, Field::ipv6_destination_31_0},
};
inline constexpr auto inner_ipv6_source = inside(ipv6_source);
inline constexpr auto inner_ipv6_destination = inside(ipv6_destination);
/// Of every tunnel; the words behind these are not known.
inline constexpr LookupRow tunnel_header[] = {{{0, 32}, Field::tunnel_header_0}, {{32, 32}, Field::tunnel_header_1}};
/// Of the look-up that VXLAN-GPE and GTP-U have too: the parser here knows Geneve only.
inline constexpr LookupRow geneve[] = {
    {{2, 6}, Field::geneve_options_length},
    {{8, 1}, Field::geneve_oam},
    {{16, 16}, Field::geneve_protocol},
    {{32, 24}, Field::geneve_vni},
};
/// Number 6 of the flexible parsers has the Geneve option (tests/connectx/profile.cpp says so to libmlx5).
inline constexpr LookupRow parsers_4_to_7[] = {{{32, 32}, Field::geneve_option_data}};
inline constexpr LookupRow parsers_that_found[] = {{{65, 1}, Field::geneve_option_exists}};
inline constexpr LookupRow gre[] = {
    {{0, 1}, Field::gre_checksum_present},
    {{2, 1}, Field::gre_key_present},
    {{3, 1}, Field::gre_sequence_present},
    {{16, 16}, Field::gre_protocol},
    {{64, 32}, Field::gre_key},
};
inline constexpr LookupRow registers_0[] = {
    {{0, 32}, Field::reg_c_0},
    {{32, 32}, Field::reg_c_1},
    {{64, 32}, Field::reg_c_2},
    {{96, 32}, Field::reg_c_3},
};
inline constexpr LookupRow registers_1[] = {
    {{0, 32}, Field::reg_c_4},
    {{32, 32}, Field::reg_c_5},
    {{64, 32}, Field::reg_c_6},
    {{96, 32}, Field::reg_c_7},
};
inline constexpr LookupRow general_purpose[] = {{{0, 32}, Field::reg_a}};

namespace v0 {

inline constexpr LookupRow l2_source_destination[] = {
    {{0, 32}, Field::dmac_47_16},     {{32, 16}, Field::dmac_15_0},      {{48, 16}, Field::smac_47_32},
    {{64, 32}, Field::smac_31_0},     {{100, 2}, Field::l3_type},        {{108, 3}, Field::first_priority},
    {{111, 1}, Field::first_cfi},     {{112, 2}, Field::first_qualifier}, {{116, 12}, Field::first_vid},
};
inline constexpr LookupRow l2_source[] = {
    {{0, 32}, Field::smac_47_16},      {{32, 16}, Field::smac_15_0},        {{48, 16}, Field::ethertype},
    {{76, 3}, Field::first_priority},  {{79, 1}, Field::first_cfi},         {{80, 2}, Field::first_qualifier},
    {{84, 12}, Field::first_vid},      {{96, 1}, Field::fragment},          {{100, 2}, Field::l3_type},
    {{108, 3}, Field::second_priority}, {{111, 1}, Field::second_cfi},      {{112, 2}, Field::second_qualifier},
    {{116, 12}, Field::second_vid},
};
inline constexpr LookupRow l2_destination[] = {
    {{0, 32}, Field::dmac_47_16},      {{32, 16}, Field::dmac_15_0},        {{48, 16}, Field::ethertype},
    {{76, 3}, Field::first_priority},  {{79, 1}, Field::first_cfi},         {{80, 2}, Field::first_qualifier},
    {{84, 12}, Field::first_vid},      {{96, 1}, Field::fragment},          {{100, 2}, Field::l3_type},
    {{108, 3}, Field::second_priority}, {{111, 1}, Field::second_cfi},      {{112, 2}, Field::second_qualifier},
    {{116, 12}, Field::second_vid},
};
inline constexpr LookupRow ipv4_5_tuple[] = {
    {{0, 32}, Field::ipv4_destination}, {{32, 32}, Field::ipv4_source}, {{64, 16}, Field::source_port},
    {{80, 16}, Field::destination_port}, {{96, 1}, Field::fragment},    {{101, 2}, Field::ecn},
    {{103, 9}, Field::tcp_flags},       {{112, 6}, Field::dscp},        {{120, 8}, Field::protocol},
};
inline constexpr LookupRow ipv4_misc[] = {{{4, 4}, Field::ipv4_ihl}, {{64, 8}, Field::ipv4_ttl}};
inline constexpr LookupRow l4[] = {
    {{0, 1}, Field::fragment},     {{8, 8}, Field::protocol},        {{16, 16}, Field::destination_port},
    {{37, 2}, Field::ecn},         {{39, 9}, Field::tcp_flags},      {{48, 16}, Field::source_port},
    {{80, 8}, Field::ipv6_hop_limit}, {{88, 6}, Field::dscp},        {{108, 20}, Field::ipv6_flow_label},
};
inline constexpr LookupRow l4_misc[] = {{{32, 32}, Field::tcp_sequence}, {{64, 32}, Field::tcp_acknowledgement}};
inline constexpr LookupRow source[] = {
    {{16, 16}, Field::source_gvmi},
    {{38, 1}, Field::looped_back},
    {{40, 24}, Field::source_queue},
};

inline constexpr auto inner_l2_source_destination = inside(l2_source_destination);
inline constexpr auto inner_l2_source = inside(l2_source);
inline constexpr auto inner_l2_destination = inside(l2_destination);
inline constexpr auto inner_ipv4_5_tuple = inside(ipv4_5_tuple);
inline constexpr auto inner_ipv4_misc = inside(ipv4_misc);
inline constexpr auto inner_l4 = inside(l4);
inline constexpr auto inner_l4_misc = inside(l4_misc);
/// The network id has 32 bits; of VXLAN's the lowest 8 are not known.
inline constexpr LookupRow tunnel[] = {
    {{0, 32}, Field::dmac_47_16, Layer::inner},      {{32, 16}, Field::dmac_15_0, Layer::inner},
    {{48, 16}, Field::ethertype, Layer::inner},      {{64, 24}, Field::vxlan_vni},
    {{96, 1}, Field::fragment, Layer::inner},        {{100, 2}, Field::l3_type, Layer::inner},
    {{104, 3}, Field::first_priority, Layer::inner}, {{107, 1}, Field::first_cfi, Layer::inner},
    {{112, 2}, Field::first_qualifier, Layer::inner}, {{116, 12}, Field::first_vid, Layer::inner},
};

inline constexpr Lookup all[] = {
    {0x00, "nothing", {}},
    {0x05, "source function and queue", source},
    {0x06, "destination MAC, TX", l2_destination},
    {0x07, "inner destination MAC", inner_l2_destination},
    {0x08, "source MAC, TX", l2_source},
    {0x09, "inner source MAC", inner_l2_source},
    {0x0a, "tunnel", tunnel},
    {0x0d, "IPv6 destination, TX", ipv6_destination},
    {0x0e, "inner IPv6 destination", inner_ipv6_destination},
    {0x0f, "IPv6 source, TX", ipv6_source},
    {0x10, "inner IPv6 source", inner_ipv6_source},
    {0x11, "IPv4 5-tuple, TX", ipv4_5_tuple},
    {0x12, "inner IPv4 5-tuple", inner_ipv4_5_tuple},
    {0x13, "L4, TX", l4},
    {0x14, "inner L4", inner_l4},
    {0x15, "MPLS, TX", {}},
    {0x16, "GRE", gre},
    {0x18, "general purpose", general_purpose},
    {0x19, "tunnel header of the flexible parser", geneve},
    {0x1b, "destination MAC, RX", l2_destination},
    {0x1c, "source MAC, RX", l2_source},
    {0x1e, "IPv6 destination, RX", ipv6_destination},
    {0x1f, "IPv6 source, RX", ipv6_source},
    {0x20, "IPv4 5-tuple, RX", ipv4_5_tuple},
    {0x21, "L4, RX", l4},
    {0x22, "flexible parsers 0 to 3", {}},
    {0x23, "flexible parsers 4 to 7", parsers_4_to_7},
    {0x24, "inner MPLS", {}},
    {0x25, "MPLS, RX", {}},
    {0x29, "IPv4 rest, TX", ipv4_misc},
    {0x2a, "inner IPv4 rest", inner_ipv4_misc},
    {0x2b, "IPv4 rest, RX", ipv4_misc},
    {0x2c, "L4 rest, TX", l4_misc},
    {0x2d, "inner L4 rest", inner_l4_misc},
    {0x2e, "L4 rest, RX", l4_misc},
    {0x2f, "registers 0 to 3", registers_0},
    {0x30, "registers 4 to 7", registers_1},
    {0x34, "tunnel header", tunnel_header},
    {0x36, "both MACs, TX", l2_source_destination},
    {0x37, "both inner MACs", inner_l2_source_destination},
    {0x38, "both MACs, RX", l2_source_destination},
};

}  // namespace v0

namespace v1 {

inline constexpr LookupRow l2_source_destination[] = {
    {{0, 32}, Field::dmac_47_16},   {{32, 32}, Field::smac_47_16},       {{64, 16}, Field::dmac_15_0},
    {{90, 2}, Field::l3_type},      {{94, 2}, Field::first_qualifier},   {{96, 3}, Field::first_priority},
    {{99, 1}, Field::first_cfi},    {{100, 12}, Field::first_vid},       {{112, 16}, Field::smac_15_0},
};
inline constexpr LookupRow l2_source[] = {
    {{3, 1}, Field::fragment},      {{10, 2}, Field::l3_type},           {{14, 2}, Field::first_qualifier},
    {{16, 3}, Field::first_priority}, {{19, 1}, Field::first_cfi},       {{20, 12}, Field::first_vid},
    {{32, 32}, Field::smac_47_16},  {{64, 16}, Field::smac_15_0},        {{80, 16}, Field::ethertype},
    {{110, 2}, Field::second_qualifier}, {{112, 3}, Field::second_priority}, {{115, 1}, Field::second_cfi},
    {{116, 12}, Field::second_vid},
};
inline constexpr LookupRow l2_destination[] = {
    {{3, 1}, Field::fragment},      {{10, 2}, Field::l3_type},           {{14, 2}, Field::first_qualifier},
    {{16, 3}, Field::first_priority}, {{19, 1}, Field::first_cfi},       {{20, 12}, Field::first_vid},
    {{32, 32}, Field::dmac_47_16},  {{64, 16}, Field::dmac_15_0},        {{80, 16}, Field::ethertype},
    {{110, 2}, Field::second_qualifier}, {{112, 3}, Field::second_priority}, {{115, 1}, Field::second_cfi},
    {{116, 12}, Field::second_vid},
};
inline constexpr LookupRow ipv4_5_tuple[] = {
    {{0, 32}, Field::ipv4_source},       {{32, 32}, Field::ipv4_destination}, {{64, 16}, Field::source_port},
    {{80, 16}, Field::destination_port}, {{102, 1}, Field::fragment},         {{103, 9}, Field::tcp_flags},
    {{112, 6}, Field::dscp},             {{118, 2}, Field::ecn},              {{120, 8}, Field::protocol},
};
inline constexpr LookupRow ipv4_misc[] = {{{68, 4}, Field::ipv4_ihl}, {{72, 8}, Field::ipv4_ttl}};
inline constexpr LookupRow l4[] = {
    {{8, 6}, Field::dscp},          {{14, 2}, Field::ecn},               {{16, 8}, Field::ipv6_hop_limit},
    {{24, 8}, Field::protocol},     {{32, 16}, Field::source_port},      {{48, 16}, Field::destination_port},
    {{76, 20}, Field::ipv6_flow_label}, {{102, 1}, Field::fragment},     {{103, 9}, Field::tcp_flags},
};
/// Of TCP and ICMP; a packet has one of the two, and the fields of the other are 0.
inline constexpr LookupRow l4_misc[] = {
    {{32, 32}, Field::tcp_acknowledgement}, {{64, 32}, Field::tcp_sequence},
    {{32, 32}, Field::icmp_data},           {{64, 8}, Field::icmp_type},     {{72, 8}, Field::icmp_code},
};
inline constexpr LookupRow source[] = {
    {{15, 1}, Field::looped_back},
    {{16, 16}, Field::source_gvmi},
    {{40, 24}, Field::source_queue},
};

inline constexpr auto inner_l2_source_destination = inside(l2_source_destination);
inline constexpr auto inner_l2_source = inside(l2_source);
inline constexpr auto inner_l2_destination = inside(l2_destination);
inline constexpr auto inner_ipv4_5_tuple = inside(ipv4_5_tuple);
inline constexpr auto inner_ipv4_misc = inside(ipv4_misc);
inline constexpr auto inner_l4 = inside(l4);
inline constexpr auto inner_l4_misc = inside(l4_misc);
inline constexpr LookupRow tunnel[] = {
    {{0, 24}, Field::vxlan_vni},                     {{32, 32}, Field::dmac_47_16, Layer::inner},
    {{64, 16}, Field::dmac_15_0, Layer::inner},      {{80, 16}, Field::ethertype, Layer::inner},
    {{99, 1}, Field::fragment, Layer::inner},        {{106, 2}, Field::l3_type, Layer::inner},
    {{110, 2}, Field::first_qualifier, Layer::inner}, {{112, 3}, Field::first_priority, Layer::inner},
    {{115, 1}, Field::first_cfi, Layer::inner},      {{116, 12}, Field::first_vid, Layer::inner},
};

inline constexpr Lookup all[] = {
    {0x000, "nothing", {}},
    {0x002, "tunnel", tunnel},
    {0x003, "destination MAC", l2_destination},
    {0x004, "inner destination MAC", inner_l2_destination},
    {0x005, "source MAC", l2_source},
    {0x006, "inner source MAC", inner_l2_source},
    {0x007, "IPv4 5-tuple", ipv4_5_tuple},
    {0x008, "inner IPv4 5-tuple", inner_ipv4_5_tuple},
    {0x009, "L4", l4},
    {0x00a, "inner L4", inner_l4},
    {0x00b, "both MACs", l2_source_destination},
    {0x00c, "both inner MACs", inner_l2_source_destination},
    {0x00d, "IPv4 rest", ipv4_misc},
    {0x00e, "tunnel header of the flexible parser", tunnel_header},
    {0x00f, "inner IPv4 rest", inner_ipv4_misc},   // also the number that stands for "does not matter"
    {0x011, "what the flexible parsers found", parsers_that_found},
    {0x102, "InfiniBand L3", {}},
    {0x103, "InfiniBand L4", {}},
    {0x104, "source function and queue", source},
    {0x105, "L2 headers", {}},
    {0x106, "inner L2 headers", {}},
    {0x107, "IPv6 destination", ipv6_destination},
    {0x108, "inner IPv6 destination", inner_ipv6_destination},
    {0x109, "IPv6 source", ipv6_source},
    {0x10a, "inner IPv6 source", inner_ipv6_source},
    {0x10b, "MPLS", {}},
    {0x10c, "inner MPLS", {}},
    {0x10d, "GRE", gre},
    {0x10e, "general purpose", general_purpose},
    {0x10f, "registers 0 to 3", registers_0},
    {0x110, "registers 4 to 7", registers_1},
    {0x111, "flexible parsers 0 to 3", {}},
    {0x112, "flexible parsers 4 to 7", parsers_4_to_7},
    {0x113, "L4 rest", l4_misc},
    {0x114, "inner L4 rest", inner_l4_misc},
    {0x117, "tunnel header", tunnel_header},
    {definer_layout | 0, "definer 0", definers::layout_0},
    {definer_layout | 2, "definer 2", definers::layout_2},
    {definer_layout | 6, "definer 6", definers::layout_6},
    {definer_layout | 16, "definer 16", definers::layout_16},
    {definer_layout | 22, "definer 22", definers::layout_22},
    {definer_layout | 24, "definer 24", definers::layout_24},
    {definer_layout | 25, "definer 25", definers::layout_25},
    {definer_layout | 26, "definer 26", definers::layout_26},
    {definer_layout | 28, "definer 28", definers::layout_28},
    {definer_layout | 33, "definer 33", definers::layout_33},
};

}  // namespace v1

}  // namespace ovsdr::connectx::entries::tables
