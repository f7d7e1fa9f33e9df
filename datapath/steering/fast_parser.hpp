// Reads the headers of the frames that nearly all traffic consists of: for the look-up in a lane's flow cache.
//
// Model. parse() goes from header to header and writes field by field. Here the outer block's four lines of 16 bytes
// are composed in registers, by shuffles of what lies at three places of the frame, and each is stored once: who loads
// a word behind narrower stores waits until these are in the cache. All other frames are left to parse(); both say the
// same of each frame that this one takes.
//
// Taken: no VLAN tag or one; anything but IP; IPv4 without options and IPv6 without extension headers, not fragmented,
// with at least 20 bytes behind their header (as many as TCP has), of any protocol but ICMP.
//
// Threads: a pure function.
#pragma once

#include <smmintrin.h>

#include <array>
#include <cstdint>
#include <initializer_list>

#include "datapath/steering/key.hpp"
#include "datapath/steering/vlan.hpp"

namespace ovsdr::soft {
namespace fast_parser {

constexpr std::uint32_t ethernet_size = 14, ipv4_size = 20, ipv6_size = 40, least_l4_size = 20;
constexpr std::uint32_t least_size = ethernet_size + ipv4_size + least_l4_size;

/// Which byte of 16 each byte of a line is; `no`: it is 0.
struct alignas(16) Shuffle {
    std::uint8_t bytes[16];

    [[nodiscard]] __m128i of(__m128i line) const noexcept {
        return _mm_shuffle_epi8(line, *reinterpret_cast<const __m128i*>(bytes));
    }
};
constexpr std::uint8_t no = 0x80;

/// Addresses and ethertype, from the frame's beginning; of a tagged frame the ethertype stands behind the tag.
constexpr Shuffle untagged{{6, 7, 8, 9, 10, 11, 12, 13, 0, 1, 2, 3, 4, 5, no, no}};
constexpr Shuffle tagged{{6, 7, 8, 9, 10, 11, no, no, 0, 1, 2, 3, 4, 5, 14, 15}};
/// Protocol, TOS, TTL, from the IP header's beginning; of IPv6 the TOS does not begin with a byte.
constexpr Shuffle ipv4_fields{{9, 1, no, no, no, no, no, no, no, no, no, 8, no, no, no, no}};
constexpr Shuffle ipv6_fields{{6, no, no, no, no, no, no, no, no, no, no, 7, no, no, no, no}};
/// Ports and TCP's flags, from the L4 header's beginning; by L4.
constexpr Shuffle l4_fields[] = {{{no, no, no, no, no, no, no, no, no, no, no, no, no, no, no, no}},
                                 {{no, no, no, no, no, no, no, no, no, no, no, no, 0, 1, 2, 3}},
                                 {{no, no, 12, 13, 0, 1, 2, 3, no, no, no, no, no, no, no, no}}};

/// What stands behind an IP header, by its protocol; `other` is left to parse().
enum L4 : std::uint8_t { no_fields, udp, tcp, other };
using Protocols = std::array<L4, 256>;
[[nodiscard]] constexpr Protocols protocols_but(std::initializer_list<std::uint8_t> others) noexcept {
    Protocols all{};
    all[17] = udp;
    all[6] = tcp;
    for (const std::uint8_t protocol : others) all[protocol] = other;
    return all;
}
constexpr Protocols ipv4_protocols = protocols_but({1});  // ICMP
constexpr Protocols ipv6_protocols = protocols_but({0, 43, 44, 51, 58, 60});  // extension headers, ICMPv6

[[nodiscard]] inline __m128i load(const std::uint8_t* from) noexcept {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
}

inline void store(Key& key, unsigned offset, __m128i line) noexcept {
    _mm_store_si128(reinterpret_cast<__m128i*>(key.bytes() + offset), line);
}

/// A line of key_offset::ip_protocol with these bits.
[[nodiscard]] inline __m128i l3_line(std::uint32_t tos, std::uint32_t l3_flags, std::uint32_t ihl = 0) noexcept {
    return _mm_set_epi32(0, static_cast<int>(ihl << 16), 0, static_cast<int>(tos << 8 | l3_flags << 16));
}

[[nodiscard]] inline __m128i l4_line(L4 l4, const std::uint8_t* header) noexcept {
    const __m128i all_but_reserved_bits = _mm_set_epi32(-1, -1, -1, static_cast<int>(0xff01ffff));
    return l4_fields[l4].of(load(header)) & all_but_reserved_bits;
}

[[nodiscard]] inline bool parse_ipv4(const std::uint8_t* header, std::uint32_t left, __m128i tag, Key& key) noexcept {
    const std::uint32_t total = load_be16(header + 2);
    const bool fragment = (load_be16(header + 6) & 0x3fff) != 0;
    const L4 l4 = ipv4_protocols[header[9]];
    if (header[0] != 0x45 || fragment || total < ipv4_size + least_l4_size || total > left || l4 == other) return false;
    const __m128i first = load(header), address = _mm_set_epi32(-1, 0, 0, 0);
    const __m128i l3 = ipv4_fields.of(first) | l3_line(0, ip_version_4, 0x50) | tag;
    store(key, key_offset::ip_protocol, l3 | l4_line(l4, header + ipv4_size));
    store(key, key_offset::source_ip, first & address);
    store(key, key_offset::destination_ip, load(header + 4) & address);
    return true;
}

[[nodiscard]] inline bool parse_ipv6(const std::uint8_t* header, std::uint32_t left, __m128i tag, Key& key) noexcept {
    if (left < ipv6_size + least_l4_size) return false;
    const L4 l4 = ipv6_protocols[header[6]];
    if (header[0] >> 4 != 6 || load_be16(header + 4) < least_l4_size || l4 == other) return false;
    const __m128i l3 = ipv6_fields.of(load(header)) | l3_line(load_be16(header) >> 4 & 0xff, ip_version_6) | tag;
    store(key, key_offset::ip_protocol, l3 | l4_line(l4, header + ipv6_size));
    store(key, key_offset::source_ip, load(header + 8));
    store(key, key_offset::destination_ip, load(header + 24));
    return true;
}

}  // namespace fast_parser

/// True when it has filled the outer block (words 0 to 7) of `key` as parse() would, which would leave 0 in the second
/// VLAN and ICMP words. False for what parse() has to look at; then the block holds anything.
[[nodiscard]] inline bool parse_fast(const std::uint8_t* frame, std::uint32_t size, Key& key) noexcept {
    using namespace fast_parser;
    if (size < least_size) return false;
    const __m128i begin = load(frame);
    const std::uint8_t* header = frame + ethernet_size;
    std::uint16_t type = load_be16(header - 2);
    __m128i l2 = untagged.of(begin), tag = _mm_setzero_si128();
    if (is_vlan(type)) {
        tag = l3_line(0, type == type_cvlan ? cvlan_bit : svlan_bit);
        header += vlan_tag_size;
        type = load_be16(header - 2);
        if (is_vlan(type)) return false;
        l2 = _mm_insert_epi16(tagged.of(begin), __builtin_bswap16(type), key_offset::ethertype / 2);
    }
    store(key, 0, l2);
    const std::uint32_t left = size - static_cast<std::uint32_t>(header - frame);
    if (type == 0x0800) return parse_ipv4(header, left, tag, key);
    if (type == 0x86dd) return parse_ipv6(header, left, tag, key);
    store(key, key_offset::ip_protocol, tag);
    store(key, key_offset::source_ip, _mm_setzero_si128());
    store(key, key_offset::destination_ip, _mm_setzero_si128());
    return true;
}

}  // namespace ovsdr::soft
