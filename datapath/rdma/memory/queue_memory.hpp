// Memory of queues, and who gives it: the process's heap, or a parent domain's allocator.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

namespace ovsdr::soft {

using QueueMemory = std::unique_ptr<std::byte[], std::function<void(std::byte*)>>;

/// Empty: the heap. Throws std::bad_alloc.
using QueueAllocator = std::function<QueueMemory(std::size_t size)>;

/// `size` bytes, aligned for anything, with whatever is in them.
[[nodiscard]] inline QueueMemory allocate_queue(const QueueAllocator& allocate, std::size_t size) {
    if (allocate) return allocate(size);
    return {new std::byte[size], std::default_delete<std::byte[]>()};
}

}  // namespace ovsdr::soft
