// See insertion_times.h.
#include "ctrl/insertion_times.hpp"

#include <algorithm>
#include <atomic>
#include <ctime>
#include <new>

namespace ovsdr::ctrl {
namespace {

static_assert(OVSDR_PUT_NOWHERE == 3, "the outcomes before it have cells");

/// One thread's. Only it writes them.
struct alignas(64) Cells {
    struct Histogram {
        std::array<std::atomic<std::uint64_t>, insertion_bounds.size() + 1> buckets{};
        std::atomic<std::uint64_t> nanoseconds{0};
    };
    std::array<Histogram, OVSDR_PUT_NOWHERE> outcomes{};
    Cells* next = nullptr;
};

std::atomic<Cells*> all_cells{nullptr};

/// nullptr: out of memory; asked again by the next insertion.
Cells* cells_of_this_thread() noexcept {
    thread_local Cells* mine = nullptr;
    if (mine == nullptr && (mine = new (std::nothrow) Cells) != nullptr) {
        mine->next = all_cells.load(std::memory_order_relaxed);
        while (!all_cells.compare_exchange_weak(mine->next, mine, std::memory_order_release)) {}
    }
    return mine;
}

void add(std::atomic<std::uint64_t>& cell, std::uint64_t amount) noexcept {
    cell.store(cell.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);
}

}  // namespace

void count_insertion(ovsdr_put_outcome outcome, std::uint64_t nanoseconds) noexcept {
    Cells* const cells = cells_of_this_thread();
    if (cells == nullptr) return;
    Cells::Histogram& histogram = cells->outcomes[outcome];
    const auto bound = std::ranges::lower_bound(insertion_bounds, nanoseconds);
    add(histogram.buckets[static_cast<std::size_t>(bound - insertion_bounds.begin())], 1);
    add(histogram.nanoseconds, nanoseconds);
}

InsertionHistogram insertion_times(ovsdr_put_outcome outcome) noexcept {
    InsertionHistogram sum;
    for (const Cells* cells = all_cells.load(std::memory_order_acquire); cells != nullptr; cells = cells->next) {
        const Cells::Histogram& histogram = cells->outcomes[outcome];
        for (std::size_t i = 0; i < sum.buckets.size(); ++i) {
            sum.buckets[i] += histogram.buckets[i].load(std::memory_order_relaxed);
        }
        sum.nanoseconds += histogram.nanoseconds.load(std::memory_order_relaxed);
    }
    return sum;
}

}  // namespace ovsdr::ctrl

std::uint64_t ovsdr_insertion_begins() noexcept {
    constexpr std::uint64_t nanoseconds_of_second = 1'000'000'000;
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * nanoseconds_of_second + static_cast<std::uint64_t>(now.tv_nsec);
}

void ovsdr_insertion_ends(std::uint64_t began, ovsdr_put_outcome outcome) noexcept {
    if (outcome == OVSDR_PUT_NOWHERE) return;
    ovsdr::ctrl::count_insertion(outcome, ovsdr_insertion_begins() - began);
}
