// Doorbell pages (UARs): pages of the process to which libmlx5 stores to tell the device of new work.
//
// The pages are never writable. A store to one faults; the handler reads the store out of the instruction, lets the
// device do the work, and goes on behind the instruction, as if it had been done. So a doorbell is synchronous, no two
// are ever lost, and nothing has to be unprotected in between.
//
// SIGSEGV is taken over when the first page is mapped; faults elsewhere go to the handler that was there before. A
// program that installs a handler of its own later, without keeping ours, cannot use the device. Under gdb: `handle
// SIGSEGV nostop noprint pass`.
//
// Threads: any; the handler runs on the thread that rang, outside of all locks of this library.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ovsdr::connectx {

/// A store of `width` bytes at `offset` of the doorbell page, as bytes in memory would be read big endian.
struct Ring {
    std::size_t offset;
    std::size_t width;
    std::uint64_t value;
};

/// What the device does then.
using OnRing = void(const Ring& ring);

/// A new page; null if there are too many, or no memory.
[[nodiscard]] void* map_doorbell_page(OnRing* on_ring);
/// True: it was one of ours.
bool unmap_doorbell_page(void* page);

}   // namespace ovsdr::connectx
