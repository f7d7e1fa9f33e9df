// The words that a packet is matched by: the device's match parameters (fte_match_param), big-endian and bit for bit
// where the PRM puts them, without the blocks and words that no packet of ours fills.
//
// Line 0 is the whole outer block. Line 1 gathers what is used of misc, misc3 and misc2. Lines 2 to 4 are the inner
// block and what else describes a tunnel: they, and the few bits for tunnels in line 1, are read only where a mask asks
// for them (parse_deep()). A mask or a rule's value is a Key as well; a packet meets a rule when (packet & mask) ==
// value in each word.
//
//   double words 16..19   misc  0..3    GRE flags, source_sqn; source_port; second VLANs; their qualifiers,
//                                     gre_protocol
//                20..22   misc3 8,6,7   ICMP types and codes; ICMPv4, ICMPv6 header data
//                23..30   misc2 4..11   reg_c_7 .. reg_c_0
//                31       misc2 12      reg_a
//                32..47   inner
//                48..53   misc  4..9    GRE key; VXLAN VNI; Geneve VNI and OAM; flow labels; Geneve lengths and type
//                54..55   misc2 0..1    first MPLS label, outer and inner
//                56..61   misc3 0..5    TCP numbers; VXLAN-GPE
//                62..63   misc5 4..5    the tunnel header's first 8 bytes
//                64..65   misc2 2..3    first MPLS label over GRE, over UDP
//                66..70   misc3 10..14  GTP-U: TEID; type and flags; third word; first extension's; first word
//                71       misc3 9       the Geneve option's data
//                72       none          reg_b, which rules write for receivers and no mask looks at
//
// Source: dr_match_param and its parts in rdma-core's providers/mlx5/mlx5_ifc.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace ovsdr::soft {

struct alignas(64) Key {
    static constexpr unsigned length = 40;           ///< 64-bit words
    static constexpr unsigned shallow_length = 16;   ///< the first of them are what parse() writes

    std::array<std::uint64_t, length> words;

    [[nodiscard]] std::uint8_t* bytes() noexcept { return reinterpret_cast<std::uint8_t*>(words.data()); }
    [[nodiscard]] const std::uint8_t* bytes() const noexcept {
        return reinterpret_cast<const std::uint8_t*>(words.data());
    }

    friend bool operator==(const Key&, const Key&) = default;
};
static_assert(sizeof(Key) == 320);

/// Byte offsets in a Key.
namespace key_offset {
inline constexpr unsigned smac = 0;
inline constexpr unsigned ethertype = 6;
inline constexpr unsigned dmac = 8;
inline constexpr unsigned first_vlan = 14;   ///< prio 3, cfi 1, vid 12 bits, as on the wire
inline constexpr unsigned ip_protocol = 16;
inline constexpr unsigned tos = 17;          ///< dscp 6, ecn 2 bits
inline constexpr unsigned l3_flags = 18;     ///< cvlan, svlan, frag, ip_version 4 bits, tcp_flags' highest bit
inline constexpr unsigned tcp_flags = 19;
inline constexpr unsigned tcp_sport = 20;
inline constexpr unsigned tcp_dport = 22;
inline constexpr unsigned ihl = 26;          ///< upper 4 bits
inline constexpr unsigned ttl = 27;
inline constexpr unsigned udp_sport = 28;
inline constexpr unsigned udp_dport = 30;
inline constexpr unsigned source_ip = 32;
inline constexpr unsigned destination_ip = 48;
inline constexpr unsigned gre_flags = 64;    ///< upper 4 bits; source_vhca_port, below them, is never set
inline constexpr unsigned source_sqn = 65;   ///< 24 bits
inline constexpr unsigned source_port = 70;
inline constexpr unsigned second_vlan = 72;
inline constexpr unsigned inner_second_vlan = 74;
inline constexpr unsigned second_qualifier = 76;
inline constexpr unsigned gre_protocol = 78;
inline constexpr unsigned icmp = 80;         ///< v4 type, v4 code, v6 type, v6 code
inline constexpr unsigned icmp_data = 84;
inline constexpr unsigned icmpv6_data = 88;
inline constexpr unsigned reg_c_7 = 92;
inline constexpr unsigned reg_c_0 = 120;
inline constexpr unsigned reg_a = 124;
inline constexpr unsigned registers_end = 128;
inline constexpr unsigned inner = 128;       ///< the inner block: the outer one's offsets from here
inline constexpr unsigned gre_key = 192;
inline constexpr unsigned vxlan_vni = 196;   ///< 24 bits
inline constexpr unsigned geneve_vni = 200;  ///< 24 bits
inline constexpr unsigned geneve_oam = 203;  ///< lowest bit; above it geneve_option_exists
inline constexpr unsigned outer_flow_label = 204;  ///< lower 20 of 32 bits
inline constexpr unsigned inner_flow_label = 208;
inline constexpr unsigned geneve_opt_len = 213;    ///< lower 6 bits
inline constexpr unsigned geneve_protocol = 214;
inline constexpr unsigned outer_mpls = 216;
inline constexpr unsigned inner_mpls = 220;
inline constexpr unsigned inner_tcp_seq = 224;
inline constexpr unsigned outer_tcp_seq = 228;
inline constexpr unsigned inner_tcp_ack = 232;
inline constexpr unsigned outer_tcp_ack = 236;
inline constexpr unsigned gpe_vni = 241;     ///< 24 bits
inline constexpr unsigned gpe_next_protocol = 244;
inline constexpr unsigned gpe_flags = 245;
inline constexpr unsigned tunnel_header = 248;  ///< 8 bytes
inline constexpr unsigned mpls_over_gre = 256;
inline constexpr unsigned mpls_over_udp = 260;
inline constexpr unsigned gtpu_teid = 264;
inline constexpr unsigned gtpu_type = 268;
inline constexpr unsigned gtpu_flags = 269;      ///< the first byte: version 3, PT 1, reserved 1, E, S, PN
inline constexpr unsigned gtpu_dw_2 = 272;       ///< sequence number, N-PDU number, next extension's type
inline constexpr unsigned gtpu_extension = 276;  ///< the first extension header's first 4 bytes
inline constexpr unsigned gtpu_dw_0 = 280;
inline constexpr unsigned geneve_option = 284;
inline constexpr unsigned reg_b = 288;
}  // namespace key_offset

/// Bits of key_offset::l3_flags.
inline constexpr std::uint8_t cvlan_bit = 0x80;
inline constexpr std::uint8_t svlan_bit = 0x40;
inline constexpr std::uint8_t frag_bit = 0x20;
inline constexpr std::uint8_t ip_version_bits = 0x1e;
inline constexpr std::uint8_t ip_version_4 = 4 << 1;
inline constexpr std::uint8_t ip_version_6 = 6 << 1;
/// Bits of key_offset::second_qualifier.
inline constexpr std::uint8_t second_cvlan_bit = 0x80;
inline constexpr std::uint8_t second_svlan_bit = 0x20;
inline constexpr std::uint8_t inner_second_cvlan_bit = 0x40;
inline constexpr std::uint8_t inner_second_svlan_bit = 0x10;
/// Bits of key_offset::gre_flags: checksum, key, sequence number.
inline constexpr std::uint8_t gre_c_bit = 0x80, gre_k_bit = 0x20, gre_s_bit = 0x10;
inline constexpr std::uint8_t gre_bits = gre_c_bit | gre_k_bit | gre_s_bit;

/// Bits of key_offset::geneve_oam.
inline constexpr std::uint8_t geneve_oam_bit = 0x01, geneve_option_exists = 0x02;

/// Offset of reg_c_`index`.
[[nodiscard]] constexpr unsigned reg_c_offset(unsigned index) noexcept { return key_offset::reg_c_0 - 4 * index; }
/// Offset of the byte in it that outcomes of state go into (stateful.hpp).
[[nodiscard]] constexpr unsigned outcome_offset(unsigned index) noexcept { return reg_c_offset(index) + 3; }

[[nodiscard]] inline std::uint16_t load_be16(const std::uint8_t* from) noexcept {
    std::uint16_t raw;
    std::memcpy(&raw, from, sizeof raw);
    return __builtin_bswap16(raw);
}

[[nodiscard]] inline std::uint32_t load_be32(const std::uint8_t* from) noexcept {
    std::uint32_t raw;
    std::memcpy(&raw, from, sizeof raw);
    return __builtin_bswap32(raw);
}

inline void store_be16(std::uint8_t* to, std::uint16_t value) noexcept {
    value = __builtin_bswap16(value);
    std::memcpy(to, &value, sizeof value);
}

inline void store_be32(std::uint8_t* to, std::uint32_t value) noexcept {
    value = __builtin_bswap32(value);
    std::memcpy(to, &value, sizeof value);
}

/// Whether a mask looks at what only parse_deep() reads.
[[nodiscard]] inline bool looks_deep(const Key& mask) noexcept {
    const std::uint8_t* bytes = mask.bytes();
    std::uint64_t deep = bytes[key_offset::gre_flags] & gre_bits;
    deep |= load_be16(bytes + key_offset::inner_second_vlan) | load_be16(bytes + key_offset::gre_protocol);
    deep |= bytes[key_offset::second_qualifier] & (inner_second_cvlan_bit | inner_second_svlan_bit);
    for (unsigned i = Key::shallow_length; i < Key::length; ++i) deep |= mask.words[i];
    return deep != 0;
}

/// Bit i: a mask looks at the low byte of reg_c_`i`.
[[nodiscard]] inline std::uint8_t looked_at_outcomes(const Key& mask) noexcept {
    unsigned registers = 0;
    for (unsigned i = 0; i < 8; ++i) registers |= static_cast<unsigned>(mask.bytes()[outcome_offset(i)] != 0) << i;
    return static_cast<std::uint8_t>(registers);
}

/// Where a double word of the device's match parameters (by its byte offset there) sits in a Key; -1 where no packet
/// ever has it.
[[nodiscard]] constexpr int key_offset_of(unsigned match_offset) noexcept {
    struct Stretch {
        unsigned match_offset, size, place;
    };
    constexpr unsigned misc = 64, inner = 128, misc2 = 192, misc3 = 256, misc5 = 384;
    constexpr Stretch stretches[] = {
        {0, 64, 0},
        {misc, 16, misc},
        {misc + 16, 24, key_offset::gre_key},
        {inner, 64, key_offset::inner},
        {misc2, 8, key_offset::outer_mpls},
        {misc2 + 8, 8, key_offset::mpls_over_gre},
        {misc2 + 16, 36, key_offset::reg_c_7},
        {misc3, 24, key_offset::inner_tcp_seq},
        {misc3 + 24, 4, key_offset::icmp_data},
        {misc3 + 28, 4, key_offset::icmpv6_data},
        {misc3 + 32, 4, key_offset::icmp},
        {misc3 + 36, 4, key_offset::geneve_option},
        {misc3 + 40, 20, key_offset::gtpu_teid},
        {misc5 + 16, 8, key_offset::tunnel_header},
    };
    for (const Stretch& stretch : stretches) {
        if (match_offset >= stretch.match_offset && match_offset < stretch.match_offset + stretch.size) {
            return static_cast<int>(stretch.place + match_offset - stretch.match_offset);
        }
    }
    return -1;
}

}  // namespace ovsdr::soft
