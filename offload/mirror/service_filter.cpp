#include "offload/mirror/service_filter.hpp"

#include <algorithm>
#include <cstring>

namespace ovsdr::mirror {
namespace {

constexpr std::uint16_t type_ipv4 = 0x0800, type_ipv6 = 0x86DD, type_cvlan = 0x8100, type_svlan = 0x88A8;
constexpr std::uint8_t protocol_tcp = 6, protocol_udp = 17;
constexpr std::uint8_t next_hop_by_hop = 0, next_routing = 43, next_fragment = 44, next_ah = 51, next_options = 60;
constexpr std::size_t ipv4_size = 20, ipv6_size = 40, least_extension = 8, most_tags = 2;
// More fragments, or an offset.
constexpr std::uint16_t is_fragment_ipv4 = 0x3FFF, is_fragment_ipv6 = 0xFFF9;

using Bytes = std::span<const std::byte>;

std::uint8_t byte_at(Bytes bytes, std::size_t at) noexcept { return std::to_integer<std::uint8_t>(bytes[at]); }
std::uint16_t be16_at(Bytes bytes, std::size_t at) noexcept {
    return static_cast<std::uint16_t>(byte_at(bytes, at) << 8 | byte_at(bytes, at + 1));
}

/// What begins at its ports.
struct Transport {
    std::uint8_t protocol;
    Bytes bytes;
    Bytes source, destination;   ///< IP addresses
};

std::optional<Transport> behind_ipv4(Bytes ip) noexcept {
    if (ip.size() < ipv4_size || byte_at(ip, 0) >> 4 != 4) return std::nullopt;
    const std::size_t header = (byte_at(ip, 0) & 0xFu) * 4;
    if (header < ipv4_size || header > ip.size() || (be16_at(ip, 6) & is_fragment_ipv4) != 0) return std::nullopt;
    return Transport{byte_at(ip, 9), ip.subspan(header), ip.subspan(12, 4), ip.subspan(16, 4)};
}

/// 0: it is none.
std::size_t extension_size(std::uint8_t next, std::uint8_t length) noexcept {
    switch (next) {
        case next_hop_by_hop:
        case next_routing:
        case next_options: return (length + 1u) * 8;
        case next_ah: return (length + 2u) * 4;
        case next_fragment: return least_extension;
        default: return 0;
    }
}

std::optional<Transport> behind_ipv6(Bytes ip) noexcept {
    if (ip.size() < ipv6_size || byte_at(ip, 0) >> 4 != 6) return std::nullopt;
    Transport behind{byte_at(ip, 6), ip.subspan(ipv6_size), ip.subspan(8, 16), ip.subspan(24, 16)};
    while (extension_size(behind.protocol, 0) != 0) {
        const Bytes header = behind.bytes;
        if (header.size() < least_extension) return std::nullopt;
        const std::size_t size = extension_size(behind.protocol, byte_at(header, 1));
        if (size > header.size()) return std::nullopt;
        if (behind.protocol == next_fragment && (be16_at(header, 2) & is_fragment_ipv6) != 0) return std::nullopt;
        behind.protocol = byte_at(header, 0);
        behind.bytes = header.subspan(size);
    }
    return behind;
}

std::optional<Transport> transport_of(Bytes frame) noexcept {
    std::size_t at = 12;
    for (std::size_t tags = 0; frame.size() >= at + 2; ++tags, at += 4) {
        const std::uint16_t type = be16_at(frame, at);
        if (type == type_ipv4) return behind_ipv4(frame.subspan(at + 2));
        if (type == type_ipv6) return behind_ipv6(frame.subspan(at + 2));
        if ((type != type_cvlan && type != type_svlan) || tags == most_tags) break;
    }
    return std::nullopt;
}

TcpEnd end_of(Bytes address, std::uint16_t port) noexcept {
    TcpEnd end{port, {}};
    if (address.size() == 4) end.address[10] = end.address[11] = 0xff;
    std::memcpy(end.address.data() + end.address.size() - address.size(), address.data(), address.size());
    return end;
}

}  // namespace

std::optional<TransportPorts> transport_ports(Bytes frame) noexcept {
    const auto transport = transport_of(frame);
    if (!transport || (transport->protocol != protocol_tcp && transport->protocol != protocol_udp)) return std::nullopt;
    if (transport->bytes.size() < 4) return std::nullopt;
    return TransportPorts{transport->protocol, be16_at(transport->bytes, 0), be16_at(transport->bytes, 2)};
}

std::optional<TcpEnds> tcp_ends(Bytes frame) noexcept {
    const auto transport = transport_of(frame);
    if (!transport || transport->protocol != protocol_tcp || transport->bytes.size() < 4) return std::nullopt;
    return TcpEnds{end_of(transport->source, be16_at(transport->bytes, 0)),
                   end_of(transport->destination, be16_at(transport->bytes, 2))};
}

bool passes(std::span<const dr::MirrorSteering::Service> services, Bytes frame) noexcept {
    if (services.empty()) return true;
    const auto ports = transport_ports(frame);
    return ports && std::ranges::any_of(services, [&](const dr::MirrorSteering::Service& service) {
        return service.ip_protocol == ports->ip_protocol &&
               (service.port == ports->source || service.port == ports->destination);
    });
}

}  // namespace ovsdr::mirror
