#include "datapath/steering/counter.hpp"

#include <bit>
#include <new>
#include <utility>

#include "datapath/steering/hold.hpp"

namespace ovsdr::soft {

CounterBulk::CounterBulk(unsigned length, unsigned workers)
    : length_(length),
      stride_((length * sizeof(Cell) + line_size - 1) / line_size * (line_size / sizeof(Cell))),
      memory_(static_cast<std::byte*>(std::calloc(1, (workers + 1) * stride_ * sizeof(Cell) + line_size))) {
    if (!memory_) throw std::bad_alloc();
    const std::size_t behind = reinterpret_cast<std::uintptr_t>(memory_.get()) % line_size;
    cells_ = reinterpret_cast<Cell*>(memory_.get() + (line_size - behind) % line_size);
    cleared_ = cells_ + workers * stride_;
}

void CounterBulk::take_hold() {
    const Hold turn(turn_);
    if (holders_++ == 0) self_ = shared_from_this();
}

void CounterBulk::let_go() noexcept {
    std::shared_ptr<CounterBulk> last;
    const Hold turn(turn_);
    if (--holders_ == 0) last = std::move(self_);
}

CounterBulk::Value CounterBulk::read(unsigned index) const noexcept {
    Value one{0, 0};
    read(index, std::span(&one, 1));
    return one;
}

void CounterBulk::read(unsigned first, std::span<Value> values) const noexcept {
    for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = {-cleared_[first + i].packets, -cleared_[first + i].bytes};   // modulo 2^64, as the counters
    }
    for (std::uint32_t rest = counting_.load(std::memory_order_relaxed); rest != 0; rest &= rest - 1) {
        const auto worker = static_cast<unsigned>(std::countr_zero(rest));
        for (std::size_t i = 0; i < values.size(); ++i) {
            Cell& counted = cell(worker, first + static_cast<unsigned>(i));
            values[i].packets += std::atomic_ref(counted.packets).load(std::memory_order_relaxed);
            values[i].bytes += std::atomic_ref(counted.bytes).load(std::memory_order_relaxed);
        }
    }
}

CounterBulk::Value CounterBulk::read_and_clear(unsigned index) noexcept {
    const Value value = read(index);
    cleared_[index].packets += value.packets;
    cleared_[index].bytes += value.bytes;
    return value;
}

}  // namespace ovsdr::soft
