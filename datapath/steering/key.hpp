// The words that a packet is matched by: the device's match parameters (fte_match_param), big-endian and bit for bit
// where the PRM puts them, without the blocks and words that no packet of ours fills.
//
// Line 0 is the whole outer block. Line 1 gathers what is used of misc, misc3 and misc2. A mask or a rule's value is a
// Key as well; a packet meets a rule when (packet & mask) == value in each word.
//
//   double words 16..19   misc  0..3    source_sqn; source_port; second VLAN; second VLAN's qualifier
//                20..22   misc3 8,6,7   ICMP types and codes; ICMPv4, ICMPv6 header data
//                23..30   misc2 4..11   reg_c_7 .. reg_c_0
//                31       misc2 12      reg_a
//
// Source: dr_match_param and its parts in rdma-core's providers/mlx5/mlx5_ifc.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace ovsdr::soft {

struct alignas(64) Key {
    static constexpr unsigned length = 16;        ///< 64-bit words
    static constexpr unsigned outer_length = 8;   ///< the first of them are the outer block

    std::array<std::uint64_t, length> words;

    [[nodiscard]] std::uint8_t* bytes() noexcept { return reinterpret_cast<std::uint8_t*>(words.data()); }
    [[nodiscard]] const std::uint8_t* bytes() const noexcept {
        return reinterpret_cast<const std::uint8_t*>(words.data());
    }

    friend bool operator==(const Key&, const Key&) = default;
};
static_assert(sizeof(Key) == 128);

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
inline constexpr unsigned source_sqn = 64;   ///< 4 source_vhca_port bits above it are never set
inline constexpr unsigned source_port = 70;
inline constexpr unsigned second_vlan = 72;
inline constexpr unsigned second_qualifier = 76;
inline constexpr unsigned icmp = 80;         ///< v4 type, v4 code, v6 type, v6 code
inline constexpr unsigned icmp_data = 84;
inline constexpr unsigned icmpv6_data = 88;
inline constexpr unsigned reg_c_7 = 92;
inline constexpr unsigned reg_c_0 = 120;
inline constexpr unsigned reg_a = 124;
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

/// Offset of reg_c_`index`.
[[nodiscard]] constexpr unsigned reg_c_offset(unsigned index) noexcept { return key_offset::reg_c_0 - 4 * index; }

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

/// Where a double word of the device's match parameters (by its byte offset there) sits in a Key; -1 where no packet
/// ever has it.
[[nodiscard]] constexpr int key_offset_of(unsigned match_offset) noexcept {
    constexpr unsigned misc = 64, misc2 = 192, misc3 = 256;
    if (match_offset < 64) return static_cast<int>(match_offset);
    if (match_offset >= misc && match_offset < misc + 16) return static_cast<int>(match_offset);
    if (match_offset >= misc2 + 16 && match_offset < misc2 + 52) {
        return static_cast<int>(key_offset::reg_c_7 + (match_offset - misc2 - 16));
    }
    if (match_offset == misc3 + 24) return key_offset::icmp_data;
    if (match_offset == misc3 + 28) return key_offset::icmpv6_data;
    if (match_offset == misc3 + 32) return key_offset::icmp;
    return -1;
}

}  // namespace ovsdr::soft
