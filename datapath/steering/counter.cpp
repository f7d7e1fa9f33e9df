#include "datapath/steering/counter.hpp"

namespace ovsdr::soft {

CounterBulk::CounterBulk(unsigned length)
    : length_(length),
      cells_(std::make_unique<std::atomic<Cell*>[]>(max_workers)),
      cleared_(std::make_unique<Value[]>(length)) {}

CounterBulk::~CounterBulk() {
    for (unsigned worker = 0; worker < max_workers; ++worker) delete[] cells_[worker].load(std::memory_order_relaxed);
}

CounterBulk::Value CounterBulk::read(unsigned index) const noexcept {
    Value sum{0, 0};
    for (unsigned worker = 0; worker < max_workers; ++worker) {
        const Cell* cells = cells_[worker].load(std::memory_order_acquire);
        if (cells == nullptr) continue;
        sum.packets += cells[index].packets.load(std::memory_order_relaxed);
        sum.bytes += cells[index].bytes.load(std::memory_order_relaxed);
    }
    sum.packets -= cleared_[index].packets;
    sum.bytes -= cleared_[index].bytes;
    return sum;
}

CounterBulk::Value CounterBulk::read_and_clear(unsigned index) noexcept {
    const Value value = read(index);
    cleared_[index].packets += value.packets;
    cleared_[index].bytes += value.bytes;
    return value;
}

void CounterBulk::add(unsigned worker, unsigned index, std::uint64_t packets, std::uint64_t bytes) noexcept {
    Cell* cells = cells_[worker].load(std::memory_order_relaxed);
    if (cells == nullptr) [[unlikely]] {
        cells = new Cell[length_];
        cells_[worker].store(cells, std::memory_order_release);
    }
    Cell& cell = cells[index];
    cell.packets.store(cell.packets.load(std::memory_order_relaxed) + packets, std::memory_order_relaxed);
    cell.bytes.store(cell.bytes.load(std::memory_order_relaxed) + bytes, std::memory_order_relaxed);
}

}  // namespace ovsdr::soft
