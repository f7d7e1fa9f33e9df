// One DEVX flow counter bulk and the state of its slots. Used by counter.cpp only.
//
// Threads: any; one mutex per bulk, held across the command that reads it, so that a late answer never overwrites a
// newer.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "offload/dr/device/action.hpp"

namespace ovsdr::dr {

class CounterBulk {
public:
    static constexpr unsigned single_counter = 0xFF;

    /// `bulk_log`: 128 << bulk_log counters, or single_counter. `number`: the owner's. This and take() may throw
    /// std::bad_alloc; nothing is left then.
    [[nodiscard]] static Result<std::unique_ptr<CounterBulk>> create(std::shared_ptr<Device> device, unsigned bulk_log,
                                                                     std::size_t number);

    /// The lowest free slot, its count at 0; `length()` when there is none.
    [[nodiscard]] Result<std::uint32_t> take(std::int16_t bytes_uncounted);
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

    [[nodiscard]] ActionRef action(std::uint32_t slot) const noexcept;
    [[nodiscard]] FlowStats read(std::uint32_t slot) const noexcept;

    /// Reads slots 0 up to the highest in use from the device; new growth is as of now.
    [[nodiscard]] Result<void> refresh() noexcept;
    /// The same, unless the last time was less than `age` ago.
    [[nodiscard]] Result<void> refresh_if_older(std::chrono::milliseconds age) noexcept;
    /// Reads the slot for good: no rule counts into it any more. A slot given back without is read when it is taken
    /// next.
    [[nodiscard]] Result<void> settle(std::uint32_t slot) noexcept;

    [[nodiscard]] std::size_t number() const noexcept { return number_; }
    [[nodiscard]] std::uint32_t length() const noexcept { return length_; }
    [[nodiscard]] std::uint32_t first_id() const noexcept { return first_id_; }
    [[nodiscard]] bool has_room() const noexcept;
    [[nodiscard]] FlowStats total() const noexcept;

private:
    struct alignas(64) Slot {   // a deletion touches one line
        std::uint64_t packets = 0, bytes = 0;               ///< as the device has them
        std::uint64_t first_packets = 0, first_bytes = 0;   ///< when the slot was taken
        std::int64_t used_ms = 0;
        ActionRef action;                                   ///< made when first taken, kept
        std::int16_t bytes_uncounted = 0;
        bool taken = false;
        bool withheld = false;   ///< given back, and still counted into
        bool unsettled = false;                             ///< may have counted since it was last read for good
    };
    struct Object;

    CounterBulk(std::shared_ptr<Object> object, std::uint32_t length, std::size_t number);
    [[nodiscard]] FlowStats stats_of(const Slot& slot) const noexcept;
    [[nodiscard]] Result<void> refresh_used_locked() noexcept;
    [[nodiscard]] Result<void> refresh_locked(std::uint32_t count) noexcept;
    /// Leaves the first `count` slots' counts in answer_.
    [[nodiscard]] Result<void> query_locked(std::uint32_t count) noexcept;
    void take_answer(std::uint32_t slot, std::int64_t now) noexcept;
    FlowStats free_locked(Slot& slot) noexcept;

    std::shared_ptr<Object> object_;
    std::uint32_t first_id_ = 0;
    std::uint32_t length_;
    std::size_t number_;
    mutable std::mutex mutex_;
    std::vector<Slot> slots_;
    std::uint32_t taken_ = 0;
    std::uint32_t search_from_ = 0;      ///< no free slot below
    std::int64_t refreshed_ms_ = 0;      ///< when all slots in use were last read
    FlowStats gone_;                     ///< sums of slots given back
    std::vector<std::uint8_t> answer_;   ///< of a query, as large as any
};

}  // namespace ovsdr::dr
