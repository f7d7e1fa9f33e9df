#include "tests/differential/judge/outer_headers.hpp"

#include "tests/differential/judge/bytes.hpp"

namespace ovsdr::differential {

namespace {

constexpr std::uint16_t ethernet_inside = 0x6558, ipv4_inside = 0x0800;
constexpr std::uint16_t gre_checksum = 0x8000, gre_key = 0x2000, gre_reserved = 0x0800;
constexpr std::uint32_t vni_is_valid = 0x08000000, vxlan_reserved = 0x00010000;
constexpr unsigned option_words = 2, geneve_version = 6;

void put_vxlan(Bytes& bytes, const Recipe& outer) {
    put32(bytes, vni_is_valid | (outer.tunnel_lie == TunnelLie::reserved_bits ? vxlan_reserved : 0));
    put32(bytes, outer.word(Feature::tun_id) << 8);
}

void put_geneve(Bytes& bytes, const Recipe& outer) {
    const auto options = list_of(outer.tunnel.options);
    const unsigned version = outer.tunnel_lie == TunnelLie::reserved_bits ? 1 : 0;
    bytes.push_back(static_cast<std::uint8_t>(version << geneve_version | option_words * options.size()));
    bytes.push_back(outer.tunnel.oam ? 0x80 : 0);
    put16(bytes, outer.tunnel_lie == TunnelLie::not_ethernet ? ipv4_inside : ethernet_inside);
    put32(bytes, outer.word(Feature::tun_id) << 8);
    for (const auto& [option_class, type] : options) {
        put16(bytes, option_class);
        bytes.push_back(type);
        bytes.push_back(1);
        put32(bytes, outer.word(Feature::tun_option));
    }
}

void put_gre(Bytes& bytes, const Recipe& outer) {
    const unsigned reserved = outer.tunnel_lie == TunnelLie::reserved_bits ? gre_reserved : 0U;
    put16(bytes, (outer.tunnel.checksum ? gre_checksum : 0U) | (outer.tunnel.key ? gre_key : 0U) | reserved);
    put16(bytes, outer.tunnel_lie == TunnelLie::not_ethernet ? ipv4_inside : ethernet_inside);
    if (outer.tunnel.checksum) put32(bytes, 0);
    if (outer.tunnel.key) put32(bytes, outer.word(Feature::tun_key));
}

}  // namespace

Bytes in_tunnel(const Recipe& outer, std::span<const std::uint8_t> frame) {
    Bytes bytes;
    switch (outer.tunnel.kind) {
        case TunnelKind::vxlan: put_vxlan(bytes, outer); break;
        case TunnelKind::geneve: put_geneve(bytes, outer); break;
        case TunnelKind::gre: put_gre(bytes, outer); break;
    }
    bytes.insert(bytes.end(), frame.begin(), frame.end());
    if (outer.tunnel.kind == TunnelKind::gre && outer.tunnel.checksum) put_checksum(bytes, 4, sum_of(bytes));
    return bytes;
}

}  // namespace ovsdr::differential
