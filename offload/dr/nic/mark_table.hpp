// Which mark of the caller's stands behind a flow tag.
//
// Model. A tag has 24 bits: the lower 16 are a slot of a table, the upper 8 say how often the slot was used before,
// from 1 on, so that no tag is 0. mark_of() reads the slot and compares the whole tag: a packet that was under way when
// its megaflow went finds no mark, even if the slot is another megaflow's by then. Slots wait in line for their next
// use.
//
// Threads: mark_of() any, without a lock; the rest any.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>

namespace ovsdr::dr {

class MarkTable {
public:
    static constexpr std::uint32_t length = 1 << 16;

    MarkTable();

    /// Nothing: all slots are taken.
    [[nodiscard]] std::optional<std::uint32_t> take(std::uint32_t mark);
    /// The tag stands for another mark from now on.
    void change(std::uint32_t tag, std::uint32_t mark) noexcept;
    /// For nothing any more. `keeps`: the device has a rule with the tag, which nobody else gets.
    void give_back(std::uint32_t tag, bool keeps) noexcept;

    /// 0: none.
    [[nodiscard]] std::uint32_t mark_of(std::uint32_t tag) const noexcept {
        const std::uint64_t entry = slots_[tag % length].load(std::memory_order_acquire);
        return entry >> 32 == tag ? static_cast<std::uint32_t>(entry) : 0;
    }

private:
    /// The tag, then the mark.
    std::unique_ptr<std::atomic<std::uint64_t>[]> slots_;
    std::mutex mutex_;
    std::deque<std::uint32_t> free_;   ///< tags, as they are to be used next
};

}  // namespace ovsdr::dr
