#include "datapath/rdma/ethernet/segmentation.hpp"

#include <arpa/inet.h>

#include <cstring>

#include "datapath/internet_checksum.hpp"
#include "datapath/steering/key.hpp"
#include "datapath/steering/vlan.hpp"

namespace ovsdr::soft {

namespace {

constexpr std::uint8_t protocol_tcp = 6, protocol_udp = 17;
constexpr unsigned tcp_checksum = 16, udp_checksum = 6, ipv4_checksum = 10;
constexpr std::uint8_t tcp_fin = 0x01, tcp_push = 0x08, tcp_reduced = 0x80;

/// The TCP or UDP packet that a frame holds whole.
struct Transport {
    unsigned checksum = 0;  ///< offset in the frame; 0: there is none
    std::size_t length = 0;
};

[[nodiscard]] Transport transport_of(const std::uint8_t* frame, std::size_t size, const Headers& headers) noexcept {
    const bool tcp = headers.l4_protocol == protocol_tcp;
    if (headers.l4 == 0 || headers.fragment || (!tcp && headers.l4_protocol != protocol_udp)) return {};
    const std::uint8_t* const l3 = frame + headers.l3;
    const std::size_t end = headers.l3 + (headers.l3_version == 4 ? load_be16(l3 + 2) : 40u + load_be16(l3 + 4));
    if (end > size || end < headers.l4) return {};
    return {headers.l4 + (tcp ? tcp_checksum : udp_checksum), end - headers.l4};
}

/// Its sum with the pseudo header: 0xffff where the checksum in it is right.
[[nodiscard]] std::uint16_t sum_of(const std::uint8_t* frame, const Headers& headers, std::size_t length) noexcept {
    const std::uint8_t* const l3 = frame + headers.l3;
    const std::uint64_t addresses = headers.l3_version == 4 ? internet_sum(l3 + 12, 8) : internet_sum(l3 + 8, 32);
    const std::uint64_t rest = htonl(static_cast<std::uint32_t>(length)) + std::uint64_t{htons(headers.l4_protocol)};
    return folded(addresses + rest + internet_sum(frame + headers.l4, length));
}

/// A checksum in network order.
void store(std::uint8_t* to, std::uint16_t checksum) noexcept {
    std::memcpy(to, &checksum, sizeof checksum);
}

}  // namespace

void fill_checksums(std::span<std::uint8_t> frame, Checksums which) noexcept {
    if (!which.ip && !which.transport) return;
    const Headers headers = locate(frame.data(), static_cast<std::uint32_t>(frame.size()));
    if (headers.l3 == 0) return;
    if (which.ip && headers.l3_version == 4) {
        std::uint8_t* const l3 = frame.data() + headers.l3;
        store(l3 + ipv4_checksum, 0);
        store(l3 + ipv4_checksum, internet_checksum(l3, (l3[0] & 15u) * 4));
    }
    const Transport transport = which.transport ? transport_of(frame.data(), frame.size(), headers) : Transport();
    if (transport.checksum == 0) return;
    std::uint8_t* const place = frame.data() + transport.checksum;
    store(place, 0);
    auto checksum = static_cast<std::uint16_t>(~sum_of(frame.data(), headers, transport.length));
    // An absent UDP checksum is written as 0: one that is 0 goes as its other form.
    if (checksum == 0 && headers.l4_protocol == protocol_udp) checksum = 0xffff;
    store(place, checksum);
}

Checksums good_checksums(std::span<const std::uint8_t> frame) noexcept {
    return good_checksums(frame, locate(frame.data(), static_cast<std::uint32_t>(frame.size())));
}

Checksums good_checksums(std::span<const std::uint8_t> packet, const Headers& headers) noexcept {
    // An IP packet without an Ethernet header begins at 0.
    if (headers.l3_version == 0) return {};
    const std::uint8_t* const l3 = packet.data() + headers.l3;
    const Transport transport = transport_of(packet.data(), packet.size(), headers);
    return {.ip = headers.l3_version == 6 || folded(internet_sum(l3, (l3[0] & 15u) * 4)) == 0xffff,
            .transport = transport.checksum != 0 && sum_of(packet.data(), headers, transport.length) == 0xffff};
}

void write_segment_header(std::span<std::uint8_t> frame, const Segment& segment) noexcept {
    // Of the request's header the lengths are not yet this packet's: the parser gets them right first.
    const auto [type_at, type, tags] = ethertype_of(frame.data(), static_cast<std::uint32_t>(frame.size()));
    if (type == 0) return;
    std::uint8_t* const l3 = frame.data() + type_at + 2;
    const std::size_t size = frame.size() - type_at - 2;
    if (type == 0x0800 && size >= 20) {
        store_be16(l3 + 2, static_cast<std::uint16_t>(size));
        store_be16(l3 + 4, static_cast<std::uint16_t>(load_be16(l3 + 4) + segment.index));
    } else if (type == 0x86dd && size >= 40) {
        store_be16(l3 + 4, static_cast<std::uint16_t>(size - 40));
    }
    const Headers headers = locate(frame.data(), static_cast<std::uint32_t>(frame.size()));
    if (headers.l4 == 0 || headers.l4_protocol != protocol_tcp) return;
    std::uint8_t* const tcp = frame.data() + headers.l4;
    store_be32(tcp + 4, load_be32(tcp + 4) + segment.offset);
    if (!segment.last) tcp[13] = static_cast<std::uint8_t>(tcp[13] & ~(tcp_fin | tcp_push));
    if (segment.index != 0) tcp[13] = static_cast<std::uint8_t>(tcp[13] & ~tcp_reduced);
}

}  // namespace ovsdr::soft
