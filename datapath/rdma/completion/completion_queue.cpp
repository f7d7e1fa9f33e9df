#include "datapath/rdma/completion/completion_queue.hpp"

#include <endian.h>

#include <bit>
#include <cerrno>
#include <chrono>
#include <memory>
#include <type_traits>
#include <utility>

#include "datapath/rdma/completion/cqe_ring.hpp"

namespace ovsdr::soft {

namespace {

constexpr std::uint32_t counter_mask = 0xffffff;  // of the counters in doorbell records

}  // namespace

thread_local const CompletionQueue* CompletionQueue::looked_into_ = nullptr;

CompletionQueue::CompletionQueue(unsigned length, bool timestamps, Notifier notifier, QueueAllocator allocate,
                                 bool ignore_overrun)
    : timestamps_(timestamps),
      ignore_overrun_(ignore_overrun),
      notifier_(std::move(notifier)),
      length_(std::bit_ceil(length)),
      allocate_(std::move(allocate)),
      ring_(make_ring(length_)) {}

CompletionQueue::~CompletionQueue() = default;

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
        timestamps_.load(std::memory_order_relaxed)
            ? static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count())
            : 0;
    {
        std::unique_lock<std::mutex> taking(take_mutex_, std::defer_lock);
        if (ignore_overrun_ || is_exposed_.load(std::memory_order_relaxed)) taking.lock();
        std::lock_guard guard(add_mutex_);
        if (exposed_ && taking.owns_lock()) follow_consumer();
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
            Completion& place = at(added);
            place = completion;
            place.timestamp = now;
            if (exposed_) exposed_->put(static_cast<std::uint32_t>(added), place);
            ++added;
            const bool solicited = completion.solicited || completion.status != IBV_WC_SUCCESS;
            if (solicited) solicited_ = added;
            notify |= armed_ == Armed::any || (armed_ == Armed::solicited && solicited);
        }
        added_.store(added, std::memory_order_release);
        notify = notify && looked_into_ != this;
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
    if (consumer_ && count) consumer_->store(htobe32(taken & counter_mask), std::memory_order_release);
    return static_cast<int>(count);
}

void CompletionQueue::expose(std::unique_ptr<CqeRing> ring, std::atomic<__be32>& consumer) {
    std::scoped_lock guard(take_mutex_, add_mutex_);
    const std::uint64_t taken = taken_.load(std::memory_order_relaxed), added = added_.load(std::memory_order_relaxed);
    consumer.store(htobe32(taken & counter_mask), std::memory_order_relaxed);
    for (std::uint64_t index = taken; index != added; ++index) ring->put(static_cast<std::uint32_t>(index), at(index));
    exposed_ = std::move(ring);
    consumer_ = &consumer;
    timestamps_.store(true, std::memory_order_relaxed);  // CQEs always have one
    is_exposed_.store(true, std::memory_order_relaxed);
}

void CompletionQueue::follow_consumer() noexcept {
    const std::uint64_t added = added_.load(std::memory_order_relaxed);
    const std::uint32_t behind = exposed_->behind(static_cast<std::uint32_t>(added));
    std::uint64_t taken = taken_.load(std::memory_order_relaxed);
    if (behind >= added - taken) return;  // nothing new, or a counter that makes no sense
    for (; added - taken != behind; ++taken) {
        const Completion& completion = at(taken);
        if (completion.freed) completion.freed->store(completion.freed_up_to, std::memory_order_release);
    }
    taken_.store(taken, std::memory_order_release);
}

void CompletionQueue::notify_of_rest() noexcept {
    {
        const std::lock_guard guard(add_mutex_);
        const std::uint64_t come = armed_ == Armed::solicited ? solicited_ : added_.load(std::memory_order_relaxed);
        if (armed_ == Armed::no || come <= taken_.load(std::memory_order_relaxed)) return;
        armed_ = Armed::no;
    }
    if (notifier_.completion) notifier_.completion();
}

void CompletionQueue::arm(bool solicited_only) noexcept {
    std::lock_guard guard(add_mutex_);
    // Arming for any completion stands until it fires: a later "solicited only" does not take it back.
    if (armed_ == Armed::any) return;
    armed_ = solicited_only ? Armed::solicited : Armed::any;
}

void CompletionQueue::arm_from(std::uint32_t consumed, bool solicited_only) noexcept {
    {
        std::lock_guard guard(add_mutex_);
        const std::uint64_t come = solicited_only ? solicited_ : added_.load(std::memory_order_relaxed);
        const std::uint32_t ahead = (static_cast<std::uint32_t>(come) - consumed) & counter_mask;
        const bool is_there = ahead != 0 && ahead <= counter_mask / 2;
        armed_ = is_there ? Armed::no : solicited_only ? Armed::solicited : Armed::any;
        if (!is_there) return;
    }
    if (notifier_.completion) notifier_.completion();
}

void CompletionQueue::forget(std::uint32_t qp_num) noexcept {
    std::scoped_lock guard(take_mutex_, add_mutex_);
    const std::uint64_t added = added_.load(std::memory_order_relaxed);
    std::uint64_t kept = taken_.load(std::memory_order_relaxed);
    if (exposed_) {  // The application sees them; they give no slots back any more.
        for (; kept != added; ++kept) {
            if (at(kept).qp_num == qp_num) at(kept).freed = nullptr;
        }
        return;
    }
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
