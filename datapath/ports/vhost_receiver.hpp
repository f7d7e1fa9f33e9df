// What guests send by net_vhost: they leave checksums and the cut of TCP packets to the port.
//
// DPDK's driver gives large packets in several buffers, with the segments' length and flags for what is not done; this
// stands between its burst function and the port's, and hands on whole packets (unfinished.hpp).
//
// Threads: the worker's that owns the port.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>

#include "datapath/packet.hpp"
#include "datapath/ports/port.hpp"
#include "datapath/ports/unfinished.hpp"

struct rte_mbuf;
struct rte_mempool;

namespace ovsdr::soft {

class VhostReceiver {
public:
    /// `driver` is DPDK's queue. Segments are taken from `pool`.
    VhostReceiver(PortReceiveQueue driver, rte_mempool* pool);
    ~VhostReceiver();
    VhostReceiver(const VhostReceiver&) = delete;
    VhostReceiver& operator=(const VhostReceiver&) = delete;

    static std::uint16_t receive(void* self, rte_mbuf** packets, std::uint16_t length) noexcept;

    /// Long frames for whose segments there was no buffer. Threads: any.
    [[nodiscard]] std::uint64_t lost() const noexcept { return lost_.load(std::memory_order_relaxed); }

private:
    [[nodiscard]] bool take(rte_mbuf* packet) noexcept;
    [[nodiscard]] bool begin_cut(rte_mbuf* packet) noexcept;

    const PortReceiveQueue driver_;
    rte_mempool* const pool_;
    const std::uint16_t room_;
    std::array<rte_mbuf*, poll_length> taken_;   ///< from the driver
    unsigned next_ = 0, end_ = 0;                ///< of them
    Unfinished cut_;                             ///< of a frame in long_
    std::unique_ptr<std::uint8_t[]> long_;
    std::atomic<std::uint64_t> lost_{0};
};

}  // namespace ovsdr::soft
