#include "datapath/rdma/roce/burst.hpp"

#include <cstring>

#include "datapath/rdma/device_state.hpp"
#include "datapath/rdma/roce/transport.hpp"

namespace ovsdr::soft::roce {

namespace {

[[nodiscard]] constexpr unsigned padding(unsigned size) noexcept {
    return -size & 3u;
}

}  // namespace

bool Burst::begin(const Spec& spec, Packet& packet) noexcept {
    if (full()) return false;
    if (spec.path.local && transport_.engine_of(spec.qpn).room() == 0) {
        starved_ = true;
        return false;
    }
    rte_mbuf* const buffer = rte_pktmbuf_alloc(transport_.state().mempool());
    const unsigned pad = padding(spec.payload);
    const auto body = static_cast<unsigned>(sizeof(Bth) + spec.extensions + spec.payload + pad + icrc_size);
    char* const frame =
        buffer ? rte_pktmbuf_append(buffer, static_cast<std::uint16_t>(spec.path.size + body)) : nullptr;
    if (frame == nullptr) {
        rte_pktmbuf_free(buffer);
        starved_ = true;
        return false;
    }
    std::byte* const bth = write_front(spec.path, reinterpret_cast<std::byte*>(frame), body);
    const Bth header{.opcode = spec.opcode,
                     .flags = static_cast<std::uint8_t>((spec.solicited ? bth_solicited : 0) | bth_migrated | pad << 4),
                     .pkey = htobe16(default_pkey),
                     .qpn = htobe32(spec.qpn),
                     .psn = htobe32(spec.psn | (spec.ack_request ? bth_ack_request : 0))};
    std::memcpy(bth, &header, sizeof header);
    packet = {.buffer = buffer,
              .extensions = bth + sizeof header,
              .payload = bth + sizeof header + spec.extensions,
              .path = &spec.path,
              .qpn = spec.qpn,
              .payload_size = spec.payload};
    return true;
}

void Burst::finish(const Packet& packet) noexcept {
    ++sent_;
    size_ += rte_pktmbuf_pkt_len(packet.buffer);
    std::byte* const end = packet.payload + packet.payload_size + padding(packet.payload_size);
    std::memset(packet.payload + packet.payload_size, 0, padding(packet.payload_size));
    if (packet.path->local) {
        std::memset(end, 0, icrc_size);
        if (transport_.engine_of(packet.qpn).post(packet.buffer)) return;
        transport_.counters().inbox_full.fetch_add(1, std::memory_order_relaxed);
        rte_pktmbuf_free(packet.buffer);
        return;
    }
    const auto* const ip = rte_pktmbuf_mtod_offset(packet.buffer, const std::byte*, packet.path->ip_offset());
    const __le32 crc = htole32(icrc(ip, packet.path->ipv4, static_cast<std::size_t>(end - ip)));
    std::memcpy(end, &crc, sizeof crc);
    if (packet.path->multicast) transport_.copy_to_members(packet.buffer, packet.path->blocked);
    packets_[length_++] = packet.buffer;
    if (length_ == poll_length) flush();
}

void Burst::flush() noexcept {
    if (length_ != 0) outlet_.send(outlet_.self, sqn_, packets_.data(), length_);
    length_ = 0;
}

}  // namespace ovsdr::soft::roce
