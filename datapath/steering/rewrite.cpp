#include "datapath/steering/rewrite.hpp"

#include <cstring>

#include "datapath/steering/vlan.hpp"

namespace ovsdr::soft {
namespace {

constexpr std::uint32_t tag_size = vlan_tag_size, addresses_size = 12;

/// A copy begins behind the pool's usual headroom.
[[nodiscard]] rte_mbuf* copied(rte_mbuf* packet) noexcept {
    rte_mbuf* copy = rte_pktmbuf_copy(packet, packet->pool, 0, UINT32_MAX);
    rte_pktmbuf_free(packet);
    return copy;
}

}  // namespace

rte_mbuf* writable(rte_mbuf* packet) noexcept {
    if (rte_mbuf_refcnt_read(packet) == 1 && RTE_MBUF_DIRECT(packet)) [[likely]] return packet;
    return copied(packet);
}

void pop_vlan(rte_mbuf* packet) noexcept {
    auto* frame = rte_pktmbuf_mtod(packet, std::uint8_t*);
    if (packet->data_len < addresses_size + tag_size + 2) return;
    if (!is_vlan(load_be16(frame + addresses_size))) return;
    std::memmove(frame + tag_size, frame, addresses_size);
    rte_pktmbuf_adj(packet, tag_size);
}

rte_mbuf* push_vlan(rte_mbuf* packet, std::uint32_t header) noexcept {
    if (rte_pktmbuf_headroom(packet) < tag_size) [[unlikely]] {
        packet = copied(packet);
        if (packet == nullptr) return nullptr;
    }
    auto* frame = reinterpret_cast<std::uint8_t*>(rte_pktmbuf_prepend(packet, tag_size));
    if (frame == nullptr) {
        rte_pktmbuf_free(packet);
        return nullptr;
    }
    std::memmove(frame, frame + tag_size, addresses_size);
    store_be32(frame + addresses_size, header);
    return packet;
}

}  // namespace ovsdr::soft
