#include "datapath/ports/incoming.hpp"

#include <rte_mbuf.h>

#include <algorithm>
#include <cstring>

#include "datapath/steering/key.hpp"
#include "datapath/steering/vlan.hpp"

namespace ovsdr::soft {
namespace {

constexpr std::uint32_t mac_addresses = 12;

/// Puts a tag back: the frame then begins 4 bytes before.
void put_tag(std::uint8_t* begin, const TakenTag& tag) noexcept {
    std::memmove(begin, begin + vlan_tag_size, mac_addresses);
    store_be16(begin + mac_addresses, tag.type);
    store_be16(begin + mac_addresses + 2, tag.tci);
}

}  // namespace

Incoming::Incoming(std::uint16_t room)
    : room_(room), long_(std::make_unique_for_overwrite<std::uint8_t[]>(vlan_tag_size + most_unfinished)) {}

std::span<iovec> Incoming::read_into(rte_mbuf* packet) noexcept {
    pieces_ = {{{.iov_base = &says_, .iov_len = sizeof says_},
                {.iov_base = rte_pktmbuf_mtod(packet, void*), .iov_len = room_},
                {.iov_base = long_.get() + vlan_tag_size + room_, .iov_len = most_unfinished - room_}}};
    return pieces_;
}

bool Incoming::finish(std::size_t size, const TakenTag& tag, rte_mbuf* packet, Unfinished& cut) noexcept {
    size -= std::min(size, sizeof says_);
    const std::size_t here = std::min<std::size_t>(size, room_);
    const std::uint16_t tag_size = tag.there && size >= mac_addresses ? vlan_tag_size : 0;
    if (Unfinished::is_long(says_)) {
        std::uint8_t* const frame = long_.get() + vlan_tag_size;
        std::memcpy(frame, rte_pktmbuf_mtod(packet, const void*), here);
        VirtioHeader says = says_;
        if (tag_size != 0) {
            put_tag(long_.get(), tag);
            says.csum_start = static_cast<std::uint16_t>(says.csum_start + vlan_tag_size);
        }
        if (cut.begin({frame - tag_size, size + tag_size}, says, room_)) return false;
    }
    auto* const frame = rte_pktmbuf_mtod(packet, std::uint8_t*);
    if (size == here) finish_checksum({frame, size}, says_);
    if (tag_size != 0) put_tag(frame - vlan_tag_size, tag);
    packet->data_off = static_cast<std::uint16_t>(packet->data_off - tag_size);
    packet->data_len = static_cast<std::uint16_t>(here + tag_size);
    packet->pkt_len = packet->data_len;
    return true;
}

}  // namespace ovsdr::soft
