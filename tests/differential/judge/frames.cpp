#include "tests/differential/judge/frames.hpp"

#include <algorithm>
#include <optional>
#include <span>

#include "tests/differential/judge/megaflows.hpp"

namespace ovsdr::differential {

namespace {

using Bytes = std::vector<std::uint8_t>;

constexpr unsigned most_parsed_tags = 2;
constexpr std::uint16_t first_eth_type = 0x600;   ///< below are lengths

std::uint16_t half(const Bytes& frame, std::size_t at) {
    return static_cast<std::uint16_t>(at + 1 < frame.size() ? frame[at] << 8 | frame[at + 1] : 0);
}

/// What is behind the tags that devices parse.
struct Glance {
    std::uint16_t type = 0;
    std::size_t l3 = 14;
};

Glance glance_at(const Bytes& frame) {
    Glance glance;
    std::size_t at = 12;
    for (unsigned tags = 0; tags < most_parsed_tags && is_tag(half(frame, at)); ++tags) at += 4;
    glance.type = half(frame, at);
    glance.l3 = at + 2;
    return glance;
}

/// Where the L4 header begins and the IP packet ends.
struct Transport {
    std::uint8_t protocol;
    std::size_t begin, end;
};

/// Of a whole, unfragmented packet with a header that is not broken.
std::optional<Transport> transport_of_ipv4(const Bytes& frame, std::size_t l3) {
    if ((half(frame, l3 + 6) & 0x3FFF) != 0) return std::nullopt;
    return Transport{frame[l3 + 9], l3 + (frame[l3] & 15U) * 4U, l3 + half(frame, l3 + 2)};
}

std::optional<Transport> transport_of_ipv6(const Bytes& frame, std::size_t l3) {
    Transport found{frame[l3 + 6], l3 + 40, std::min(frame.size(), l3 + 40 + half(frame, l3 + 4))};
    while (found.protocol == fragment_header || std::ranges::count(stepped_over, found.protocol) != 0) {
        if (found.begin + 8 > found.end) return std::nullopt;
        const bool fragment = found.protocol == fragment_header;
        if (fragment && (half(frame, found.begin + 2) & 0xFFF9) != 0) return std::nullopt;
        found.protocol = frame[found.begin];
        found.begin += 8;   // as large as put_ipv6() makes them
    }
    return found;
}

/// OVS looks at lengths only, the devices at the version too.
bool has_broken_ip(const Bytes& frame, const Glance& glance) {
    const std::size_t at = glance.l3, left = frame.size() - std::min(at, frame.size());
    if (glance.type == type_ipv6) return left < 40 || frame[at] >> 4 != 6;
    if (glance.type != type_ipv4) return false;
    if (left < 20 || frame[at] >> 4 != 4) return true;
    const std::size_t header = (frame[at] & 15U) * 4U;
    const auto total = static_cast<std::size_t>(frame[at + 2] << 8 | frame[at + 3]);
    return header < 20 || total < header || total > left;
}

/// An unfragmented packet's protocol and the size of what follows IP; protocol 0: there is none.
struct Payload {
    std::uint8_t protocol = 0;
    std::size_t size = 0;
    bool atomic_fragment = false;   ///< IPv6: behind a fragment header, and all there (RFC 6946)
    bool routed = false;            ///< IPv6: behind a routing header
};

Payload payload_of(const Bytes& frame, const Glance& glance) {
    if ((glance.type != type_ipv4 && glance.type != type_ipv6) || has_broken_ip(frame, glance)) return {};
    const auto half = [&](std::size_t at) { return static_cast<std::size_t>(frame[at] << 8 | frame[at + 1]); };
    std::size_t at = glance.l3;
    if (glance.type == type_ipv4) {
        const bool fragment = (half(at + 6) & 0x3FFF) != 0;
        return {fragment ? std::uint8_t{0} : frame[at + 9], half(at + 2) - (frame[at] & 15U) * 4U};
    }
    Payload payload{frame[at + 6], half(at + 4)};
    const auto is_extension = [](std::uint8_t protocol) {
        return protocol == fragment_header || std::ranges::count(stepped_over, protocol) != 0;
    };
    for (at += 40; is_extension(payload.protocol) && payload.size >= 8; at += 8) {
        // Reserved bits make a fragment to OVS, and to devices none (named_differences.hpp).
        if (payload.protocol == fragment_header && (half(at + 2) & 0xFFF9) != 0) return {};
        payload = {frame[at], payload.size - 8, payload.atomic_fragment || payload.protocol == fragment_header,
                   payload.routed || payload.protocol == routing_header};
    }
    return payload;
}

/// Of whichever version; nothing if the header is broken.
std::optional<Transport> transport_of(const Bytes& frame) {
    const Glance glance = glance_at(frame);
    if (has_broken_ip(frame, glance)) return std::nullopt;
    if (glance.type == type_ipv4) return transport_of_ipv4(frame, glance.l3);
    return glance.type == type_ipv6 ? transport_of_ipv6(frame, glance.l3) : std::nullopt;
}

constexpr std::size_t tcp_size = 20, udp_size = 8, vxlan_size = 8, geneve_size = 8, gre_size = 4;
constexpr unsigned gre_checksum = 0x80, gre_key = 0x20, geneve_options = 0x3F;

}  // namespace

bool is_of_tunnel(const Bytes& frame) {
    const auto found = transport_of(frame);
    if (!found || found->begin + udp_size > frame.size()) return false;
    const std::uint16_t port = half(frame, found->begin + 2);
    const bool known = port == udp_port_of(TunnelKind::vxlan) || port == udp_port_of(TunnelKind::geneve);
    return found->protocol == protocol_gre || (found->protocol == protocol_udp && known);
}

bool has_gre_checksum(const Bytes& frame) {
    if (!is_of_tunnel(frame)) return false;
    const Transport found = *transport_of(frame);
    return found.protocol == protocol_gre && (frame[found.begin] & gre_checksum) != 0;
}

Bytes inside_of(const Bytes& frame) {
    if (!is_of_tunnel(frame)) return {};
    const Transport found = *transport_of(frame);
    std::size_t at = found.begin;
    if (found.protocol == protocol_gre) {
        const unsigned flags = frame[at];
        at += gre_size + ((flags & gre_checksum) != 0 ? 4 : 0) + ((flags & gre_key) != 0 ? 4 : 0);
    } else if (half(frame, at + 2) == udp_port_of(TunnelKind::vxlan)) {
        at += udp_size + vxlan_size;
    } else {
        at += udp_size + geneve_size;
        if (at <= frame.size()) at += 4 * (frame[at - geneve_size] & geneve_options);
    }
    return at < frame.size() ? Bytes(frame.begin() + static_cast<std::ptrdiff_t>(at), frame.end()) : Bytes();
}

std::optional<IpKind> ip_kind_of(const Bytes& frame) {
    const Glance glance = glance_at(frame);
    if (glance.type < first_eth_type) return std::nullopt;
    if (glance.type != type_ipv4 && glance.type != type_ipv6) return IpKind{};
    const auto found = transport_of(frame);
    if (!found) return std::nullopt;
    return IpKind{static_cast<std::uint8_t>(glance.type == type_ipv4 ? 4 : 6), found->protocol};
}

std::optional<TransportPorts> ports_of(const Bytes& frame) {
    const auto found = transport_of(frame);
    if (!found || (found->protocol != protocol_tcp && found->protocol != protocol_udp)) return std::nullopt;
    const std::size_t size = found->protocol == protocol_tcp ? tcp_size : udp_size;
    if (found->begin + size > std::min(found->end, frame.size())) return std::nullopt;
    return TransportPorts{found->protocol, half(frame, found->begin), half(frame, found->begin + 2)};
}

bool has_no_answer(const Bytes& frame) {
    const Glance glance = glance_at(frame);
    const Payload payload = payload_of(frame, glance);
    const bool icmpv6 = payload.protocol == protocol_icmpv6 && glance.type == type_ipv6;
    if (payload.atomic_fragment || payload.routed) return true;
    if (payload.protocol == protocol_tcp) return payload.size < 20;
    return (payload.protocol == protocol_udp || icmpv6) && payload.size < 8;
}

bool ends_connection(const Bytes& frame) {
    const auto found = transport_of(frame);
    if (!found || found->protocol != protocol_tcp || found->begin + 20 > found->end) return false;
    return (frame[found->begin + 13] & tcp_ends) != 0;
}

bool may_go_up(const Bytes& frame) {
    const Glance glance = glance_at(frame);
    return glance.type < first_eth_type || has_broken_ip(frame, glance);
}

}  // namespace ovsdr::differential
