#include "datapath/rdma/roce/frame.hpp"

#include <isa-l/crc.h>

#include <algorithm>
#include <cstring>

#include "common/wide_registers.hpp"
#include "datapath/rdma/roce/gid_table.hpp"

namespace ovsdr::soft::roce {

namespace {

struct Ethernet {
    std::uint8_t destination[6], source[6];
    __be16 type;
};
struct Ipv4 {
    std::uint8_t version_length, tos;
    __be16 size, id, fragment;
    std::uint8_t ttl, protocol;
    __be16 checksum;
    std::uint8_t source[4], destination[4];
};
struct Ipv6 {
    __be32 version_class_label;
    __be16 payload_size;
    std::uint8_t next_header, hop_limit;
    std::uint8_t source[16], destination[16];
};
struct Udp {
    __be16 source, destination, size, checksum;
};
static_assert(sizeof(Ethernet) == ethernet_size && sizeof(Ipv4) == 20 && sizeof(Ipv6) == 40 && sizeof(Udp) == 8);

constexpr std::uint16_t type_ipv4 = 0x0800, type_ipv6 = 0x86dd;
constexpr std::uint8_t protocol_udp = 17;
constexpr std::uint16_t dont_fragment = 0x4000;

template <typename Header>
[[nodiscard]] Header load(const void* from) noexcept {
    Header header;
    std::memcpy(&header, from, sizeof header);
    return header;
}

[[nodiscard]] __be16 ipv4_checksum(const std::uint8_t* header) noexcept {
    std::uint32_t sum = 0;
    for (unsigned i = 0; i < sizeof(Ipv4); i += 2) sum += static_cast<std::uint32_t>(header[i] << 8 | header[i + 1]);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    return htobe16(static_cast<std::uint16_t>(~sum));
}

[[nodiscard]] ibv_gid mapped(const std::uint8_t (&address)[4]) noexcept {
    ibv_gid gid{};
    gid.raw[10] = gid.raw[11] = 0xff;
    std::memcpy(gid.raw + 12, address, 4);
    return gid;
}

struct Layers {
    std::uint16_t vlan;
    const std::byte* ip;
    const std::byte* udp;
    bool ipv4;
    std::size_t udp_size;
};
[[nodiscard]] bool read_layers(const std::byte* frame, std::size_t size, Layers& layers) noexcept {
    if (size < sizeof(Ethernet) + sizeof(Ipv4) + sizeof(Udp)) return false;
    const LinkLayer link = read_link_layer(frame, size);
    if (!link.understood) return false;
    const std::uint16_t type = link.type;
    layers.vlan = link.vlan;
    layers.ip = frame + link.size;
    size -= link.size;
    if (type == type_ipv4) {
        if (size < sizeof(Ipv4) + sizeof(Udp)) return false;
        const auto ip = load<Ipv4>(layers.ip);
        if (ip.version_length != 0x45 || ip.protocol != protocol_udp || (be16toh(ip.fragment) & 0x3fff)) return false;
        if (be16toh(ip.size) > size || be16toh(ip.size) < sizeof ip + sizeof(Udp)) return false;
        layers.udp = layers.ip + sizeof ip;
        layers.udp_size = be16toh(ip.size) - sizeof ip;
    } else if (type == type_ipv6) {
        if (size < sizeof(Ipv6) + sizeof(Udp)) return false;
        const auto ip = load<Ipv6>(layers.ip);
        if (be32toh(ip.version_class_label) >> 28 != 6 || ip.next_header != protocol_udp) return false;
        if (be16toh(ip.payload_size) > size - sizeof ip || be16toh(ip.payload_size) < sizeof(Udp)) return false;
        layers.udp = layers.ip + sizeof ip;
        layers.udp_size = be16toh(ip.payload_size);
    } else {
        return false;
    }
    layers.ipv4 = type == type_ipv4;
    return be16toh(load<Udp>(layers.udp).destination) == udp_port;
}

}  // namespace

LinkLayer read_link_layer(const std::byte* frame, std::size_t size) noexcept {
    const auto* const bytes = reinterpret_cast<const std::uint8_t*>(frame);
    const auto [type_at, type, tags] = ethertype_of(bytes, static_cast<std::uint32_t>(size));
    const bool tagged = tags == 1 && load_be16(bytes + offsetof(Ethernet, type)) == type_cvlan;
    if (type_at + 2 > size || (tags != 0 && !tagged)) return {};
    const std::uint16_t vlan = tagged ? load_be16(bytes + ethernet_size) & 0xfff : 0;
    return {.understood = true, .vlan = vlan, .type = type, .size = type_at + 2};
}

Path make_path(const PathSpec& spec) noexcept {
    Path path;
    path.local = spec.local;
    path.multicast = spec.multicast;
    path.blocked = spec.blocked;
    path.ipv4 = is_ipv4(spec.source);
    Ethernet ethernet{};
    std::copy(spec.destination_mac.begin(), spec.destination_mac.end(), ethernet.destination);
    std::copy(spec.source_mac.begin(), spec.source_mac.end(), ethernet.source);
    const __be16 type = htobe16(path.ipv4 ? type_ipv4 : type_ipv6);
    ethernet.type = spec.vlan ? htobe16(type_cvlan) : type;
    std::uint8_t* at = path.front.data();
    std::memcpy(at, &ethernet, sizeof ethernet);
    at += sizeof ethernet;
    if (spec.vlan) {
        const __be16 tag[] = {htobe16(static_cast<std::uint16_t>(spec.priority << 13 | spec.vlan)), type};
        std::memcpy(at, tag, sizeof tag);
        at += sizeof tag;
    }
    if (path.ipv4) {
        Ipv4 ip{.version_length = 0x45, .tos = spec.traffic_class, .fragment = htobe16(dont_fragment),
                .ttl = spec.hop_limit, .protocol = protocol_udp};
        std::memcpy(ip.source, spec.source.raw + 12, 4);
        std::memcpy(ip.destination, spec.destination.raw + 12, 4);
        std::memcpy(at, &ip, sizeof ip);
        at += sizeof ip;
    } else {
        Ipv6 ip{.version_class_label = htobe32(6u << 28 | static_cast<std::uint32_t>(spec.traffic_class) << 20 |
                                               (spec.flow_label & 0xfffff)),
                .next_header = protocol_udp,
                .hop_limit = spec.hop_limit};
        std::memcpy(ip.source, spec.source.raw, 16);
        std::memcpy(ip.destination, spec.destination.raw, 16);
        std::memcpy(at, &ip, sizeof ip);
        at += sizeof ip;
    }
    const Udp udp{.source = htobe16(spec.udp_source), .destination = htobe16(udp_port)};
    std::memcpy(at, &udp, sizeof udp);
    at += sizeof udp;
    path.size = static_cast<std::uint8_t>(at - path.front.data());
    return path;
}

void Path::set_udp_source(std::uint16_t port) noexcept {
    const __be16 source = htobe16(port);
    std::memcpy(front.data() + size - sizeof(Udp) + offsetof(Udp, source), &source, sizeof source);
}

std::byte* write_front(const Path& path, std::byte* frame, unsigned size) noexcept {
    std::memcpy(frame, path.front.data(), path.size);
    auto* const ip = reinterpret_cast<std::uint8_t*>(frame) + path.ip_offset();
    const __be16 udp_size = htobe16(static_cast<std::uint16_t>(sizeof(Udp) + size));
    if (path.ipv4) {
        const __be16 ip_size = htobe16(static_cast<std::uint16_t>(sizeof(Ipv4) + sizeof(Udp) + size));
        std::memcpy(ip + offsetof(Ipv4, size), &ip_size, 2);
        const __be16 checksum = ipv4_checksum(ip);
        std::memcpy(ip + offsetof(Ipv4, checksum), &checksum, 2);
    } else {
        std::memcpy(ip + offsetof(Ipv6, payload_size), &udp_size, 2);
    }
    std::byte* const bth = frame + path.size;
    std::memcpy(bth - sizeof(Udp) + offsetof(Udp, size), &udp_size, 2);
    return bth;
}

std::uint32_t icrc(const std::byte* ip, bool ipv4, std::size_t size) noexcept {
    // Eight bytes of ones for the link header that is not there, the headers with ones where routers write, the BTH.
    std::uint8_t front[8 + sizeof(Ipv6) + sizeof(Udp) + sizeof(Bth)];
    const std::size_t ip_size = ipv4 ? sizeof(Ipv4) : sizeof(Ipv6);
    const std::size_t covered = ip_size + sizeof(Udp) + sizeof(Bth);
    std::memset(front, 0xff, 8);
    std::memcpy(front + 8, ip, covered);
    std::uint8_t* const header = front + 8;
    if (ipv4) {
        header[offsetof(Ipv4, tos)] = header[offsetof(Ipv4, ttl)] = 0xff;
        std::memset(header + offsetof(Ipv4, checksum), 0xff, 2);
    } else {
        header[0] |= 0x0f;
        std::memset(header + 1, 0xff, 3);
        header[offsetof(Ipv6, hop_limit)] = 0xff;
    }
    std::memset(header + ip_size + offsetof(Udp, checksum), 0xff, 2);
    header[ip_size + sizeof(Udp) + offsetof(Bth, qpn)] = 0xff;
    const std::uint32_t begin = crc32_gzip_refl(0, front, 8 + covered);
    const auto* const rest = reinterpret_cast<const unsigned char*>(ip) + covered;
    const std::uint32_t sum = crc32_gzip_refl(begin, rest, size - covered);
    leave_wide_registers();
    return sum;
}

bool is_roce(const std::byte* frame, std::size_t size) noexcept {
    Layers layers;
    return read_layers(frame, size, layers);
}

bool read_frame(const std::byte* frame, std::size_t size, Arrival& arrival) noexcept {
    Layers layers;
    if (!read_layers(frame, size, layers)) return false;
    arrival.frame = frame;
    arrival.vlan = layers.vlan;
    if (be16toh(load<Udp>(layers.udp).size) != layers.udp_size) return false;
    if (layers.udp_size < sizeof(Udp) + sizeof(Bth) + icrc_size || layers.udp_size % 4 != 0) return false;
    arrival.ip = layers.ip;
    arrival.ipv4 = layers.ipv4;
    if (layers.ipv4) {
        const auto ip = load<Ipv4>(layers.ip);
        arrival.source = mapped(ip.source);
        arrival.destination = mapped(ip.destination);
    } else {
        const auto ip = load<Ipv6>(layers.ip);
        std::memcpy(arrival.source.raw, ip.source, 16);
        std::memcpy(arrival.destination.raw, ip.destination, 16);
    }
    arrival.bth = load<Bth>(layers.udp + sizeof(Udp));
    if (arrival.bth.flags & 0x0f) return false;  // the transport header's version
    arrival.service = static_cast<ServiceType>(arrival.bth.opcode & 0xe0);
    arrival.operation = operation_of(arrival.bth.opcode);
    if (arrival.operation.kind == Kind::none) return false;
    arrival.qpn = be32toh(arrival.bth.qpn) & mask24;
    arrival.psn = be32toh(arrival.bth.psn) & mask24;
    arrival.extensions = layers.udp + sizeof(Udp) + sizeof(Bth);
    const std::size_t extensions = extensions_size(arrival.service, arrival.operation);
    const std::size_t body = layers.udp_size - sizeof(Udp) - sizeof(Bth) - icrc_size;
    const unsigned pad = arrival.bth.flags >> 4 & 3;
    if (body < extensions + pad) return false;
    arrival.payload = arrival.extensions + extensions;
    arrival.payload_size = static_cast<std::uint32_t>(body - extensions - pad);
    return true;
}

bool icrc_is_right(const Arrival& arrival) noexcept {
    const std::byte* const end = arrival.payload + arrival.payload_size + (arrival.bth.flags >> 4 & 3);
    const std::uint32_t expected = icrc(arrival.ip, arrival.ipv4, static_cast<std::size_t>(end - arrival.ip));
    return load<__le32>(end) == htole32(expected);
}

}  // namespace ovsdr::soft::roce
