// Flow counters: bulks of (packets, bytes) pairs, one copy per worker, summed when read.
//
// A worker adds to its own copy with plain relaxed stores; a reader sums all copies. The copies lie in one piece of
// memory, each from a cache line on, and one more has what was cleared; what nobody counts in is address space only.
// Reads are exact once the counted traffic has stopped and Steering::synchronize() (mlx5dv_dr_domain_sync) has
// returned.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>

#include "datapath/vport_id.hpp"

namespace ovsdr::soft {

class CounterBulk : public std::enable_shared_from_this<CounterBulk> {
public:
    struct Value {
        std::uint64_t packets;
        std::uint64_t bytes;
    };

    /// `length` counters, all 0, for workers 0 to `workers` - 1. Throws std::bad_alloc.
    explicit CounterBulk(unsigned length, unsigned workers = max_workers);
    CounterBulk(const CounterBulk&) = delete;
    CounterBulk& operator=(const CounterBulk&) = delete;

    [[nodiscard]] unsigned length() const noexcept { return length_; }

    /// Whoever holds a bulk that is shared needs no share of his own, only a pointer to it: there are as many actions
    /// as counters.
    void take_hold();
    void let_go() noexcept;

    /// Sum over workers. `index` < length(). Threads: any.
    [[nodiscard]] Value read(unsigned index) const noexcept;
    /// Counters `first` and up, as many as `values` has. The same; cheaper than one by one.
    void read(unsigned first, std::span<Value> values) const noexcept;

    /// Sets to 0 as QUERY_FLOW_COUNTER's `clear` does: what a worker adds meanwhile is kept. Threads: one at a time.
    Value read_and_clear(unsigned index) noexcept;

    /// Threads: the worker with that index.
    void add(unsigned worker, unsigned index, std::uint64_t packets, std::uint64_t bytes) noexcept {
        if ((counting_.load(std::memory_order_relaxed) & 1U << worker) == 0) [[unlikely]] {
            counting_.fetch_or(1U << worker, std::memory_order_relaxed);
        }
        Cell& counted = cell(worker, index);
        const std::atomic_ref all_packets(counted.packets), all_bytes(counted.bytes);
        all_packets.store(all_packets.load(std::memory_order_relaxed) + packets, std::memory_order_relaxed);
        all_bytes.store(all_bytes.load(std::memory_order_relaxed) + bytes, std::memory_order_relaxed);
    }

private:
    struct Cell {
        std::uint64_t packets, bytes;  ///< atomic by std::atomic_ref
    };
    struct Free {
        void operator()(void* memory) const noexcept { std::free(memory); }
    };
    static constexpr std::size_t line_size = 64;

    [[nodiscard]] Cell& cell(unsigned worker, unsigned index) const noexcept {
        return cells_[worker * stride_ + index];
    }

    unsigned length_;
    // A bit for each worker that has counted: a reader passes over the others' copies.
    std::atomic<std::uint32_t> counting_{0};
    std::size_t stride_;                       // cells from one worker's copy to the next
    std::unique_ptr<std::byte, Free> memory_;
    Cell* cells_;                              // in memory_, from a cache line on
    Cell* cleared_;                            // there as well: what read_and_clear() has taken away
    std::atomic_flag turn_;
    unsigned holders_ = 0;
    std::shared_ptr<CounterBulk> self_;        // while somebody holds it
};

}  // namespace ovsdr::soft
