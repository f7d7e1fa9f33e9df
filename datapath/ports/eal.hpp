// DPDK's environment (EAL) and packet memory, made so that the host process does not notice.
//
// EAL pins the thread that starts it, opens the system log, and writes to stderr. So it is started on a thread of ours
// whose affinity is restored afterwards, under the process's own name in the system log, and with its log lines kept
// here: the last of them are the best explanation of a failure that there is. No PCI device is probed, no file is left
// behind. An EAL that is initialised already (by an application that uses DPDK itself) is used as it is.
//
// Threads: start_eal() on one thread at a time; the rest from any thread.
#pragma once

#include <rte_mempool.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "datapath/ports/config.hpp"

namespace ovsdr::soft {

/// Starts EAL once per process; every signal must be blocked on the calling thread. Returns 0 or an errno, with the
/// cause in `error`.
[[nodiscard]] int start_eal(const NicConfig& config, std::string& error);

/// What DPDK has logged since the last call, lines joined by "; ", at most some hundred bytes. Empties the store.
[[nodiscard]] std::string take_dpdk_log();

/// Adds what a library beside DPDK had to say.
void add_to_dpdk_log(std::string_view text);

struct MempoolDeleter {
    void operator()(rte_mempool* pool) const noexcept { rte_mempool_free(pool); }
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
    within_pages  ///< none crosses the border of two pages: for those that the kernel fills
};

struct MempoolSpec {
    std::string name;
    unsigned length;
    std::uint16_t room;  ///< bytes behind the head room
    Packing packing = Packing::dense;
};

/// nullptr with the cause in `error`.
[[nodiscard]] Mempool make_mempool(const MempoolSpec& spec, std::string& error);

}  // namespace ovsdr::soft
