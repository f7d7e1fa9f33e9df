// A ring of posted work requests: the application's posts on one side, the device's execution on the other.
//
// Model. Slots of one size hold a Request with its scatter/gather list, or its inline bytes. A slot is free again when
// the application has polled the completion that covers it (freed), not when the device is done with it (executed):
//     freed <= executed <= posted <= freed + length
//
// Threads: post side under the owner's post lock, execute side under its execute lock; the two sides run in parallel.
#pragma once

#include <infiniband/verbs.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>

#include "datapath/rdma/memory/queue_memory.hpp"

namespace ovsdr::soft {

class WorkQueue {
public:
    struct Request {
        std::uint64_t wr_id;
        std::uint32_t sge_length;   ///< entries of the list; 0 where the bytes are inline
        std::uint32_t inline_size;  ///< bytes
        bool signaled;
        bool solicited;
        bool checksums = false;         ///< fill in
        std::uint16_t mss = 0;          ///< of a request to segment: bytes; its header stands before the list
        std::uint16_t header_size = 0;  ///< bytes, at most the queue's max_header

        [[nodiscard]] std::span<const ibv_sge> sges() const noexcept {
            return {reinterpret_cast<const ibv_sge*>(inline_room() + padded(header_size)), sge_length};
        }
        [[nodiscard]] std::span<const std::byte> inline_bytes() const noexcept {
            return {reinterpret_cast<const std::byte*>(this + 1), inline_size};
        }
        /// Behind the header, whose size is set.
        [[nodiscard]] ibv_sge* sge_room() noexcept {
            return reinterpret_cast<ibv_sge*>(inline_room() + padded(header_size));
        }
        [[nodiscard]] std::byte* inline_room() noexcept { return reinterpret_cast<std::byte*>(this + 1); }
        [[nodiscard]] const std::byte* inline_room() const noexcept {
            return reinterpret_cast<const std::byte*>(this + 1);
        }
    };
    static_assert(sizeof(Request) % alignof(ibv_sge) == 0);

    [[nodiscard]] static constexpr std::size_t padded(std::size_t size) noexcept {
        return (size + 15) & ~std::size_t{15};
    }

    /// `length` requests at least, rounded up to a power of two; 0 makes a queue that takes none.
    WorkQueue(unsigned length, unsigned max_sges, unsigned max_inline, const QueueAllocator& allocate = {},
              unsigned max_header = 0)
        : length_(length ? std::bit_ceil(length) : 0),
          stride_(sizeof(Request) + std::max(padded(max_header) + max_sges * sizeof(ibv_sge), padded(max_inline))),
          slots_(allocate_queue(allocate, length_ * stride_)) {}

    [[nodiscard]] unsigned length() const noexcept { return length_; }

    /// Post side. nullptr: the queue is full. What is filled in counts from publish() on.
    [[nodiscard]] Request* room(unsigned ahead = 0) noexcept {
        const std::uint64_t index = posted_.load(std::memory_order_relaxed) + ahead;
        if (index - freed_.load(std::memory_order_acquire) >= length_) return nullptr;
        return at(index);
    }
    void publish(unsigned count) noexcept {
        posted_.store(posted_.load(std::memory_order_relaxed) + count, std::memory_order_seq_cst);
    }

    /// Execute side. nullptr: nothing is posted.
    [[nodiscard]] const Request* front() noexcept {
        const std::uint64_t index = executed_.load(std::memory_order_relaxed);
        return index == posted_.load(std::memory_order_acquire) ? nullptr : at(index);
    }
    /// The front request is done; returns the count that frees its slot once its completion is taken.
    std::uint64_t advance() noexcept {
        const std::uint64_t done = executed_.load(std::memory_order_relaxed) + 1;
        executed_.store(done, std::memory_order_relaxed);
        return done;
    }
    [[nodiscard]] bool idle() const noexcept {
        return executed_.load(std::memory_order_relaxed) == posted_.load(std::memory_order_acquire);
    }

    [[nodiscard]] std::atomic<std::uint64_t>& freed() noexcept { return freed_; }

    /// Both sides locked: forgets everything, for RESET.
    void reset() noexcept {
        posted_ = 0;
        executed_ = 0;
        freed_ = 0;
    }

private:
    [[nodiscard]] Request* at(std::uint64_t index) noexcept {
        return reinterpret_cast<Request*>(slots_.get() + (index & (length_ - 1)) * stride_);
    }

    const unsigned length_;
    const std::size_t stride_;
    QueueMemory slots_;
    alignas(64) std::atomic<std::uint64_t> posted_{0};
    alignas(64) std::atomic<std::uint64_t> executed_{0};
    alignas(64) std::atomic<std::uint64_t> freed_{0};
};

}  // namespace ovsdr::soft
