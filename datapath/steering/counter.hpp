// Flow counters: bulks of (packets, bytes) pairs, one copy per worker, summed when read.
//
// A worker adds to its own copy with plain relaxed stores; a reader sums all copies. Reads are exact once the counted
// traffic has stopped and Steering::synchronize() (mlx5dv_dr_domain_sync) has returned.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "datapath/vport_id.hpp"

namespace ovsdr::soft {

class CounterBulk {
public:
    struct Value {
        std::uint64_t packets;
        std::uint64_t bytes;
    };

    /// `length` counters, all 0. Throws std::bad_alloc.
    explicit CounterBulk(unsigned length);
    ~CounterBulk();
    CounterBulk(const CounterBulk&) = delete;
    CounterBulk& operator=(const CounterBulk&) = delete;

    [[nodiscard]] unsigned length() const noexcept { return length_; }

    /// Sum over workers. `index` < length(). Threads: any.
    [[nodiscard]] Value read(unsigned index) const noexcept;

    /// Sets to 0 as QUERY_FLOW_COUNTER's `clear` does: what a worker adds meanwhile is kept. Threads: one at a time.
    Value read_and_clear(unsigned index) noexcept;

    /// Threads: the worker with that index.
    void add(unsigned worker, unsigned index, std::uint64_t packets, std::uint64_t bytes) noexcept;

private:
    struct Cell {
        std::atomic<std::uint64_t> packets{0};
        std::atomic<std::uint64_t> bytes{0};
    };
    unsigned length_;
    std::unique_ptr<std::atomic<Cell*>[]> cells_;     // one array per worker, made on that worker's first add
    std::unique_ptr<Value[]> cleared_;                // what read_and_clear() has taken away
};

}  // namespace ovsdr::soft
