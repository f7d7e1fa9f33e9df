// The layouts of definers: rows of lookups.hpp. The words of tunnel headers behind the first two and those of checksums
// are left out: they have no rows yet.
#pragma once

#include "tests/connectx/entries/lookups.hpp"

namespace ovsdr::connectx::entries::definers {

inline constexpr LookupRow layout_0[] = {
    {{0, 32}, Field::reg_c_0}, {{32, 32}, Field::reg_c_1}, {{64, 32}, Field::dmac_47_16},
    {{96, 16}, Field::dmac_15_0}, {{112, 16}, Field::ethertype}, {{131, 1}, Field::fragment},
    {{138, 2}, Field::l3_type}, {{140, 2}, Field::l4_type}, {{142, 2}, Field::first_qualifier},
    {{144, 3}, Field::first_priority}, {{147, 1}, Field::first_cfi}, {{148, 12}, Field::first_vid},
    {{174, 2}, Field::second_qualifier}, {{176, 3}, Field::second_priority}, {{179, 1}, Field::second_cfi},
    {{180, 12}, Field::second_vid}, {{192, 32}, Field::smac_47_16}, {{224, 16}, Field::smac_15_0},
    {{248, 8}, Field::tcp_flags},
};
inline constexpr LookupRow layout_2[] = {
    {{0, 32}, Field::reg_a}, {{32, 4}, Field::ip_version}, {{36, 4}, Field::ipv4_ihl}, {{40, 6}, Field::dscp},
    {{46, 2}, Field::ecn}, {{48, 8}, Field::ip_ttl}, {{56, 8}, Field::protocol}, {{140, 20}, Field::ipv6_flow_label},
    {{192, 16}, Field::source_port}, {{208, 16}, Field::destination_port}, {{230, 1}, Field::fragment},
    {{231, 9}, Field::tcp_flags},
};
inline constexpr LookupRow layout_6[] = {
    {{0, 32}, Field::ipv6_destination_127_96}, {{32, 32}, Field::ipv6_destination_95_64},
    {{64, 32}, Field::ipv6_destination_63_32}, {{96, 32}, Field::ipv6_destination_31_0},
    {{192, 16}, Field::source_port}, {{208, 16}, Field::destination_port}, {{230, 1}, Field::fragment},
    {{231, 9}, Field::tcp_flags},
};
inline constexpr LookupRow layout_16[] = {
    {{0, 32}, Field::tunnel_header_0}, {{32, 32}, Field::tunnel_header_1},
    {{160, 32}, Field::reg_a}, {{200, 2}, Field::l3_type}, {{202, 2}, Field::l4_type},
    {{204, 2}, Field::first_qualifier}, {{207, 1}, Field::looped_back}, {{208, 16}, Field::source_gvmi},
    {{225, 1}, Field::fragment}, {{232, 24}, Field::source_queue},
};
inline constexpr LookupRow layout_22[] = {
    {{0, 32}, Field::ipv4_source}, {{32, 32}, Field::ipv4_destination}, {{64, 16}, Field::source_port},
    {{80, 16}, Field::destination_port}, {{99, 1}, Field::fragment}, {{106, 2}, Field::l3_type},
    {{108, 2}, Field::l4_type}, {{110, 2}, Field::first_qualifier}, {{112, 3}, Field::first_priority},
    {{115, 1}, Field::first_cfi}, {{116, 12}, Field::first_vid}, {{128, 32}, Field::reg_c_0},
    {{160, 32}, Field::dmac_47_16}, {{192, 32}, Field::smac_47_16}, {{224, 16}, Field::smac_15_0},
    {{240, 16}, Field::dmac_15_0},
};
inline constexpr LookupRow layout_24[] = {
    {{0, 32}, Field::reg_c_2}, {{32, 32}, Field::reg_c_3}, {{64, 32}, Field::reg_c_0}, {{96, 32}, Field::reg_c_1},
    {{128, 32}, Field::ipv4_source}, {{160, 32}, Field::ipv4_destination}, {{192, 16}, Field::source_port},
    {{208, 16}, Field::destination_port}, {{224, 8}, Field::protocol, Layer::inner},
    {{232, 2}, Field::l3_type, Layer::inner}, {{234, 2}, Field::l4_type, Layer::inner},
    {{236, 2}, Field::first_qualifier, Layer::inner}, {{238, 1}, Field::fragment, Layer::inner},
    {{240, 8}, Field::protocol}, {{248, 2}, Field::l3_type}, {{250, 2}, Field::l4_type},
    {{252, 2}, Field::first_qualifier}, {{254, 1}, Field::fragment},
};
inline constexpr LookupRow layout_25[] = {
    {{0, 32}, Field::ipv4_source, Layer::inner}, {{32, 32}, Field::ipv4_destination, Layer::inner},
    {{64, 16}, Field::source_port, Layer::inner}, {{80, 16}, Field::destination_port, Layer::inner},
    {{128, 32}, Field::tunnel_header_0}, {{160, 32}, Field::tunnel_header_1},
    {{194, 2}, Field::l3_type, Layer::inner}, {{196, 2}, Field::l4_type, Layer::inner},
    {{198, 2}, Field::first_qualifier, Layer::inner},
    {{202, 2}, Field::l3_type}, {{204, 2}, Field::l4_type}, {{206, 2}, Field::first_qualifier},
    {{208, 16}, Field::destination_port},
};
inline constexpr LookupRow layout_26[] = {
    {{0, 32}, Field::ipv6_source_127_96}, {{32, 32}, Field::ipv6_source_95_64}, {{64, 32}, Field::ipv6_source_63_32},
    {{96, 32}, Field::ipv6_source_31_0}, {{131, 1}, Field::fragment}, {{138, 2}, Field::l3_type},
    {{140, 2}, Field::l4_type}, {{142, 2}, Field::first_qualifier}, {{144, 3}, Field::first_priority},
    {{147, 1}, Field::first_cfi}, {{148, 12}, Field::first_vid}, {{174, 2}, Field::second_qualifier},
    {{176, 3}, Field::second_priority}, {{179, 1}, Field::second_cfi}, {{180, 12}, Field::second_vid},
    {{192, 32}, Field::smac_47_16}, {{224, 16}, Field::smac_15_0}, {{240, 8}, Field::protocol},
    {{248, 8}, Field::tcp_flags},
};
inline constexpr LookupRow layout_28[] = {
    {{0, 16}, Field::source_port, Layer::inner}, {{16, 16}, Field::destination_port, Layer::inner},
    {{64, 32}, Field::ipv4_source, Layer::inner}, {{96, 32}, Field::ipv4_destination, Layer::inner},
    {{128, 32}, Field::ipv4_source}, {{160, 32}, Field::ipv4_destination}, {{192, 16}, Field::source_port},
    {{208, 16}, Field::destination_port}, {{224, 8}, Field::protocol, Layer::inner},
    {{232, 2}, Field::l3_type, Layer::inner}, {{234, 2}, Field::l4_type, Layer::inner},
    {{236, 2}, Field::first_qualifier, Layer::inner}, {{238, 1}, Field::fragment, Layer::inner},
    {{240, 8}, Field::protocol}, {{248, 2}, Field::l3_type}, {{250, 2}, Field::l4_type},
    {{252, 2}, Field::first_qualifier}, {{254, 1}, Field::fragment},
};
inline constexpr LookupRow layout_33[] = {
    {{0, 32}, Field::ipv4_source}, {{32, 32}, Field::ipv4_destination}, {{64, 16}, Field::source_port},
    {{80, 16}, Field::destination_port}, {{99, 1}, Field::fragment}, {{106, 2}, Field::l3_type},
    {{108, 2}, Field::l4_type}, {{110, 2}, Field::first_qualifier}, {{112, 3}, Field::first_priority},
    {{115, 1}, Field::first_cfi}, {{116, 12}, Field::first_vid}, {{224, 4}, Field::ip_version},
    {{228, 4}, Field::ipv4_ihl}, {{240, 8}, Field::ip_ttl}, {{248, 8}, Field::protocol},
};

}  // namespace ovsdr::connectx::entries::definers
