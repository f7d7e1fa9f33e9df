#include "offload/dr/nic/mark_table.hpp"

namespace ovsdr::dr {

namespace {

std::atomic<void (*)(std::uint32_t)> gone_hook{nullptr};

constexpr std::uint32_t generations = 1 << 8;

std::uint32_t next_of(std::uint32_t tag) noexcept {
    const std::uint32_t generation = tag / MarkTable::length % (generations - 1) + 1;
    return generation * MarkTable::length + tag % MarkTable::length;
}

}  // namespace

void on_mark_gone(void (*gone)(std::uint32_t)) noexcept { gone_hook.store(gone, std::memory_order_release); }

MarkTable::MarkTable() : slots_(std::make_unique<std::atomic<std::uint64_t>[]>(length)) {
    for (std::uint32_t slot = 0; slot < length; ++slot) free_.push_back(next_of(slot));
}

std::optional<std::uint32_t> MarkTable::take(std::uint32_t mark) {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return std::nullopt;
    const std::uint32_t tag = free_.front();
    free_.pop_front();
    (void)exchange(tag, mark);
    return tag;
}

std::uint32_t MarkTable::exchange(std::uint32_t tag, std::uint32_t mark) noexcept {
    const std::uint64_t entry = std::uint64_t{tag} << 32 | mark;
    return static_cast<std::uint32_t>(slots_[tag % length].exchange(entry, std::memory_order_acq_rel));
}

void MarkTable::change(std::uint32_t tag, std::uint32_t mark) noexcept {
    const std::uint32_t before = exchange(tag, mark);
    auto* const gone = gone_hook.load(std::memory_order_acquire);
    if (gone != nullptr && before != 0 && before != mark) gone(before);
}

void MarkTable::give_back(std::uint32_t tag, bool keeps) noexcept {
    change(tag, 0);
    if (keeps) return;
    const std::lock_guard lock(mutex_);
    free_.push_back(next_of(tag));
}

}  // namespace ovsdr::dr
