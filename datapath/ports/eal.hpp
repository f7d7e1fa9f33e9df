// DPDK's environment (EAL), started so that the host process does not notice. Packet memory is in packet_pool.hpp.
//
// EAL pins the thread that starts it, opens the system log, and writes to stderr. So it is started on a thread of ours
// whose affinity is restored afterwards, under the process's own name in the system log, and with its log lines kept
// here: the last of them are the best explanation of a failure that there is. No PCI device is probed, or even looked
// at, but those that ports name later (pci_port.hpp); no file is left behind. An EAL that is initialised already (by an
// application that uses DPDK itself) is used as it is.
//
// Threads: start_eal() on one thread at a time; the rest from any thread.
#pragma once

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

}  // namespace ovsdr::soft
