// Which send queue a packet is from, for queue pairs that are not to hear their own multicasts
// (IBV_QP_CREATE_BLOCK_SELF_MCAST_LB). Only their packets carry it.
//
// Threads: any.
#pragma once

#include <rte_mbuf.h>
#include <rte_mbuf_dyn.h>

#include <cstdint>

namespace ovsdr::soft {

class SenderMark {
public:
    /// Asks DPDK for room in packets on first use. Throws std::system_error where there is none.
    [[nodiscard]] static const SenderMark& get();

    void set(rte_mbuf* packet, std::uint32_t sqn) const noexcept {
        packet->ol_flags |= flag_;
        *RTE_MBUF_DYNFIELD(packet, offset_, std::uint32_t*) = sqn;
    }
    /// 0: it has none.
    [[nodiscard]] std::uint32_t of(const rte_mbuf* packet) const noexcept {
        return packet->ol_flags & flag_ ? *RTE_MBUF_DYNFIELD(packet, offset_, const std::uint32_t*) : 0;
    }

private:
    SenderMark();

    int offset_;
    std::uint64_t flag_;
};

}  // namespace ovsdr::soft
