#include "datapath/rdma/ethernet/outgoing_frame.hpp"

#include <algorithm>
#include <cstring>

#include "datapath/ports/guarded_copy.hpp"
#include "datapath/steering/key.hpp"

namespace ovsdr::soft {

namespace {

/// Bytes [from, from + size) of the list.
[[nodiscard]] ibv_wc_status gather(const MemoryTable& memory, const void* domain, std::span<const ibv_sge> sges,
                                   std::uint64_t from, std::uint32_t size, char* out) noexcept {
    for (const ibv_sge& sge : sges) {
        if (from >= sge.length) {
            from -= sge.length;
            continue;
        }
        const auto part = static_cast<std::uint32_t>(std::min<std::uint64_t>(size, sge.length - from));
        if (part == 0) break;
        const std::byte* const bytes = memory.lookup(sge.lkey, sge.addr + from, part, 0, domain);
        if (!bytes || !guarded_copy(out, bytes, part)) return IBV_WC_LOC_PROT_ERR;
        out += part;
        size -= part;
        from = 0;
    }
    return IBV_WC_SUCCESS;
}

/// false: no room in front, or nothing to stand behind.
[[nodiscard]] bool insert_tag(rte_mbuf* packet, std::uint32_t tag) noexcept {
    constexpr unsigned addresses = 12;
    if (rte_pktmbuf_data_len(packet) < addresses) return false;
    char* const frame = rte_pktmbuf_prepend(packet, sizeof tag);
    if (!frame) return false;
    std::memmove(frame, frame + sizeof tag, addresses);
    store_be32(reinterpret_cast<std::uint8_t*>(frame) + addresses, tag);
    return true;
}

}  // namespace

ibv_wc_status build_frame(const MemoryTable& memory, const void* domain, const OutgoingRequest& request,
                          Segment& segment, rte_mbuf* packet) noexcept {
    std::uint64_t left = 0;
    for (const ibv_sge& sge : request.sges) left += sge.length;
    if (request.mss && left > most_segmented) return IBV_WC_LOC_LEN_ERR;
    left -= segment.offset;
    const std::uint64_t size = request.mss ? std::min<std::uint64_t>(left, request.mss) : left;
    const std::uint64_t whole = request.front.size() + size;
    if (whole > rte_pktmbuf_tailroom(packet)) return IBV_WC_LOC_LEN_ERR;
    char* const out = rte_pktmbuf_append(packet, static_cast<std::uint16_t>(whole));
    std::copy(request.front.begin(), request.front.end(), reinterpret_cast<std::byte*>(out));
    segment.size = static_cast<std::uint32_t>(size);
    const ibv_wc_status status =
        gather(memory, domain, request.sges, segment.offset, segment.size, out + request.front.size());
    if (status != IBV_WC_SUCCESS) return status;
    segment.last = size == left;
    const std::span frame(reinterpret_cast<std::uint8_t*>(out), whole);
    if (request.mss) write_segment_header(frame, segment);
    fill_checksums(frame, request.checksums);
    if (request.vlan && !insert_tag(packet, request.vlan)) return IBV_WC_LOC_LEN_ERR;
    segment.offset += segment.size;
    ++segment.index;
    return IBV_WC_SUCCESS;
}

}  // namespace ovsdr::soft
