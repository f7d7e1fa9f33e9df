#include "datapath/ports/vhost_receiver.hpp"

#include <rte_mbuf.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "datapath/steering/parser.hpp"

namespace ovsdr::soft {
namespace {

constexpr std::uint8_t protocol_tcp = 6, protocol_udp = 17, protocol_sctp = 132;

/// What the driver knew from virtio's header and says by flags: where the checksum belongs is found anew.
VirtioHeader header_of(std::span<const std::uint8_t> frame, std::uint16_t segment) noexcept {
    const Headers headers = locate(frame.data(), static_cast<std::uint32_t>(frame.size()));
    VirtioHeader says{};
    if (headers.payload == 0) return says;
    switch (headers.l4_protocol) {
        case protocol_tcp:
            says.csum_offset = 16;
            break;
        case protocol_udp:
            says.csum_offset = 6;
            break;
        case protocol_sctp:
            says.csum_offset = 8;
            break;
        default:
            return says;
    }
    says.flags = VirtioHeader::needs_checksum;
    says.csum_start = headers.payload;
    if (segment != 0) says.gso_type = headers.l3_version == 4 ? VirtioHeader::gso_tcp4 : VirtioHeader::gso_tcp6;
    says.gso_type |= segment != 0 ? VirtioHeader::ecn : 0;  // the library does not say
    says.gso_size = segment;
    return says;
}

}  // namespace

VhostReceiver::VhostReceiver(PortReceiveQueue driver, rte_mempool* pool)
    : driver_(std::move(driver)), pool_(pool),
      room_(static_cast<std::uint16_t>(rte_pktmbuf_data_room_size(pool) - RTE_PKTMBUF_HEADROOM)),
      long_(std::make_unique_for_overwrite<std::uint8_t[]>(most_unfinished)) {}

VhostReceiver::~VhostReceiver() {
    rte_pktmbuf_free_bulk(taken_.data() + next_, end_ - next_);
}

// False: it goes on as it is, longer than the MTU allows, and is dropped for it.
bool VhostReceiver::begin_cut(rte_mbuf* packet) noexcept {
    if (packet->pkt_len > most_unfinished) return false;
    std::uint8_t* end = long_.get();
    for (const rte_mbuf* piece = packet; piece != nullptr; piece = piece->next) {
        std::memcpy(end, rte_pktmbuf_mtod(piece, const void*), piece->data_len);
        end += piece->data_len;
    }
    const std::span<const std::uint8_t> frame(long_.get(), end);
    return cut_.begin(frame, header_of(frame, packet->tso_segsz), room_);
}

// True: `packet` can go on. Else it has been freed, and its segments wait.
bool VhostReceiver::take(rte_mbuf* packet) noexcept {
    const bool is_long = (packet->ol_flags & RTE_MBUF_F_RX_LRO) != 0;
    const bool unsummed = (packet->ol_flags & RTE_MBUF_F_RX_L4_CKSUM_MASK) == RTE_MBUF_F_RX_L4_CKSUM_NONE;
    packet->ol_flags &= ~(RTE_MBUF_F_RX_LRO | RTE_MBUF_F_RX_L4_CKSUM_MASK | RTE_MBUF_F_RX_IP_CKSUM_MASK);
    packet->packet_type = 0;
    if (is_long && begin_cut(packet)) {
        rte_pktmbuf_free(packet);
        return false;
    }
    if (unsummed && packet->next == nullptr) {
        const std::span<std::uint8_t> frame(rte_pktmbuf_mtod(packet, std::uint8_t*), packet->data_len);
        finish_checksum(frame, header_of(frame, 0));
    }
    return true;
}

std::uint16_t VhostReceiver::receive(void* self, rte_mbuf** packets, std::uint16_t length) noexcept {
    auto& receiver = *static_cast<VhostReceiver*>(self);
    std::uint16_t received = 0;
    while (received < length) {
        if (receiver.cut_.more()) {
            rte_mbuf* const segment = rte_pktmbuf_alloc(receiver.pool_);
            if (segment == nullptr) {
                receiver.cut_.give_up();  // as a NIC without a buffer
                receiver.lost_.fetch_add(1, std::memory_order_relaxed);
                continue;
            }
            receiver.cut_.next(segment);
            packets[received++] = segment;
            continue;
        }
        if (received >= poll_length) break;
        if (receiver.next_ == receiver.end_) {
            receiver.next_ = 0;
            receiver.end_ = receiver.driver_.receive(receiver.driver_.queue, receiver.taken_.data(), poll_length);
            if (receiver.end_ == 0) break;
        }
        rte_mbuf* const packet = receiver.taken_[receiver.next_++];
        if (receiver.take(packet)) packets[received++] = packet;
    }
    return received;
}

}  // namespace ovsdr::soft
