#include "offload/dr/compile/tunnel_header.hpp"

#include <fmt/format.h>

#include <span>

namespace ovsdr::dr {

namespace {

using Bytes = std::span<const std::uint8_t>;

constexpr std::size_t mac_addresses = 12, ethernet = 14, ipv4 = 20, ipv6 = 40, udp = 8, gre = 4, gre_key = 4;
constexpr std::size_t vlan_tag = 4;
constexpr std::uint16_t type_ipv4 = 0x0800, type_ipv6 = 0x86dd;
constexpr std::uint8_t proto_udp = 17, proto_gre = 47;
constexpr std::uint16_t gre_checksum = 0x8000, gre_has_key = 0x2000, gre_sequence = 0x1000;
constexpr std::uint16_t dont_fragment = 0x4000;

std::uint16_t be16_at(Bytes bytes, std::size_t offset) {
    return static_cast<std::uint16_t>(bytes[offset] << 8 | bytes[offset + 1]);
}

void put_be16(std::vector<std::uint8_t>& bytes, std::size_t offset, std::uint16_t value) {
    bytes[offset] = static_cast<std::uint8_t>(value >> 8);
    bytes[offset + 1] = static_cast<std::uint8_t>(value);
}

/// Of a header with its checksum: 0.
std::uint16_t checksum(Bytes header) {
    std::uint32_t sum = 0;
    for (std::size_t i = 0; i < header.size(); i += 2) sum += be16_at(header, i);
    while (sum >> 16 != 0) sum = (sum & 0xFFFF) + (sum >> 16);
    return static_cast<std::uint16_t>(~sum);
}

/// What follows the IP header.
struct Payload {
    std::uint8_t protocol;
    std::size_t offset;
    bool ipv6;
};

/// The IP header, as OVS makes one: without options, not of a fragment, without a length. OVS corrects the IPv4
/// checksum that it finds, the device computes one: the two are the same if it was right.
std::optional<Payload> ip_header(Bytes bytes) {
    if (bytes.size() < ethernet + ipv4 || bytes.size() % 2 != 0) return std::nullopt;
    const std::uint16_t type = be16_at(bytes, mac_addresses);
    const Bytes header = bytes.subspan(ethernet);
    if (type == type_ipv6) {
        if (header.size() < ipv6 || header[0] >> 4 != 6) return std::nullopt;
        return Payload{header[6], ethernet + ipv6, true};
    }
    const bool right = type == type_ipv4 && header[0] == 0x45 && be16_at(header, 2) == 0 &&
                       (be16_at(header, 6) & ~dont_fragment) == 0 && checksum(header.first(ipv4)) == 0;
    return right ? std::optional(Payload{header[9], ethernet + ipv4, false}) : std::nullopt;
}

/// OVS gives these lengths any value (its text parser leaves an IPv6 header's as it was), for it writes them into each
/// packet, as the device does. They are 0 here, so that equal headers are equal: one reformat, and one copy.
void clear_lengths(std::vector<std::uint8_t>& bytes, const Payload& payload) {
    if (payload.ipv6) put_be16(bytes, ethernet + 4, 0);
    if (payload.protocol == proto_udp) put_be16(bytes, payload.offset + 4, 0);
}

/// OVS spreads packets over the ports that it may use. So are megaflows, over fewer.
std::uint16_t source_port(const ovsdr_tunnel_push& push, std::uint64_t flow_hash) {
    if (push.udp_source_end <= push.udp_source_first) return push.udp_source_first;
    const unsigned ports = push.udp_source_end - push.udp_source_first;
    const auto number = static_cast<unsigned>(flow_hash % TunnelHeader::source_ports);
    return static_cast<std::uint16_t>(push.udp_source_first + number * ports / TunnelHeader::source_ports);
}

void refuse(Obstacles& obstacles, StaticName name, std::string value = {}) {
    obstacles.add(RejectReason::unsupported_action, name, std::move(value));
}

/// False: refused.
bool check_udp(Bytes header, bool over_ipv6, Obstacles& obstacles) {
    if (header.size() < udp) {
        refuse(obstacles, "tnl_push with a broken header");
        return false;
    }
    if (be16_at(header, 6) == 0) return true;
    if (over_ipv6) {
        refuse(obstacles, "tnl_push with an outer UDP checksum (OVS sets one in every UDP tunnel over IPv6)");
    } else {
        refuse(obstacles, "tnl_push with an outer UDP checksum "
                          "(set options:csum=false, or OVN's external_ids:ovn-encap-csum=false)");
    }
    return false;
}

bool check_gre(Bytes header, Obstacles& obstacles) {
    const std::uint16_t flags = header.size() < gre ? 0 : be16_at(header, 0);
    const std::size_t size = gre + ((flags & gre_has_key) != 0 ? gre_key : 0);
    if ((flags & gre_checksum) != 0) {
        refuse(obstacles, "tnl_push with a GRE checksum (set options:csum=false)");
    } else if ((flags & gre_sequence) != 0) {
        refuse(obstacles, "tnl_push with a GRE sequence number (set options:seq=false)");
    } else if (header.size() < size || (flags & ~gre_has_key) != 0) {
        refuse(obstacles, "tnl_push with a broken header");
    } else {
        return true;
    }
    return false;
}

}  // namespace

std::optional<TunnelHeader> TunnelHeader::of(const ovsdr_tunnel_push& push, std::uint64_t flow_hash,
                                             const Choices& choices, Obstacles& obstacles) {
    const Bytes bytes(push.header, push.header_size);
    const auto payload = ip_header(bytes);
    if (!payload) {
        refuse(obstacles, "tnl_push with a broken header");
        return std::nullopt;
    }
    TunnelHeader header({bytes.begin(), bytes.end()});
    switch (payload->protocol) {
        case proto_udp:
            if (choices.exact_tunnel_source_port) {
                refuse(obstacles, "tnl_push in UDP (other_config:dr-tunnel-source-port=exact)");
                return std::nullopt;
            }
            if (!check_udp(bytes.subspan(payload->offset), payload->ipv6, obstacles)) return std::nullopt;
            put_be16(header.bytes_, payload->offset, source_port(push, flow_hash));
            clear_lengths(header.bytes_, *payload);
            return header;
        case proto_gre:
            if (!check_gre(bytes.subspan(payload->offset), obstacles)) return std::nullopt;
            clear_lengths(header.bytes_, *payload);
            return header;
        default:
            refuse(obstacles, "tnl_push of another protocol", fmt::format(": {}", payload->protocol));
            return std::nullopt;
    }
}

void TunnelHeader::push(VlanTag tag) {
    bytes_.insert(bytes_.begin() + mac_addresses, vlan_tag, 0);
    put_be16(bytes_, mac_addresses, tag.tpid);
    put_be16(bytes_, mac_addresses + 2, tag.tci);
    ++tags_;
}

void TunnelHeader::pop() noexcept {
    if (tags_ == 0) return;
    bytes_.erase(bytes_.begin() + mac_addresses, bytes_.begin() + mac_addresses + vlan_tag);
    --tags_;
}

}  // namespace ovsdr::dr
