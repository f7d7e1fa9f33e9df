// When a worker looks at doorbells that nobody announces: those of queues that applications drive themselves (DEVX). A
// doorbell page is plain memory, so the device looks, and a worker that sleeps wakes up for it.
//
// After a find the next look is due in 50 µs; the longer nothing is found the later, a hundredth of the idle time, each
// millisecond in the end. Awake workers look in each turn.
//
// Threads: one at a time. Times are nanoseconds of the steady clock.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace ovsdr::soft {

class PolledDoorbell {
public:
    static constexpr std::uint64_t first_look = 50'000, longest_look = 1'000'000;

    void found(std::uint64_t now) noexcept { last_found_.store(now, std::memory_order_relaxed); }
    /// The application will ring soon: the next turn counts as a find.
    void expect() noexcept { last_found_.store(soon, std::memory_order_relaxed); }
    [[nodiscard]] std::uint64_t next_look(std::uint64_t now) noexcept {
        constexpr std::uint64_t share = 100;
        std::uint64_t last = soon;
        if (last_found_.compare_exchange_strong(last, now, std::memory_order_relaxed)) last = now;
        return now + std::clamp((now - std::min(now, last)) / share, first_look, longest_look);
    }

private:
    static constexpr std::uint64_t soon = ~std::uint64_t{0};
    std::atomic<std::uint64_t> last_found_{soon};
};

}  // namespace ovsdr::soft
