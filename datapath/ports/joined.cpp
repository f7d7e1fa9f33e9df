#include "datapath/ports/joined.hpp"

#include <endian.h>
#include <rte_mbuf.h>

#include <cstring>

#include "datapath/internet_checksum.hpp"
#include "datapath/steering/key.hpp"

namespace ovsdr::soft {
namespace {

constexpr std::uint16_t type_vlan = 0x8100, type_ipv4 = 0x0800, type_ipv6 = 0x86dd;
constexpr std::uint8_t protocol_tcp = 6;
constexpr std::uint8_t tcp_fin = 0x01, tcp_push = 0x08, tcp_ack = 0x10, tcp_echo = 0x40;
constexpr std::uint8_t ends = tcp_fin | tcp_push;  ///< a cut leaves them to the last
constexpr std::uint32_t tcp_checksum = 16, least_tcp = 20, ipv4_size = 20, ipv6_size = 40;
constexpr std::uint32_t most_of_ip = 65535;

/// A TCP packet that may be joined, by itself.
struct Part {
    const std::uint8_t* frame = nullptr;
    bool v4 = false;
    std::uint16_t l3 = 0, l4 = 0, headers = 0;
    std::uint32_t payload = 0;  ///< 0: it may not

    [[nodiscard]] std::uint8_t flags() const noexcept { return frame[l4 + 13]; }
    [[nodiscard]] std::uint32_t sequence() const noexcept { return load_be32(frame + l4 + 4); }
    [[nodiscard]] bool is_last_of(const Part& first) const noexcept {
        return (flags() & ends) != 0 || payload < first.payload;
    }
};

/// Of a packet's TCP segment of `length` bytes, in network order.
std::uint64_t pseudo_sum(const Part& part, std::uint32_t length) noexcept {
    const std::uint8_t* const ip = part.frame + part.l3;
    return internet_sum(ip + (part.v4 ? 12 : 8), part.v4 ? 8 : 32) + htobe16(static_cast<std::uint16_t>(length)) +
           htobe16(protocol_tcp);
}

bool checksums_are_good(const rte_mbuf* packet, const Part& part) noexcept {
    if (part.v4 && folded(internet_sum(part.frame + part.l3, ipv4_size)) != 0xffff) return false;
    if ((packet->ol_flags & RTE_MBUF_F_RX_L4_CKSUM_MASK) == RTE_MBUF_F_RX_L4_CKSUM_GOOD) return true;
    const std::uint32_t length = packet->data_len - part.l4;
    return folded(internet_sum(part.frame + part.l4, length) + pseudo_sum(part, length)) == 0xffff;
}

Part part_of(const rte_mbuf* packet) noexcept {
    Part part{.frame = rte_pktmbuf_mtod(packet, const std::uint8_t*)};
    const std::uint32_t size = packet->data_len;
    if (size <= 14 + 4 + ipv4_size + least_tcp || packet->next != nullptr) return {};
    std::uint16_t type = load_be16(part.frame + 12);
    part.l3 = 14;
    if (type == type_vlan) {
        type = load_be16(part.frame + 16);
        part.l3 = 18;
    }
    const std::uint8_t* const ip = part.frame + part.l3;
    part.v4 = type == type_ipv4;
    if (part.v4) {
        if (ip[0] != 0x45 || (load_be16(ip + 6) & 0x3fff) != 0 || ip[9] != protocol_tcp) return {};
        if (load_be16(ip + 2) + std::uint32_t{part.l3} != size) return {};
        part.l4 = static_cast<std::uint16_t>(part.l3 + ipv4_size);
    } else {
        if (type != type_ipv6 || part.l3 + ipv6_size + least_tcp > size || ip[6] != protocol_tcp) return {};
        if (load_be16(ip + 4) + ipv6_size + part.l3 != size) return {};
        part.l4 = static_cast<std::uint16_t>(part.l3 + ipv6_size);
    }
    const std::uint32_t headers = part.l4 + (part.frame[part.l4 + 12] >> 4) * 4u;
    if (headers < part.l4 + least_tcp || headers >= size) return {};
    if ((part.flags() & ~(ends | tcp_echo)) != tcp_ack) return {};
    part.headers = static_cast<std::uint16_t>(headers);
    part.payload = size - headers;
    return part;
}

/// The same bytes at the same places.
bool same(const Part& a, const Part& b, std::uint32_t from, std::uint32_t to) noexcept {
    return std::memcmp(a.frame + from, b.frame + from, to - from) == 0;
}

/// `next` is what a cut would make of the packet behind the `number` from `first` on, which have `payload` bytes.
bool follows(const Part& first, const Part& next, std::uint32_t number, std::uint32_t payload) noexcept {
    if (next.payload == 0 || next.payload > first.payload || next.headers != first.headers || next.l4 != first.l4 ||
        next.v4 != first.v4) {
        return false;
    }
    const std::uint32_t l3 = first.l3, l4 = first.l4;
    if (next.sequence() != first.sequence() + payload || ((next.flags() ^ first.flags()) & ~ends) != 0) return false;
    if (first.v4) {
        const auto id = static_cast<std::uint16_t>(load_be16(first.frame + l3 + 4) + number);
        if (load_be16(next.frame + l3 + 4) != id || !same(first, next, 0, l3 + 2)) return false;
        if (!same(first, next, l3 + 6, l3 + 10) || !same(first, next, l3 + 12, l4 + 4)) return false;
    } else if (!same(first, next, 0, l3 + 4) || !same(first, next, l3 + 6, l4 + 4)) {
        return false;
    }
    // Acknowledgement, data offset; window; urgent pointer and options.
    return same(first, next, l4 + 8, l4 + 13) && same(first, next, l4 + 14, l4 + tcp_checksum) &&
           same(first, next, l4 + tcp_checksum + 2, first.headers);
}

/// Of packets from `first` on with so many bytes of payload, the last of which has the flags `end`.
void write(const Part& first, std::uint32_t payload, std::uint8_t end, JoinedHeaders& headers) noexcept {
    std::memcpy(headers.bytes.data(), first.frame, first.headers);
    std::uint8_t* const ip = headers.bytes.data() + first.l3;
    std::uint8_t* const tcp = headers.bytes.data() + first.l4;
    const std::uint32_t length = first.headers - first.l4 + payload;
    if (first.v4) {
        store_be16(ip + 2, static_cast<std::uint16_t>(length + ipv4_size));
        store_be16(ip + 10, 0);
        const std::uint16_t checksum = internet_checksum(ip, ipv4_size);
        std::memcpy(ip + 10, &checksum, sizeof checksum);
    } else {
        store_be16(ip + 4, static_cast<std::uint16_t>(length));
    }
    tcp[13] = static_cast<std::uint8_t>(tcp[13] | end);
    const std::uint16_t sum = folded(pseudo_sum(first, length));
    std::memcpy(tcp + tcp_checksum, &sum, sizeof sum);
    headers.l3 = first.l3;
    headers.l4 = first.l4;
    headers.size = first.headers;
    headers.says = {.flags = VirtioHeader::needs_checksum,
                    .gso_type = first.v4 ? VirtioHeader::gso_tcp4 : VirtioHeader::gso_tcp6,
                    .hdr_len = first.headers,
                    .gso_size = static_cast<std::uint16_t>(first.payload),
                    .csum_start = first.l4,
                    .csum_offset = tcp_checksum};
}

}  // namespace

unsigned join(std::span<rte_mbuf* const> packets, JoinedHeaders& headers) noexcept {
    const Part first = packets.size() > 1 ? part_of(packets[0]) : Part{};
    unsigned number = 1;
    std::uint32_t payload = first.payload;
    std::uint8_t end = 0;
    for (bool last = payload == 0 || first.is_last_of(first); !last && number < packets.size(); ++number) {
        const Part next = part_of(packets[number]);
        if (!follows(first, next, number, payload)) break;
        if (first.headers - first.l3 + payload + next.payload > most_of_ip) break;
        if (number == 1 && !checksums_are_good(packets[0], first)) break;
        if (!checksums_are_good(packets[number], next)) break;
        payload += next.payload;
        end = next.flags() & ends;
        last = next.is_last_of(first);
    }
    if (number > 1) write(first, payload, end, headers);
    return number;
}

void Message::begin(const VirtioHeader& says) noexcept {
    header_ = says;
    length_ = 0;
    add(&header_, sizeof header_);
}

void Message::set(const rte_mbuf* packet) noexcept {
    begin({});
    for (; packet != nullptr && length_ < pieces_.size(); packet = packet->next) {
        add(rte_pktmbuf_mtod(packet, void*), packet->data_len);
    }
}

unsigned Message::join(std::span<rte_mbuf* const> packets) noexcept {
    const unsigned number = soft::join(packets, headers_);
    if (number == 1) {
        set(packets[0]);
        return 1;
    }
    begin(headers_.says);
    add(headers_.bytes.data(), headers_.size);
    for (unsigned i = 0; i < number; ++i) {
        add(rte_pktmbuf_mtod_offset(packets[i], void*, headers_.size), packets[i]->data_len - headers_.size);
    }
    return number;
}

}  // namespace ovsdr::soft
