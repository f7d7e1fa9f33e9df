#include "datapath/rdma/completion_queue.hpp"

#include <bit>
#include <cerrno>
#include <chrono>
#include <memory>
#include <type_traits>
#include <utility>

namespace ovsdr::soft {

CompletionQueue::CompletionQueue(unsigned length, bool timestamps, Notifier notifier, QueueAllocator allocate,
                                 bool ignore_overrun)
    : timestamps_(timestamps),
      ignore_overrun_(ignore_overrun),
      notifier_(std::move(notifier)),
      length_(std::bit_ceil(length)),
      allocate_(std::move(allocate)),
      ring_(make_ring(length_)) {}

QueueMemory CompletionQueue::make_ring(unsigned length) const {
    static_assert(std::is_trivially_destructible_v<Completion>);
    QueueMemory ring = allocate_queue(allocate_, length * sizeof(Completion));
    std::uninitialized_default_construct_n(slots(ring), length);
    return ring;
}

void CompletionQueue::add(std::span<const Completion> completions) noexcept {
    if (completions.empty()) return;
    bool notify = false;
    bool broke = false;
    const std::uint64_t now =
        timestamps_ ? static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count()) : 0;
    {
        std::unique_lock<std::mutex> taking(take_mutex_, std::defer_lock);
        if (ignore_overrun_) taking.lock();
        std::lock_guard guard(add_mutex_);
        std::uint64_t added = added_.load(std::memory_order_relaxed);
        for (const Completion& completion : completions) {
            if (overrun_) break;
            if (added - taken_.load(std::memory_order_acquire) >= length_) {
                if (!ignore_overrun_) {
                    overrun_ = broke = true;
                    break;
                }
                taken_.store(taken_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
            }
            Completion& place = at(added++);
            place = completion;
            place.timestamp = now;
            notify |= armed_ == Armed::any ||
                      (armed_ == Armed::solicited && (completion.solicited || completion.status != IBV_WC_SUCCESS));
        }
        added_.store(added, std::memory_order_release);
        if (notify) armed_ = Armed::no;
    }
    if (notify && notifier_.completion) notifier_.completion();
    if (broke && notifier_.overrun) notifier_.overrun();
}

int CompletionQueue::take(std::span<Completion> completions) noexcept {
    std::lock_guard guard(take_mutex_);
    const std::uint64_t added = added_.load(std::memory_order_acquire);
    std::uint64_t taken = taken_.load(std::memory_order_relaxed);
    std::size_t count = 0;
    while (count < completions.size() && taken != added) {
        completions[count] = at(taken++);
        Completion& completion = completions[count++];
        if (completion.freed) completion.freed->store(completion.freed_up_to, std::memory_order_release);
    }
    taken_.store(taken, std::memory_order_release);
    return static_cast<int>(count);
}

void CompletionQueue::arm(bool solicited_only) noexcept {
    std::lock_guard guard(add_mutex_);
    // Arming for any completion stands until it fires: a later "solicited only" does not take it back.
    if (armed_ == Armed::any) return;
    armed_ = solicited_only ? Armed::solicited : Armed::any;
}

void CompletionQueue::forget(std::uint32_t qp_num) noexcept {
    std::scoped_lock guard(take_mutex_, add_mutex_);
    const std::uint64_t added = added_.load(std::memory_order_relaxed);
    std::uint64_t kept = taken_.load(std::memory_order_relaxed);
    for (std::uint64_t index = kept; index != added; ++index) {
        if (at(index).qp_num != qp_num) at(kept++) = at(index);
    }
    added_.store(kept, std::memory_order_release);
}

int CompletionQueue::resize(unsigned length) {
    length = std::bit_ceil(length);
    QueueMemory ring = make_ring(length);
    std::scoped_lock guard(take_mutex_, add_mutex_);
    const std::uint64_t taken = taken_.load(std::memory_order_relaxed);
    const std::uint64_t added = added_.load(std::memory_order_relaxed);
    if (added - taken > length) return EINVAL;
    for (std::uint64_t index = taken; index != added; ++index) slots(ring)[index & (length - 1)] = at(index);
    ring_ = std::move(ring);
    length_ = length;
    return 0;
}

}  // namespace ovsdr::soft
