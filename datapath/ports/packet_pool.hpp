// Packet memory: pools of DPDK's buffers (mbufs) that begin small and grow while there is need.
//
// Model. A pool's memory is reserved whole, as addresses; buffers are made in it a piece at a time. Whoever asks for
// buffers when too few are left makes the next pieces. What has been made stays: a pool is as large as what was once in
// use at a time. So a NIC with four ports does not have the memory of one with forty, and what nobody uses stays out of
// the caches.
//
// Threads: any. Making a piece takes a lock and some 130 page faults, now and then in a pool's life; giving buffers out
// does neither.
#pragma once

#include <rte_mempool.h>

#include <cstdint>
#include <memory>
#include <string>

namespace ovsdr::soft {

/// Destroys a pool. No buffer of it may be used any more.
struct MempoolDeleter {
    void operator()(rte_mempool* pool) const noexcept;
};
using Mempool = std::unique_ptr<rte_mempool, MempoolDeleter>;

/// Bytes of packet that a buffer holds behind the usual head room. Jumbo buffers take any frame; ports whose MTU allows
/// it receive into small ones, which are kinder to the caches.
inline constexpr std::uint16_t small_room = 2048;
inline constexpr std::uint16_t jumbo_room = 10240;

/// The pools that ports receive into; they outlive the ports.
struct PacketMemory {
    rte_mempool* small = nullptr;
    rte_mempool* jumbo = nullptr;
};

/// How buffers lie in memory.
enum class Packing {
    dense,        ///< one after the other: no page is wasted, and their headers do not compete for one cache set
    within_pages  ///< none crosses the border of two pages, and all are made at once: for those that the kernel fills
};

struct MempoolSpec {
    std::string name;
    unsigned length;     ///< buffers that there can be
    std::uint16_t room;  ///< bytes behind the head room
    Packing packing = Packing::dense;
    int node = -1;  ///< of NUMA; -1: any
};

/// nullptr with the cause in `error`. EAL has been started.
[[nodiscard]] Mempool make_mempool(const MempoolSpec& spec, std::string& error);

/// Buffers that have been made so far.
[[nodiscard]] unsigned made_buffers(const rte_mempool& pool) noexcept;

}  // namespace ovsdr::soft
