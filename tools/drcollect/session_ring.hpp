// The memory that one session's segments arrive in, and the limit of all sessions together.
//
// Model. A ring has its slots' segments, and behind them, where fields are kept, its slots' fields; it is registered as
// one region. MemoryLimit is asked first: what it has lent comes back when the ring goes.
//
// Threads: a MemoryLimit by any; a ring by one at a time.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "offload/mirror/connection.hpp"
#include "offload/mirror/wire/segment.hpp"

namespace ovsdr::drcollect {

class MemoryLimit {
public:
    explicit MemoryLimit(std::uint64_t size) noexcept : size_(size) {}

    /// False: there is not so much left.
    [[nodiscard]] bool take(std::uint64_t size) noexcept {
        std::uint64_t taken = taken_.load();
        do {
            if (size > size_ - taken) return false;
        } while (!taken_.compare_exchange_weak(taken, taken + size));
        return true;
    }
    void give_back(std::uint64_t size) noexcept { taken_ -= size; }
    [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
    [[nodiscard]] std::uint64_t taken() const noexcept { return taken_; }

private:
    const std::uint64_t size_;
    std::atomic<std::uint64_t> taken_{0};
};

class SessionRing {
public:
    /// Bytes that it takes of a MemoryLimit.
    [[nodiscard]] static std::uint64_t size_of(const mirror::Geometry& geometry, bool keeps_fields) noexcept;
    /// nullptr: more than `limit` has left. Throws std::bad_alloc, or std::system_error where it cannot be registered.
    [[nodiscard]] static std::unique_ptr<SessionRing> create(ibv_pd* pd, const mirror::Geometry& geometry,
                                                             bool keeps_fields, MemoryLimit& limit);
    ~SessionRing();
    SessionRing(const SessionRing&) = delete;
    SessionRing& operator=(const SessionRing&) = delete;

    [[nodiscard]] mirror::SlotMemory memory_of(std::uint64_t sequence) const;
    [[nodiscard]] std::span<std::byte> data_of(std::uint64_t sequence) const;
    /// Of the segment's blocks that are used; empty where fields are not kept.
    [[nodiscard]] std::span<const std::byte> fields_of(const mirror::SegmentHeader& header) const;

private:
    SessionRing(const mirror::Geometry& geometry, bool keeps_fields, MemoryLimit& limit) noexcept;

    const mirror::Geometry geometry_;
    const std::size_t data_size_, fields_size_, size_;   ///< fields_size_: of a slot
    MemoryLimit& limit_;
    std::byte* base_ = nullptr;
    mirror::Owner<ibv_mr> mr_;
};

}  // namespace ovsdr::drcollect
