#include "offload/dr/nic/mark_table.hpp"

namespace ovsdr::dr {

namespace {

constexpr std::uint32_t generations = 1 << 8;

std::uint32_t next_of(std::uint32_t tag) noexcept {
    const std::uint32_t generation = tag / MarkTable::length % (generations - 1) + 1;
    return generation * MarkTable::length + tag % MarkTable::length;
}

}  // namespace

MarkTable::MarkTable() : slots_(std::make_unique<std::atomic<std::uint64_t>[]>(length)) {
    for (std::uint32_t slot = 0; slot < length; ++slot) free_.push_back(next_of(slot));
}

std::optional<std::uint32_t> MarkTable::take(std::uint32_t mark) {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return std::nullopt;
    const std::uint32_t tag = free_.front();
    free_.pop_front();
    change(tag, mark);
    return tag;
}

void MarkTable::change(std::uint32_t tag, std::uint32_t mark) noexcept {
    slots_[tag % length].store(std::uint64_t{tag} << 32 | mark, std::memory_order_release);
}

void MarkTable::give_back(std::uint32_t tag, bool keeps) noexcept {
    change(tag, 0);
    if (keeps) return;
    const std::lock_guard lock(mutex_);
    free_.push_back(next_of(tag));
}

}  // namespace ovsdr::dr
