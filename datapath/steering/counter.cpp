#include "datapath/steering/counter.hpp"

#include <new>

namespace ovsdr::soft {

CounterBulk::CounterBulk(unsigned length, unsigned workers)
    : length_(length),
      workers_(workers),
      stride_((length * sizeof(Cell) + line_size - 1) / line_size * (line_size / sizeof(Cell))),
      memory_(static_cast<std::byte*>(std::calloc(1, workers * stride_ * sizeof(Cell) + line_size))),
      cleared_(std::make_unique<Value[]>(length)) {
    if (!memory_) throw std::bad_alloc();
    const std::size_t behind = reinterpret_cast<std::uintptr_t>(memory_.get()) % line_size;
    cells_ = reinterpret_cast<Cell*>(memory_.get() + (line_size - behind) % line_size);
}

CounterBulk::Value CounterBulk::read(unsigned index) const noexcept {
    Value sum{0, 0};
    for (unsigned worker = 0; worker < workers_; ++worker) {
        Cell& counted = cell(worker, index);
        sum.packets += std::atomic_ref(counted.packets).load(std::memory_order_relaxed);
        sum.bytes += std::atomic_ref(counted.bytes).load(std::memory_order_relaxed);
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

}  // namespace ovsdr::soft
