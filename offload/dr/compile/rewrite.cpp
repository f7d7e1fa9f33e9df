#include "offload/dr/compile/rewrite.hpp"

#include <array>
#include <span>

#include "offload/dr/device/prm.hpp"

namespace ovsdr::dr {

namespace {

using enum HeaderField;

/// Bits of an OVS field, from its first byte on, and where the device has them.
struct Part {
    HeaderField field;
    prm::Field place;
};

constexpr Part eth_dst[] = {{dmac_47_16, {0, 32}}, {dmac_15_0, {32, 16}}};
constexpr Part eth_src[] = {{smac_47_16, {0, 32}}, {smac_15_0, {32, 16}}};
constexpr Part ip_src[] = {{src_ipv4, {0, 32}}};
constexpr Part ip_dst[] = {{dst_ipv4, {0, 32}}};
constexpr Part ipv6_src[] = {
    {src_ipv6_127_96, {0, 32}}, {src_ipv6_95_64, {32, 32}}, {src_ipv6_63_32, {64, 32}}, {src_ipv6_31_0, {96, 32}}};
constexpr Part ipv6_dst[] = {
    {dst_ipv6_127_96, {0, 32}}, {dst_ipv6_95_64, {32, 32}}, {dst_ipv6_63_32, {64, 32}}, {dst_ipv6_31_0, {96, 32}}};
constexpr Part tos[] = {{ip_dscp, {0, 6}}, {ip_ecn, {6, 2}}};
constexpr Part ttl[] = {{ip_ttl, {0, 8}}};
constexpr Part hop_limit[] = {{ipv6_hoplimit, {0, 8}}};
constexpr Part tcp_src[] = {{tcp_sport, {0, 16}}};
constexpr Part tcp_dst[] = {{tcp_dport, {0, 16}}};
constexpr Part udp_src[] = {{udp_sport, {0, 16}}};
constexpr Part udp_dst[] = {{udp_dport, {0, 16}}};

std::span<const Part> parts_of(std::uint8_t field, bool ipv6) noexcept {
    switch (field) {
        case OVSDR_HEADER_ETH_DST: return eth_dst;
        case OVSDR_HEADER_ETH_SRC: return eth_src;
        case OVSDR_HEADER_IP_SRC: return ip_src;
        case OVSDR_HEADER_IP_DST: return ip_dst;
        case OVSDR_HEADER_IPV6_SRC: return ipv6_src;
        case OVSDR_HEADER_IPV6_DST: return ipv6_dst;
        case OVSDR_HEADER_IP_TOS: return tos;
        case OVSDR_HEADER_IP_TTL: return ipv6 ? std::span<const Part>(hop_limit) : std::span<const Part>(ttl);
        case OVSDR_HEADER_TCP_SRC: return tcp_src;
        case OVSDR_HEADER_TCP_DST: return tcp_dst;
        case OVSDR_HEADER_UDP_SRC: return udp_src;
        case OVSDR_HEADER_UDP_DST: return udp_dst;
        default: return {};
    }
}

}  // namespace

void Rewrite::write(const ovsdr_set& set, bool ipv6) {
    for (const Part& part : parts_of(set.field, ipv6)) {
        const std::uint32_t mask = prm::get(set.mask, part.place);
        if (mask == 0) continue;
        Bits& bits = fields_[part.field];
        bits.value = (bits.value & ~mask) | (prm::get(set.value, part.place) & mask);
        bits.mask |= mask;
    }
}

std::vector<HeaderWrite> Rewrite::writes() const {
    std::vector<HeaderWrite> writes;
    writes.reserve(fields_.size());
    for (const auto& [field, bits] : fields_) writes.push_back({field, bits.value, bits.mask});
    return writes;
}

}  // namespace ovsdr::dr
