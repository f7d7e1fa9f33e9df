// One DEVX flow counter bulk and the state of its slots. Used by counter.cpp only.
//
// Threads: any; one mutex per bulk, held across the command that reads it, so that a late answer never overwrites a
// newer.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <span>
#include <vector>

#include "offload/dr/device/action.hpp"

namespace ovsdr::dr {

class CounterPool;

/// Its slots lie behind it in the same block of memory: where one of them is can be said without a look at the bulk.
class alignas(64) CounterBulk {
public:
    static constexpr unsigned single_counter = 0xFF;

    /// `bulk_log`: 128 << bulk_log counters, or single_counter. May throw std::bad_alloc; nothing is left then.
    [[nodiscard]] static Result<std::unique_ptr<CounterBulk>> create(std::shared_ptr<Device> device, unsigned bulk_log);
    /// No rule counts into it any more.
    ~CounterBulk();
    CounterBulk(const CounterBulk&) = delete;
    CounterBulk& operator=(const CounterBulk&) = delete;
    static void operator delete(void* bulk) noexcept { ::operator delete(bulk, alignment); }
    static void operator delete(void* bulk, std::uint32_t) noexcept { ::operator delete(bulk, alignment); }

    /// The lowest free slot, its count at 0; `length()` when there is none. `in_total`: total() has it.
    [[nodiscard]] Result<std::uint32_t> take(std::int16_t bytes_uncounted, bool in_total);
    struct Leaving {
        std::uint32_t slot;
        FlowStats* counted;   ///< out: as last read
    };
    /// Reads the slots, ascending and at least one, for good, and they are free: no rule counts into them any more. An
    /// error: they could not be read, and are free all the same.
    [[nodiscard]] Result<void> give_back(std::span<const Leaving> leaving) noexcept;
    /// Without reading it.
    FlowStats give_back(std::uint32_t slot) noexcept;

    /// Nobody gets the slot again once it is given back.
    void withhold(std::uint32_t slot) noexcept;

    /// Of a slot that is taken: counts into it. The bulk's own.
    [[nodiscard]] mlx5dv_dr_action* action(std::uint32_t slot) const noexcept {
        return slots()[slot].action;
    }
    /// Fetches what read() looks at first.
    void prefetch(std::uint32_t slot) const noexcept {
        __builtin_prefetch(&mutex_, 1);
        __builtin_prefetch(slots() + slot);
    }
    [[nodiscard]] FlowStats read(std::uint32_t slot) const noexcept;

    /// Reads slots 0 up to the highest in use from the device; new growth is as of now.
    [[nodiscard]] Result<void> refresh() noexcept;
    /// The same, unless the last time was less than `age` ago.
    [[nodiscard]] Result<void> refresh_if_older(std::chrono::milliseconds age) noexcept;
    /// Reads the slot, and all below it. Rules may go on counting into them: one that is given back later is read when
    /// it is taken next.
    [[nodiscard]] Result<void> read_now(std::uint32_t slot) noexcept;

    /// For a pool of many: whose it is, and which of them. NULL: nobody said.
    void belong_to(CounterPool* pool, std::size_t number) noexcept {
        pool_ = pool;
        number_ = number;
    }
    [[nodiscard]] CounterPool* pool() const noexcept { return pool_; }
    [[nodiscard]] std::size_t number() const noexcept { return number_; }
    [[nodiscard]] std::uint32_t length() const noexcept { return length_; }
    [[nodiscard]] std::uint32_t first_id() const noexcept { return first_id_; }
    [[nodiscard]] bool has_room() const noexcept { return taken_.load(std::memory_order_relaxed) < length_; }
    [[nodiscard]] FlowStats total() const noexcept;

private:
    struct alignas(64) Slot {   // a deletion touches one line
        std::uint64_t packets = 0, bytes = 0;               ///< as the device has them
        std::uint64_t first_packets = 0, first_bytes = 0;   ///< when the slot was taken
        std::int64_t used_ms = 0;
        mlx5dv_dr_action* action = nullptr;                 ///< made when first taken, kept
        std::int16_t bytes_uncounted = 0;
        bool withheld = false;   ///< given back, and still counted into
        bool in_total = false;
        bool unsettled = false;                             ///< may have counted since it was last read for good
    };
    /// Room for a device's answer.
    class Answer;

    static constexpr std::align_val_t alignment{64};
    [[nodiscard]] static void* operator new(std::size_t size, std::uint32_t length) {
        return ::operator new(size + length * sizeof(Slot), alignment);
    }
    CounterBulk(std::shared_ptr<Device> device, std::uint32_t length);
    [[nodiscard]] Slot* slots() noexcept { return reinterpret_cast<Slot*>(this + 1); }
    [[nodiscard]] const Slot* slots() const noexcept { return reinterpret_cast<const Slot*>(this + 1); }
    [[nodiscard]] std::uint32_t first_free() noexcept;
    [[nodiscard]] bool is_taken(std::uint32_t slot) const noexcept { return (free_[slot / 64] >> slot % 64 & 1) == 0; }
    void set_free(std::uint32_t slot) noexcept;
    [[nodiscard]] FlowStats stats_of(const Slot& slot) const noexcept;
    [[nodiscard]] Result<void> refresh_used_locked() noexcept;
    [[nodiscard]] Result<void> refresh_locked(std::uint32_t count) noexcept;
    /// Asks for the first `count` slots' counts.
    [[nodiscard]] Result<void> query_locked(std::uint32_t count, Answer& answer) noexcept;
    void take_answer(std::uint32_t slot, const Answer& answer, std::int64_t now) noexcept;
    FlowStats free_locked(std::uint32_t slot) noexcept;

    std::shared_ptr<Device> device_;
    mlx5dv_devx_obj* object_ = nullptr;
    std::uint32_t first_id_ = 0;
    std::uint32_t length_;
    CounterPool* pool_ = nullptr;
    std::size_t number_ = 0;
    mutable std::mutex mutex_;
    std::vector<std::uint64_t> free_;         ///< a bit for each slot that is not taken
    std::atomic<std::uint32_t> taken_{0};     ///< changes with the mutex
    std::uint32_t search_from_ = 0;           ///< no free slot in the words of free_ below
    std::int64_t refreshed_ms_ = 0;           ///< when all slots in use were last read
    FlowStats gone_;                          ///< sums of slots given back
    std::vector<std::uint8_t> long_answer_;   ///< where an answer may be too long for the stack
};

}  // namespace ovsdr::dr
