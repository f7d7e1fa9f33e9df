// Copies between the device and memory of others, and atomic operations on it, that survive memory which is not there.
//
// Registered pages are the application's: it may unmap them under the device, and with on-demand paging it may have
// registered what was never mapped. A device's DMA then fails; a worker of ours would take the process with it. So the
// copy is a routine of known extent, and a handler of SIGSEGV and SIGBUS that finds the fault within that extent ends
// the copy with an error, as the kernel's own copies from user space do; what copies and computes at once is known by a
// table (fault_table.hpp). A thread that copies must not block the two
// signals: a fault while they are blocked ends the process. Every other fault is passed on to whoever
// handled these signals before.
//
// Limits. A process that installs handlers of its own later, and does not pass on what it does not know, is killed by
// such a fault as before. What a copy had moved before the fault stays moved.
// Threads: any.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ovsdr::soft {

/// false: some of either range is not accessible; some bytes may have been copied. Ranges do not overlap.
[[nodiscard]] bool guarded_copy(void* to, const void* from, std::size_t size) noexcept;

/// As one atomic operation: adds to the word, or puts `swap` there if it holds `expected`, which gets what was there
/// before. false: it is not accessible. The word is aligned.
[[nodiscard]] bool guarded_fetch_add(std::uint64_t* word, std::uint64_t add, std::uint64_t& before) noexcept;
[[nodiscard]] bool guarded_compare_swap(std::uint64_t* word, std::uint64_t swap, std::uint64_t& expected) noexcept;

/// Installs the handler, once per process. Copies before that are not guarded.
void guard_copies() noexcept;

}  // namespace ovsdr::soft
