// The match parameter of Direct Rules: which bit of it is which field, and a value with room for the blocks that we
// use.
//
// Model. A matcher's mask and a rule's value are one structure of 512-bit blocks, all big endian: outer headers, misc,
// inner headers, misc2, misc3, misc4 (which we never fill), misc5. A block counts only when its bit is set in the
// matcher's match_criteria. The compiler fills a MatchParam through the Fields below and through nothing else.
//
// Threads: plain values. Source: mlx5dv_dr_flow(3); PRM fte_match_param (rdma-core's dr_match_spec,
// dr_match_set_misc*).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "offload/dr/device/prm.hpp"

namespace ovsdr::dr {

inline constexpr std::size_t match_block_size = 64;    ///< bytes
inline constexpr std::size_t match_block_length = 7;   ///< outer, misc, inner, misc2, misc3, misc4, misc5

/// Bits of match_criteria; the n-th stands for the n-th block.
enum Criteria : std::uint8_t {
    criteria_outer = 1 << 0,
    criteria_misc = 1 << 1,
    criteria_inner = 1 << 2,
    criteria_misc2 = 1 << 3,
    criteria_misc3 = 1 << 4,
    criteria_misc5 = 1 << 6,
};

/// A mask or a value. Default: all zero, which as a mask is match-all.
struct MatchParam {
    alignas(8) std::array<std::uint8_t, match_block_size * match_block_length> bytes{};

    friend bool operator==(const MatchParam&, const MatchParam&) = default;

    /// The blocks in which a bit is set.
    [[nodiscard]] std::uint8_t criteria() const noexcept {
        std::uint8_t criteria = 0;
        for (std::size_t byte = 0; byte < bytes.size(); ++byte) {
            if (bytes[byte] != 0) criteria |= static_cast<std::uint8_t>(1U << (byte / match_block_size));
        }
        return criteria;
    }

    /// Bytes up to the end of the last block in `criteria`, at least one block.
    [[nodiscard]] static std::size_t size_for(std::uint8_t criteria) noexcept {
        std::size_t blocks = 1;
        for (std::size_t block = 0; block < match_block_length; ++block) {
            if (criteria & (1U << block)) blocks = block + 1;
        }
        return blocks * match_block_size;
    }

    [[nodiscard]] std::uint32_t get(prm::Field field) const noexcept { return prm::get(bytes.data(), field); }
    void set(prm::Field field, std::uint32_t value) noexcept { prm::set(bytes.data(), field, value); }
};

namespace field {

inline constexpr std::uint16_t outer_block = 0, misc_block = 512, inner_block = 1024, misc2_block = 1536,
                               misc3_block = 2048, misc5_block = 3072;

[[nodiscard]] constexpr prm::Field outer(std::uint16_t bit_offset, std::uint8_t bits) { return {bit_offset, bits}; }
[[nodiscard]] constexpr prm::Field misc(std::uint16_t bit_offset, std::uint8_t bits) {
    return {static_cast<std::uint16_t>(misc_block + bit_offset), bits};
}
[[nodiscard]] constexpr prm::Field misc2(std::uint16_t bit_offset, std::uint8_t bits) {
    return {static_cast<std::uint16_t>(misc2_block + bit_offset), bits};
}
[[nodiscard]] constexpr prm::Field misc3(std::uint16_t bit_offset, std::uint8_t bits) {
    return {static_cast<std::uint16_t>(misc3_block + bit_offset), bits};
}
[[nodiscard]] constexpr prm::Field misc5(std::uint16_t bit_offset, std::uint8_t bits) {
    return {static_cast<std::uint16_t>(misc5_block + bit_offset), bits};
}

inline constexpr prm::Field smac_47_16 = outer(0, 32), smac_15_0 = outer(32, 16);
inline constexpr prm::Field ethertype = outer(48, 16);
inline constexpr prm::Field dmac_47_16 = outer(64, 32), dmac_15_0 = outer(96, 16);
inline constexpr prm::Field first_prio = outer(112, 3), first_cfi = outer(115, 1), first_vid = outer(116, 12);
inline constexpr prm::Field ip_protocol = outer(128, 8), ip_dscp = outer(136, 6), ip_ecn = outer(142, 2);
inline constexpr prm::Field cvlan_tag = outer(144, 1), svlan_tag = outer(145, 1), frag = outer(146, 1);
inline constexpr prm::Field ip_version = outer(147, 4), tcp_flags = outer(151, 9);
inline constexpr prm::Field tcp_sport = outer(160, 16), tcp_dport = outer(176, 16);
inline constexpr prm::Field ipv4_ihl = outer(208, 4), ip_ttl_hoplimit = outer(216, 8);
inline constexpr prm::Field udp_sport = outer(224, 16), udp_dport = outer(240, 16);
inline constexpr prm::Field src_ip_31_0 = outer(352, 32), dst_ip_31_0 = outer(480, 32);
/// Most significant word of the address first.
inline constexpr std::array<prm::Field, 4> src_ip{outer(256, 32), outer(288, 32), outer(320, 32), outer(352, 32)};
inline constexpr std::array<prm::Field, 4> dst_ip{outer(384, 32), outer(416, 32), outer(448, 32), outer(480, 32)};

inline constexpr prm::Field gre_c_present = misc(0, 1), gre_k_present = misc(2, 1), gre_s_present = misc(3, 1);
inline constexpr prm::Field source_sqn = misc(8, 24), source_port = misc(48, 16);
inline constexpr prm::Field outer_second_prio = misc(64, 3), outer_second_vid = misc(68, 12);
inline constexpr prm::Field inner_second_prio = misc(80, 3), inner_second_vid = misc(84, 12);
inline constexpr prm::Field outer_second_cvlan_tag = misc(96, 1), outer_second_svlan_tag = misc(98, 1);
inline constexpr prm::Field inner_second_cvlan_tag = misc(97, 1), inner_second_svlan_tag = misc(99, 1);
inline constexpr prm::Field gre_protocol = misc(112, 16), gre_key_h = misc(128, 24), gre_key_l = misc(152, 8);
inline constexpr prm::Field vxlan_vni = misc(160, 24), geneve_vni = misc(192, 24);
inline constexpr prm::Field geneve_tlv_option_0_exist = misc(222, 1), geneve_oam = misc(223, 1);
inline constexpr prm::Field outer_ipv6_flow_label = misc(236, 20), inner_ipv6_flow_label = misc(268, 20);
inline constexpr prm::Field geneve_opt_len = misc(298, 6), geneve_protocol_type = misc(304, 16);

inline constexpr prm::Field metadata_reg_c_5 = misc2(192, 32);
inline constexpr prm::Field metadata_reg_c_1 = misc2(320, 32), metadata_reg_c_0 = misc2(352, 32);

inline constexpr prm::Field geneve_tlv_option_0_data = misc3(288, 32);
inline constexpr prm::Field icmp_type = misc3(256, 8), icmp_code = misc3(264, 8);
inline constexpr prm::Field icmpv6_type = misc3(272, 8), icmpv6_code = misc3(280, 8);

/// The first words of the tunnel's own header, as they are in the packet. GRE's second word is not what it is there.
inline constexpr prm::Field tunnel_header_0 = misc5(128, 32), tunnel_header_1 = misc5(160, 32);

[[nodiscard]] constexpr bool is_outer(prm::Field field) noexcept { return field.bit_offset < misc_block; }

/// The same field of what is inside of a tunnel's packet. Not for ICMP, which is read of the outer packet only.
[[nodiscard]] constexpr prm::Field inner_of(prm::Field field) noexcept {
    constexpr prm::Field beside[][2] = {{outer_second_prio, inner_second_prio},
                                        {outer_second_vid, inner_second_vid},
                                        {outer_second_cvlan_tag, inner_second_cvlan_tag},
                                        {outer_second_svlan_tag, inner_second_svlan_tag},
                                        {outer_ipv6_flow_label, inner_ipv6_flow_label}};
    for (const auto& [of_outer, of_inner] : beside) {
        if (field == of_outer) return of_inner;
    }
    return {static_cast<std::uint16_t>(inner_block + field.bit_offset), field.bits};
}

}  // namespace field

/// A field and its name, for people: every field that the compiler can fill, in the order of the structure. Those of
/// the outer headers are inner headers' as well.
struct NamedField {
    std::string_view name;
    prm::Field field;
};

inline constexpr NamedField match_fields[] = {
    {"smac_47_16", field::smac_47_16},
    {"smac_15_0", field::smac_15_0},
    {"ethertype", field::ethertype},
    {"dmac_47_16", field::dmac_47_16},
    {"dmac_15_0", field::dmac_15_0},
    {"first_prio", field::first_prio},
    {"first_vid", field::first_vid},
    {"ip_protocol", field::ip_protocol},
    {"ip_dscp", field::ip_dscp},
    {"ip_ecn", field::ip_ecn},
    {"cvlan_tag", field::cvlan_tag},
    {"svlan_tag", field::svlan_tag},
    {"frag", field::frag},
    {"ip_version", field::ip_version},
    {"tcp_flags", field::tcp_flags},
    {"tcp_sport", field::tcp_sport},
    {"tcp_dport", field::tcp_dport},
    {"ipv4_ihl", field::ipv4_ihl},
    {"ip_ttl_hoplimit", field::ip_ttl_hoplimit},
    {"udp_sport", field::udp_sport},
    {"udp_dport", field::udp_dport},
    {"src_ip_127_96", field::src_ip[0]},
    {"src_ip_95_64", field::src_ip[1]},
    {"src_ip_63_32", field::src_ip[2]},
    {"src_ip_31_0", field::src_ip_31_0},
    {"dst_ip_127_96", field::dst_ip[0]},
    {"dst_ip_95_64", field::dst_ip[1]},
    {"dst_ip_63_32", field::dst_ip[2]},
    {"dst_ip_31_0", field::dst_ip_31_0},
    {"gre_c_present", field::gre_c_present},
    {"gre_k_present", field::gre_k_present},
    {"gre_s_present", field::gre_s_present},
    {"source_sqn", field::source_sqn},
    {"source_port", field::source_port},
    {"outer_second_prio", field::outer_second_prio},
    {"outer_second_vid", field::outer_second_vid},
    {"inner_second_prio", field::inner_second_prio},
    {"inner_second_vid", field::inner_second_vid},
    {"outer_second_cvlan_tag", field::outer_second_cvlan_tag},
    {"inner_second_cvlan_tag", field::inner_second_cvlan_tag},
    {"outer_second_svlan_tag", field::outer_second_svlan_tag},
    {"inner_second_svlan_tag", field::inner_second_svlan_tag},
    {"gre_protocol", field::gre_protocol},
    {"gre_key_h", field::gre_key_h},
    {"gre_key_l", field::gre_key_l},
    {"vxlan_vni", field::vxlan_vni},
    {"geneve_vni", field::geneve_vni},
    {"geneve_tlv_option_0_exist", field::geneve_tlv_option_0_exist},
    {"geneve_oam", field::geneve_oam},
    {"outer_ipv6_flow_label", field::outer_ipv6_flow_label},
    {"inner_ipv6_flow_label", field::inner_ipv6_flow_label},
    {"geneve_opt_len", field::geneve_opt_len},
    {"geneve_protocol_type", field::geneve_protocol_type},
    {"metadata_reg_c_5", field::metadata_reg_c_5},
    {"metadata_reg_c_1", field::metadata_reg_c_1},
    {"metadata_reg_c_0", field::metadata_reg_c_0},
    {"icmp_type", field::icmp_type},
    {"icmp_code", field::icmp_code},
    {"icmpv6_type", field::icmpv6_type},
    {"icmpv6_code", field::icmpv6_code},
    {"geneve_tlv_option_0_data", field::geneve_tlv_option_0_data},
    {"tunnel_header_0", field::tunnel_header_0},
    {"tunnel_header_1", field::tunnel_header_1},
};

}  // namespace ovsdr::dr
