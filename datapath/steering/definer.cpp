#include "datapath/steering/definer.hpp"

#include <algorithm>
#include <iterator>
#include <span>

namespace ovsdr::soft {
namespace {

namespace at = key_offset;

struct Range {
    std::uint8_t offset, size, bits;
};

constexpr std::uint8_t all = 0xff, not_tcp_flags = 0xfe,
                       inner_kind = cvlan_bit | svlan_bit | frag_bit | ip_version_bits;

constexpr Range format_0[] = {{at::smac, 16, all},  // to first_vlan
                              {at::l3_flags, 1, not_tcp_flags},
                              {at::tcp_flags, 1, all},     // without the ninth
                              {reg_c_offset(1), 8, all}};  // and reg_c_0
constexpr Range format_2[] = {{at::ip_protocol, 2, all},   // and tos
                              {at::l3_flags, 1, frag_bit | ip_version_bits | 1},
                              {at::tcp_flags, 5, all},  // and the TCP ports
                              {at::ihl, 1, 0xf0},
                              {at::ttl, 5, all},  // and the UDP ports
                              {at::reg_a, 4, all}};
constexpr Range format_22[] = {{at::smac, 6, all},
                               {at::dmac, 8, all},  // and first_vlan
                               {at::l3_flags, 1, not_tcp_flags},
                               {at::tcp_sport, 4, all},  // and tcp_dport
                               {at::udp_sport, 4, all},
                               {at::reg_c_0, 4, all}};
constexpr Range format_24[] = {{at::ip_protocol, 1, all},
                               {at::l3_flags, 1, not_tcp_flags},
                               {at::tcp_sport, 4, all},
                               {at::udp_sport, 4, all},
                               {reg_c_offset(3), 16, all},  // to reg_c_0
                               {at::inner + at::ip_protocol, 1, all},
                               {at::inner + at::l3_flags, 1, inner_kind}};

struct Definer {
    unsigned format;
    std::span<const Range> ranges;
    bool ipv4_addresses;  ///< of a mask with IP version 4
    bool
        protocol_by_ports;  ///< tells TCP from UDP and nothing else: beside a port, or where the mask itself is 6 or 17
};
constexpr Definer definers[] = {{0, format_0, false, false},
                                {2, format_2, false, false},
                                {22, format_22, true, true},
                                {24, format_24, true, false}};

void clear(Key& key, const Range& range) noexcept {
    for (unsigned i = 0; i < range.size; ++i) {
        std::uint8_t& byte = key.bytes()[range.offset + i];
        byte = static_cast<std::uint8_t>(byte & ~range.bits);
    }
}

[[nodiscard]] bool tells_tcp_from_udp(const Key& mask) noexcept {
    constexpr std::uint8_t tcp = 6, udp = 17;
    const std::uint8_t protocol = mask.bytes()[at::ip_protocol];
    const bool ports = load_be32(mask.bytes() + at::tcp_sport) != 0 || load_be32(mask.bytes() + at::udp_sport) != 0;
    return ports || protocol == tcp || protocol == udp;
}

[[nodiscard]] bool covers(const Definer& definer, const Key& mask) noexcept {
    Key left = mask;
    for (const Range& range : definer.ranges) clear(left, range);
    if (definer.protocol_by_ports && tells_tcp_from_udp(mask)) clear(left, {at::ip_protocol, 1, all});
    if (definer.ipv4_addresses && (mask.bytes()[at::l3_flags] & ip_version_bits) == ip_version_4) {
        constexpr unsigned ipv6_only = 12;
        clear(left, {at::source_ip + ipv6_only, 4, all});
        clear(left, {at::destination_ip + ipv6_only, 4, all});
    }
    return left == Key{};
}

}  // namespace

bool fits_definer(std::uint64_t formats, const Key& mask) noexcept {
    return std::any_of(std::begin(definers), std::end(definers), [&](const Definer& definer) {
        return (formats >> definer.format & 1) != 0 && covers(definer, mask);
    });
}

}  // namespace ovsdr::soft
