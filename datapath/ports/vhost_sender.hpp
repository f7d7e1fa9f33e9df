// What guests get by net_vhost: TCP packets that follow each other go as one (joined.hpp) to a guest that takes such
// (VIRTIO_NET_F_GUEST_TSO4, GUEST_TSO6), which has one packet to take then, and fewer buffers to give.
//
// DPDK's library takes a chain of buffers with its flags for segmentation and writes virtio's header; nothing is copied
// here but headers. By these flags it would also make the pseudo-header's sum anew, without the length, as some NICs
// want it: a guest that forwards such a packet would send wrong checksums. It leaves headers alone that are not
// together in the first buffer, and so the last byte of them is in the second. Read in DPDK 22.11; a guest that
// forwards shows it (tests/system/test_guest_tcp.py).
//
// A packet that others hold as well goes by itself: the chain needs its lengths.
//
// Threads: that of the worker that sends; set_joins(): any.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <span>

#include "datapath/packet.hpp"
#include "datapath/ports/joined.hpp"
#include "datapath/ports/port.hpp"

struct rte_mbuf;
struct rte_mempool;

namespace ovsdr::soft {

class VhostSender {
public:
    static constexpr unsigned joins_ipv4 = 1, joins_ipv6 = 2;

    /// `driver` is DPDK's queue. Buffers for headers are taken from `pool`: without them packets go as they are.
    VhostSender(PortSendQueue driver, rte_mempool* pool) noexcept;
    ~VhostSender();
    VhostSender(const VhostSender&) = delete;
    VhostSender& operator=(const VhostSender&) = delete;

    /// Which packets may go joined: joins_…, none at first. A batch that is under way may still see what was before.
    void set_joins(unsigned families) noexcept { joins_.store(families, std::memory_order_relaxed); }

    static std::uint16_t send(void* self, rte_mbuf** packets, std::uint16_t length) noexcept;

private:
    static constexpr unsigned most_heads = batch_length / 2;

    [[nodiscard]] std::uint16_t send_joined(rte_mbuf** packets, unsigned length, unsigned families) noexcept;
    [[nodiscard]] unsigned chain(std::span<rte_mbuf* const> packets, unsigned families, rte_mbuf* head) noexcept;
    static void take_apart(std::span<rte_mbuf* const> packets, rte_mbuf* head) noexcept;

    const PortSendQueue driver_;
    std::atomic<unsigned> joins_{0};
    bool full_ = false;          ///< the guest took nothing last time
    JoinedHeaders headers_;
    std::array<rte_mbuf*, most_heads> heads_{};  ///< ours for good: the driver gives up one of two references
};

}  // namespace ovsdr::soft
