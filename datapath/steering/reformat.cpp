#include "datapath/steering/reformat.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "datapath/steering/tunnel.hpp"
#include "datapath/steering/vlan.hpp"

namespace ovsdr::soft {
namespace {

constexpr std::uint16_t type_ipv4 = 0x0800, type_ipv6 = 0x86dd;
constexpr std::uint8_t protocol_udp = 17;
constexpr std::size_t l2_size = 14, l2_vlan_size = 18;

[[nodiscard]] std::uint16_t header_checksum(const std::uint8_t* header, unsigned size) noexcept {
    std::uint32_t sum = 0;
    for (unsigned i = 0; i < size; i += 2) sum += load_be16(header + i);
    while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
    return static_cast<std::uint16_t>(~sum);
}

/// Room for `size` bytes before the frame; what is there moves back within the buffer when there is none.
[[nodiscard]] std::uint8_t* make_room(rte_mbuf* packet, std::uint16_t size) noexcept {
    const std::uint16_t headroom = rte_pktmbuf_headroom(packet);
    if (headroom + rte_pktmbuf_tailroom(packet) < size) return nullptr;
    if (headroom < size) {
        const std::uint16_t shift = size - headroom;
        auto* frame = rte_pktmbuf_mtod(packet, std::uint8_t*);
        std::memmove(frame + shift, frame, packet->data_len);
        packet->data_off = static_cast<std::uint16_t>(packet->data_off + shift);
    }
    return reinterpret_cast<std::uint8_t*>(rte_pktmbuf_prepend(packet, size));
}

[[nodiscard]] rte_mbuf* lost(rte_mbuf* packet, DropReason& reason, DropReason why) noexcept {
    reason = why;
    rte_pktmbuf_free(packet);
    return nullptr;
}

}  // namespace

int Reformat::create(Kind kind, std::span<const std::uint8_t> data, bool opens_gtpu,
                     std::shared_ptr<const Reformat>& reformat) {
    switch (kind) {
        case Kind::decap_l2: data = {}; break;
        case Kind::decap_l3:
            if (data.size() != l2_size && data.size() != l2_vlan_size) return EINVAL;
            break;
        default:
            if (data.empty() || data.size() > max_size || data.size() % 2 != 0) return EINVAL;
    }
    reformat.reset(new Reformat(kind, data, opens_gtpu));
    return 0;
}

Reformat::Reformat(Kind kind, std::span<const std::uint8_t> data, bool opens_gtpu)
    : kind_(kind), opens_gtpu_(opens_gtpu), data_(data.begin(), data.end()) {
    const auto [type_at, type, tags] = ethertype_of(data.data(), static_cast<std::uint32_t>(data.size()));
    const std::size_t l3 = type_at + 2;
    std::size_t l4 = 0;
    std::uint8_t protocol = 0;
    if (type == type_ipv4 && l3 + 20 <= data.size() && l3 + (data[l3] & 0xfu) * 4 <= data.size() &&
        (data[l3] & 0xf) >= 5) {
        l3_version_ = 4;
        l4 = l3 + (data[l3] & 0xfu) * 4;
        protocol = data[l3 + 9];
    } else if (type == type_ipv6 && l3 + 40 <= data.size()) {
        l3_version_ = 6;
        l4 = l3 + 40;
        protocol = data[l3 + 6];
    } else {
        return;
    }
    l3_ = static_cast<std::uint16_t>(l3);
    if (protocol == protocol_udp && l4 + 8 <= data.size()) udp_ = static_cast<std::uint16_t>(l4);
}

rte_mbuf* Reformat::apply(rte_mbuf* packet, DropReason& reason) const noexcept {
    // What a port said of the outermost headers' checksums.
    packet->ol_flags &= ~(RTE_MBUF_F_RX_IP_CKSUM_MASK | RTE_MBUF_F_RX_L4_CKSUM_MASK);
    return kind_ == Kind::encap_l2 || kind_ == Kind::encap_l3 ? insert(packet, reason) : remove(packet, reason);
}

rte_mbuf* Reformat::remove(rte_mbuf* packet, DropReason& reason) const noexcept {
    const auto* frame = rte_pktmbuf_mtod(packet, const std::uint8_t*);
    const Tunnel tunnel = find_tunnel(frame, packet->data_len);
    const bool opened = tunnel.kind != Tunnel::Kind::gtpu || opens_gtpu_;
    if (tunnel.inner == 0 || !opened) return lost(packet, reason, DropReason::malformed);
    std::uint32_t begin = tunnel.inner;
    if (kind_ == Kind::decap_l2) {
        if (tunnel.type != Tunnel::type_ethernet) return lost(packet, reason, DropReason::malformed);
    } else if (tunnel.type == Tunnel::type_ethernet) {
        const auto [type_at, type, tags] = ethertype_of(frame + begin, tunnel.end - begin);
        if (type != type_ipv4 && type != type_ipv6) return lost(packet, reason, DropReason::malformed);
        begin += type_at + 2;
    }
    rte_pktmbuf_trim(packet, static_cast<std::uint16_t>(packet->data_len - tunnel.end));
    rte_pktmbuf_adj(packet, static_cast<std::uint16_t>(begin));
    // There is room: the tunnel's headers were longer than an Ethernet header with its tag. (Of an L2 tunnel data_ is
    // empty.)
    std::copy(data_.begin(), data_.end(), rte_pktmbuf_prepend(packet, static_cast<std::uint16_t>(data_.size())));
    return packet;
}

rte_mbuf* Reformat::insert(rte_mbuf* packet, DropReason& reason) const noexcept {
    if (kind_ == Kind::encap_l3) {
        const auto* frame = rte_pktmbuf_mtod(packet, const std::uint8_t*);
        const std::uint32_t size = ethertype_of(frame, packet->data_len).offset + 2;
        if (size > packet->data_len) return lost(packet, reason, DropReason::malformed);
        rte_pktmbuf_adj(packet, static_cast<std::uint16_t>(size));
    }
    std::uint8_t* frame = make_room(packet, static_cast<std::uint16_t>(data_.size()));
    if (frame == nullptr) return lost(packet, reason, DropReason::no_buffer);
    std::memcpy(frame, data_.data(), data_.size());
    write_lengths(frame, packet->data_len);
    return packet;
}

void Reformat::write_lengths(std::uint8_t* frame, std::uint32_t size) const noexcept {
    if (l3_ == 0) return;
    std::uint8_t* header = frame + l3_;
    if (l3_version_ == 4) {
        store_be16(header + 2, static_cast<std::uint16_t>(size - l3_));
        store_be16(header + 10, 0);
        store_be16(header + 10, header_checksum(header, (header[0] & 0xfu) * 4));
    } else {
        store_be16(header + 4, static_cast<std::uint16_t>(size - l3_ - 40));
    }
    if (udp_ == 0) return;
    store_be16(frame + udp_ + 4, static_cast<std::uint16_t>(size - udp_));
    store_be16(frame + udp_ + 6, 0);
}

}  // namespace ovsdr::soft
