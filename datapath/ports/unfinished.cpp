#include "datapath/ports/unfinished.hpp"

#include <endian.h>
#include <isa-l/crc.h>
#include <rte_mbuf.h>

#include <algorithm>
#include <cstring>

#include "common/wide_registers.hpp"
#include "datapath/internet_checksum.hpp"
#include "datapath/steering/key.hpp"
#include "datapath/steering/parser.hpp"
#include "datapath/steering/vlan.hpp"

namespace ovsdr::soft {
namespace {

constexpr std::uint16_t type_ethernet = 0x6558, type_ipv4 = 0x0800, type_ipv6 = 0x86dd;
constexpr std::uint8_t protocol_ipv4 = 4, protocol_tcp = 6, protocol_udp = 17, protocol_ipv6 = 41, protocol_gre = 47;
constexpr std::uint8_t ipv6_hop_by_hop = 0, ipv6_routing = 43, ipv6_destination = 60;
constexpr std::uint16_t port_gpe = 4790, port_geneve = 6081;
constexpr std::uint8_t tcp_fin = 0x01, tcp_push = 0x08, tcp_reduced = 0x80;
constexpr std::uint16_t tcp_checksum = 16, udp_checksum = 6, sctp_checksum = 8;
constexpr std::uint32_t udp_size = 8, vxlan_size = 8, least_tcp = 20, least_ipv4 = 20, ipv6_size = 40;

void store(std::uint8_t* to, std::uint16_t checksum) noexcept { std::memcpy(to, &checksum, sizeof checksum); }

/// 0 stands for none.
std::uint16_t of_udp(std::uint16_t checksum) noexcept { return checksum == 0 ? 0xffff : checksum; }

void fill_sctp(std::uint8_t* packet, std::size_t size) noexcept {
    std::memset(packet + sctp_checksum, 0, 4);
    const std::uint32_t crc = htole32(~crc32_iscsi(packet, static_cast<int>(size), 0xffffffff));
    leave_wide_registers();
    std::memcpy(packet + sctp_checksum, &crc, sizeof crc);
}

/// The protocol behind an IPv6 header at `at`, which moves there.
std::uint8_t follow_ipv6(std::span<const std::uint8_t> frame, std::uint32_t& at) noexcept {
    std::uint8_t protocol = frame[at + 6];
    at += ipv6_size;
    while ((protocol == ipv6_hop_by_hop || protocol == ipv6_routing || protocol == ipv6_destination) &&
           at + 8 <= frame.size()) {
        protocol = frame[at];
        at += 8u + 8u * frame[at + 1];
    }
    return protocol;
}

/// What a tunnel's header at `at` is followed by, which moves there: an ethertype; 0 where nobody knows.
std::uint16_t follow_udp_tunnel(std::span<const std::uint8_t> frame, std::uint32_t& at) noexcept {
    if (at + udp_size + vxlan_size > frame.size()) return 0;
    const std::uint16_t port = load_be16(&frame[at + 2]);
    at += udp_size;
    const std::uint8_t* const header = &frame[at];
    at += vxlan_size;
    if (port == port_geneve) {
        at += (header[0] & 0x3fu) * 4;
        return load_be16(header + 2);
    }
    if (port != port_gpe) return type_ethernet;  // VXLAN is on many ports
    return header[3] == 1 ? type_ipv4 : header[3] == 2 ? type_ipv6 : header[3] == 3 ? type_ethernet : 0;
}

/// Of a GRE header: where there is a sequence number, each segment would want one.
std::uint16_t follow_gre(std::span<const std::uint8_t> frame, std::uint32_t& at) noexcept {
    if (at + 4 > frame.size() || (frame[at] & 0x10) != 0 || (frame[at + 1] & 7) != 0) return 0;
    const std::uint16_t type = load_be16(&frame[at + 2]);
    at += 4u + ((frame[at] & 0x80) != 0 ? 4 : 0) + ((frame[at] & 0x20) != 0 ? 4 : 0);
    return type;
}

}  // namespace

void finish_checksum(std::span<std::uint8_t> frame, const VirtioHeader& says) noexcept {
    if ((says.flags & VirtioHeader::needs_checksum) == 0) return;
    const std::size_t start = says.csum_start, place = start + says.csum_offset;
    if (place + 2 > frame.size()) return;
    const std::size_t size = frame.size() - start;
    if (says.csum_offset == sctp_checksum && size >= sctp_checksum + 4) return fill_sctp(&frame[start], size);
    // The field holds the pseudo-header's sum.
    const std::uint16_t checksum = internet_checksum(&frame[start], size);
    store(&frame[place], says.csum_offset == udp_checksum ? of_udp(checksum) : checksum);
}

bool Unfinished::add(Layer::Kind kind, std::uint32_t at) noexcept {
    if (layer_count_ == layers_.size()) return false;
    layers_[layer_count_++] = {kind, static_cast<std::uint16_t>(at)};
    return true;
}

/// From the Ethernet header to the one at l4_.
bool Unfinished::find_layers(std::uint8_t wanted) noexcept {
    std::uint32_t at = 0;
    for (std::uint16_t type = type_ethernet; at < l4_;) {
        if (type == type_ethernet) {
            if (at + 14 > frame_.size()) return false;
            const EtherType behind = ethertype_of(&frame_[at], static_cast<std::uint32_t>(frame_.size() - at));
            type = behind.type;
            at += behind.offset + 2;
        }
        std::uint8_t protocol = 0;
        if (type == type_ipv4 && at + least_ipv4 <= frame_.size()) {
            if (!add(Layer::Kind::ipv4, at) || (load_be16(&frame_[at + 6]) & 0x3fff) != 0) return false;
            protocol = frame_[at + 9];
            at += std::max((frame_[at] & 0xfu) * 4, least_ipv4);
        } else if (type == type_ipv6 && at + ipv6_size <= frame_.size()) {
            if (!add(Layer::Kind::ipv6, at)) return false;
            protocol = follow_ipv6(frame_, at);
        } else {
            return false;
        }
        if (at >= l4_) return at == l4_ && protocol == wanted;
        if (protocol == protocol_udp) {
            if (!add(Layer::Kind::udp, at)) return false;
            type = follow_udp_tunnel(frame_, at);
        } else if (protocol == protocol_gre) {
            if ((frame_[at] & 0x80) != 0 && !add(Layer::Kind::gre, at)) return false;
            type = follow_gre(frame_, at);
        } else {
            type = protocol == protocol_ipv4 ? type_ipv4 : protocol == protocol_ipv6 ? type_ipv6 : 0;
        }
    }
    return false;
}

/// The pseudo-header's of what is to be cut, but for the length.
std::uint64_t Unfinished::sum_addresses() const noexcept {
    const Layer& ip = layers_[layer_count_ - 1];
    const bool v4 = ip.kind == Layer::Kind::ipv4;
    return internet_sum(&frame_[ip.at + (v4 ? 12u : 8u)], v4 ? 8 : 32) + htobe16(tcp_ ? protocol_tcp : protocol_udp);
}

bool Unfinished::begin(std::span<const std::uint8_t> frame, const VirtioHeader& says, std::uint32_t room) noexcept {
    const unsigned kind = says.gso_type & ~unsigned{VirtioHeader::ecn};
    tcp_ = kind == VirtioHeader::gso_tcp4 || kind == VirtioHeader::gso_tcp6;
    careful_ = (says.gso_type & VirtioHeader::ecn) != 0;
    frame_ = frame;
    layer_count_ = 0;
    number_ = 0;
    segment_ = says.gso_size;
    give_up();
    if ((!tcp_ && kind != VirtioHeader::gso_udp) || segment_ == 0) return false;
    const bool unsummed = (says.flags & VirtioHeader::needs_checksum) != 0;
    const std::uint16_t field = tcp_ ? tcp_checksum : udp_checksum;
    if (unsummed) {
        if (says.csum_offset != field) return false;
        l4_ = says.csum_start;
    } else {
        const Headers found = locate(frame.data(), static_cast<std::uint32_t>(frame.size()));
        if (found.l4 == 0 || found.fragment) return false;
        l4_ = found.l4;
    }
    if (l4_ + (tcp_ ? least_tcp : udp_size) > frame.size()) return false;
    const std::uint32_t headers = l4_ + (tcp_ ? std::max((frame[l4_ + 12] >> 4) * 4u, least_tcp) : udp_size);
    if (headers >= frame.size() || headers + segment_ > room) return false;
    if (!find_layers(tcp_ ? protocol_tcp : protocol_udp)) return false;
    // What a host leaves has the pseudo-header's sum in the field, with a length that is the frame's.
    pseudo_ = sum_addresses();
    right_ = layer_count_ == 1;
    if (unsummed) {
        std::uint16_t told;
        std::memcpy(&told, &frame[l4_ + field], sizeof told);
        const auto length = static_cast<std::uint16_t>(~htobe16(static_cast<std::uint16_t>(frame.size() - l4_)));
        const std::uint64_t without = std::uint64_t{told} + length;
        right_ = right_ && folded(pseudo_ + static_cast<std::uint16_t>(~folded(without))) == 0xffff;
        pseudo_ = without;
    }
    headers_ = static_cast<std::uint16_t>(headers);
    next_ = headers;
    return true;
}

void Unfinished::write_lengths(std::uint8_t* segment, std::uint32_t size) const noexcept {
    for (unsigned i = 0; i < layer_count_; ++i) {
        std::uint8_t* const header = segment + layers_[i].at;
        const std::uint32_t length = size - layers_[i].at;
        switch (layers_[i].kind) {
            case Layer::Kind::ipv4:
                store_be16(header + 2, static_cast<std::uint16_t>(length));
                store_be16(header + 4, static_cast<std::uint16_t>(load_be16(header + 4) + number_));
                store(header + 10, 0);
                store(header + 10, internet_checksum(header, std::max((header[0] & 0xfu) * 4, least_ipv4)));
                break;
            case Layer::Kind::ipv6:
                store_be16(header + 4, static_cast<std::uint16_t>(length - ipv6_size));
                break;
            case Layer::Kind::udp:
                store_be16(header + 4, static_cast<std::uint16_t>(length));
                break;
            case Layer::Kind::gre:
                break;
        }
    }
}

void Unfinished::write_transport(std::uint8_t* segment, std::uint32_t size) const noexcept {
    std::uint8_t* const header = segment + l4_;
    const std::uint32_t length = size - l4_;
    const std::uint64_t pseudo = pseudo_ + htobe16(static_cast<std::uint16_t>(length));
    if (tcp_) {
        const bool last = next_ + segment_ >= frame_.size();
        store_be32(header + 4, load_be32(header + 4) + (next_ - headers_));
        if (!last) header[13] = static_cast<std::uint8_t>(header[13] & ~(tcp_fin | tcp_push));
        if (careful_ && number_ != 0) header[13] = static_cast<std::uint8_t>(header[13] & ~tcp_reduced);
        store(header + tcp_checksum, 0);
        store(header + tcp_checksum, internet_checksum(header, length, pseudo));
    } else {
        store_be16(header + 4, static_cast<std::uint16_t>(length));
        store(header + udp_checksum, 0);
        store(header + udp_checksum, of_udp(internet_checksum(header, length, pseudo)));
    }
}

/// Of UDP and GRE around it, from the innermost on: an outer one's is over the inner ones.
void Unfinished::write_outer_checksums(std::uint8_t* segment, std::uint32_t size) const noexcept {
    for (unsigned i = layer_count_; i-- > 1;) {
        const Layer& layer = layers_[i];
        std::uint8_t* const header = segment + layer.at;
        const std::uint32_t length = size - layer.at;
        if (layer.kind == Layer::Kind::gre) {
            store(header + 4, 0);
            store(header + 4, internet_checksum(header, length));
        } else if (layer.kind == Layer::Kind::udp && load_be16(header + udp_checksum) != 0) {
            const std::uint8_t* const ip = segment + layers_[i - 1].at;
            const bool v4 = layers_[i - 1].kind == Layer::Kind::ipv4;
            const std::uint64_t pseudo = internet_sum(ip + (v4 ? 12 : 8), v4 ? 8 : 32) +
                                         htobe16(static_cast<std::uint16_t>(length)) + htobe16(protocol_udp);
            store(header + udp_checksum, 0);
            store(header + udp_checksum, of_udp(internet_checksum(header, length, pseudo)));
        }
    }
}

void Unfinished::next(rte_mbuf* packet) noexcept {
    const std::uint32_t payload = std::min<std::uint32_t>(segment_, static_cast<std::uint32_t>(frame_.size()) - next_);
    const std::uint32_t size = headers_ + payload;
    auto* const segment = rte_pktmbuf_mtod(packet, std::uint8_t*);
    std::memcpy(segment, frame_.data(), headers_);
    std::memcpy(segment + headers_, frame_.data() + next_, payload);
    write_lengths(segment, size);
    write_transport(segment, size);
    write_outer_checksums(segment, size);
    if (right_) packet->ol_flags |= RTE_MBUF_F_RX_IP_CKSUM_GOOD | RTE_MBUF_F_RX_L4_CKSUM_GOOD;
    packet->data_len = static_cast<std::uint16_t>(size);
    packet->pkt_len = size;
    next_ += payload;
    ++number_;
}

}  // namespace ovsdr::soft
