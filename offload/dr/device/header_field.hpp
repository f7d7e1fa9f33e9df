// Header fields that a modify_header action writes, as the device numbers them, and the names that people read.
//
// An IPv6 address is four fields, an Ethernet address two. A write to a field of a header that a packet does not have
// must not be asked for: the match sees to that.
//
// Threads: constants. Source: PRM set_action_in.field.
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <string_view>

namespace ovsdr::dr {

enum class HeaderField : std::uint16_t {
    smac_47_16 = 0x1,
    smac_15_0 = 0x2,
    dmac_47_16 = 0x4,
    dmac_15_0 = 0x5,
    ip_dscp = 0x6,
    tcp_sport = 0x8,
    tcp_dport = 0x9,
    ip_ttl = 0xa,
    udp_sport = 0xb,
    udp_dport = 0xc,
    src_ipv6_127_96 = 0xd,
    src_ipv6_95_64 = 0xe,
    src_ipv6_63_32 = 0xf,
    src_ipv6_31_0 = 0x10,
    dst_ipv6_127_96 = 0x11,
    dst_ipv6_95_64 = 0x12,
    dst_ipv6_63_32 = 0x13,
    dst_ipv6_31_0 = 0x14,
    src_ipv4 = 0x15,
    dst_ipv4 = 0x16,
    ipv6_hoplimit = 0x47,
    metadata_reg_c_1 = 0x52,
    ip_ecn = 0x73,
};

/// Bits `mask` of the field become those of `value`; host order, as in prm.hpp.
struct HeaderWrite {
    HeaderField field;
    std::uint32_t value, mask;
    friend auto operator<=>(const HeaderWrite&, const HeaderWrite&) = default;
};

struct HeaderFieldRow {
    HeaderField field;
    std::string_view name;
    std::uint8_t bits;
};

inline constexpr HeaderFieldRow header_fields[] = {
    {HeaderField::smac_47_16, "smac_47_16", 32},
    {HeaderField::smac_15_0, "smac_15_0", 16},
    {HeaderField::dmac_47_16, "dmac_47_16", 32},
    {HeaderField::dmac_15_0, "dmac_15_0", 16},
    {HeaderField::ip_dscp, "ip_dscp", 6},
    {HeaderField::tcp_sport, "tcp_sport", 16},
    {HeaderField::tcp_dport, "tcp_dport", 16},
    {HeaderField::ip_ttl, "ip_ttl", 8},
    {HeaderField::udp_sport, "udp_sport", 16},
    {HeaderField::udp_dport, "udp_dport", 16},
    {HeaderField::src_ipv6_127_96, "src_ipv6_127_96", 32},
    {HeaderField::src_ipv6_95_64, "src_ipv6_95_64", 32},
    {HeaderField::src_ipv6_63_32, "src_ipv6_63_32", 32},
    {HeaderField::src_ipv6_31_0, "src_ipv6_31_0", 32},
    {HeaderField::dst_ipv6_127_96, "dst_ipv6_127_96", 32},
    {HeaderField::dst_ipv6_95_64, "dst_ipv6_95_64", 32},
    {HeaderField::dst_ipv6_63_32, "dst_ipv6_63_32", 32},
    {HeaderField::dst_ipv6_31_0, "dst_ipv6_31_0", 32},
    {HeaderField::src_ipv4, "src_ipv4", 32},
    {HeaderField::dst_ipv4, "dst_ipv4", 32},
    {HeaderField::ipv6_hoplimit, "ipv6_hoplimit", 8},
    {HeaderField::metadata_reg_c_1, "metadata_reg_c_1", 32},
    {HeaderField::ip_ecn, "ip_ecn", 2},
};

/// Commands that the writes take: one for each run of mask bits.
[[nodiscard]] constexpr unsigned commands_of(std::span<const HeaderWrite> writes) noexcept {
    unsigned commands = 0;
    for (const HeaderWrite& write : writes) {
        commands += static_cast<unsigned>(std::popcount(write.mask & ~(write.mask << 1)));
    }
    return commands;
}
/// What a device takes of them: 64, and libmlx5 may leave a gap behind each.
inline constexpr unsigned most_commands = 32;

/// The row of a field; each has one.
[[nodiscard]] constexpr const HeaderFieldRow& row_of(HeaderField field) noexcept {
    for (const HeaderFieldRow& row : header_fields) {
        if (row.field == field) return row;
    }
    __builtin_unreachable();
}

}  // namespace ovsdr::dr
