// Frames out of a send request of an Ethernet queue: what stands in the request itself, what it points to, and what the
// device does to the bytes on their way (segmentation, checksums, a VLAN tag).
//
// Model. A request's frame begins with its own bytes (inline data, or the header of a request to segment) and goes on
// with its list. One to segment (mss) gives a frame for each mss bytes of the list; `Segment` says how far it is.
//
// Threads: pure functions but for the memory that they read; the caller keeps a MemoryTable::Reading.
// Source: ibv_post_send(3); PRM, Ethernet send work queue entries.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "datapath/packet.hpp"
#include "datapath/rdma/ethernet/segmentation.hpp"
#include "datapath/rdma/memory/memory.hpp"

namespace ovsdr::soft {

struct OutgoingRequest {
    std::span<const std::byte> front;  ///< bytes that are in the request
    std::span<const ibv_sge> sges;     ///< what follows them
    std::uint16_t mss = 0;             ///< bytes; 0: one frame
    Checksums checksums;
    std::uint32_t vlan = 0;            ///< TPID << 16 | TCI to insert behind the addresses; 0: none
};

/// Puts the request's next frame into `packet`, which is empty, and moves `segment` on; `segment.last` says whether it
/// was the last one. IBV_WC_LOC_LEN_ERR: larger than a packet can be, or than what is segmented (most_segmented);
/// IBV_WC_LOC_PROT_ERR: memory that `domain` may not read.
[[nodiscard]] ibv_wc_status build_frame(const MemoryTable& memory, const void* domain, const OutgoingRequest& request,
                                        Segment& segment, rte_mbuf* packet) noexcept;

}  // namespace ovsdr::soft
