// Headers of tunnels, as OVS's native tunnels make them for a tnl_push: without what depends on the packet.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <vector>

namespace ovsdr::dr::test {

using HeaderBytes = std::vector<std::uint8_t>;

inline void append(HeaderBytes& to, std::initializer_list<unsigned> bytes) {
    for (const unsigned byte : bytes) to.push_back(static_cast<std::uint8_t>(byte));
}

inline void append_be16(HeaderBytes& to, std::initializer_list<unsigned> words) {
    for (const unsigned word : words) append(to, {word >> 8 & 0xFF, word & 0xFF});
}

/// 02:00:00:00:00:aa to :bb, 172.16.0.1 to 172.16.0.2, don't fragment, ttl 64; with its checksum for a length of 0.
inline HeaderBytes outer_ipv4(std::uint8_t protocol) {
    HeaderBytes bytes;
    append(bytes, {2, 0, 0, 0, 0, 0xbb, 2, 0, 0, 0, 0, 0xaa, 0x08, 0x00});
    append(bytes, {0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, protocol, 0, 0, 172, 16, 0, 1, 172, 16, 0, 2});
    std::uint32_t sum = 0;
    for (std::size_t i = 14; i < bytes.size(); i += 2) sum += bytes[i] << 8 | bytes[i + 1];
    while (sum >> 16 != 0) sum = (sum & 0xFFFF) + (sum >> 16);
    bytes[24] = static_cast<std::uint8_t>(~sum >> 8);
    bytes[25] = static_cast<std::uint8_t>(~sum);
    return bytes;
}

/// fd00::1 to fd00::2.
inline HeaderBytes outer_ipv6(std::uint8_t protocol) {
    HeaderBytes bytes;
    append(bytes, {2, 0, 0, 0, 0, 0xbb, 2, 0, 0, 0, 0, 0xaa, 0x86, 0xdd, 0x60, 0, 0, 0, 0, 0, protocol, 64});
    append(bytes, {0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1});
    append(bytes, {0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2});
    return bytes;
}

inline HeaderBytes vxlan_over(HeaderBytes bytes, unsigned vni = 5, unsigned checksum = 0) {
    append_be16(bytes, {0, 4789, 0, checksum});
    append(bytes, {8, 0, 0, 0, vni >> 16, vni >> 8 & 0xFF, vni & 0xFF, 0});
    return bytes;
}

inline HeaderBytes vxlan(unsigned vni = 5, unsigned checksum = 0) { return vxlan_over(outer_ipv4(17), vni, checksum); }

/// With `words` of options.
inline HeaderBytes geneve(unsigned words = 2) {
    HeaderBytes bytes = outer_ipv4(17);
    append_be16(bytes, {0, 6081, 0, 0});
    append(bytes, {words, 0x40, 0x65, 0x58, 0, 0, 1, 0});
    for (unsigned i = 0; i < words; ++i) append(bytes, {1, 2, 0x80, i});
    return bytes;
}

inline HeaderBytes gre(HeaderBytes bytes, unsigned flags = 0x2000) {
    append_be16(bytes, {flags, 0x6558});
    for (const unsigned optional : {0x8000U, 0x2000U, 0x1000U}) {
        if ((flags & optional) != 0) append(bytes, {0, 0, 0, 7});
    }
    return bytes;
}

}  // namespace ovsdr::dr::test
