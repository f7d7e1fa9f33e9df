#include "offload/dr/install/counter.hpp"

#include <pthread.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <map>
#include <utility>

#include "offload/dr/device/counter_bulk.hpp"

namespace ovsdr::dr {

namespace {

/// Which bulk to ask for, best first: large enough to be few, small enough that a prefix is read quickly.
constexpr unsigned preferred_logs[] = {2, 1, 0, 3, 4, 5, 6, 7};

unsigned bulk_log_for(const DeviceCaps& caps) noexcept {
    for (const unsigned log : preferred_logs) {
        if (caps.counter_bulks & (1U << log)) return log;
    }
    return CounterBulk::single_counter;
}

}  // namespace

Counter::Counter(CounterBulk* bulk, std::uint32_t slot, std::int16_t bytes_uncounted, bool polled) noexcept
    : bulk_(bulk), slot_(slot), bytes_uncounted_(bytes_uncounted), polled_(polled) {}

Counter::~Counter() {
    if (bulk_ != nullptr) bulk_->pool()->release(bulk_, slot_, polled_);
}

Counter::Counter(Counter&& other) noexcept
    : bulk_(std::exchange(other.bulk_, nullptr)),
      slot_(other.slot_),
      bytes_uncounted_(other.bytes_uncounted_),
      polled_(other.polled_) {}

Counter& Counter::operator=(Counter&& other) noexcept {
    std::swap(bulk_, other.bulk_);
    std::swap(slot_, other.slot_);
    std::swap(bytes_uncounted_, other.bytes_uncounted_);
    std::swap(polled_, other.polled_);
    return *this;
}

mlx5dv_dr_action* Counter::action() const noexcept { return bulk_->action(slot_); }
FlowStats Counter::read() const noexcept { return bulk_->read(slot_); }

void Counter::prefetch() const noexcept {
    if (bulk_ != nullptr) bulk_->prefetch(slot_);
}

void Counter::withhold() noexcept { bulk_->withhold(slot_); }

void Counter::bring_up_to_date() const noexcept {
    if (bulk_ == nullptr) return;
    CounterPool& pool = *bulk_->pool();
    if (pool.bulk_count_.load(std::memory_order_relaxed) > CounterPool::few_bulks) return;
    if (!bulk_->refresh_if_older(CounterPool::moment)) {
        std::lock_guard lock(pool.mutex_);
        ++pool.failed_polls_;
    }
}

std::uint32_t Counter::id() const noexcept { return bulk_->first_id() + slot_; }

Result<std::unique_ptr<CounterPool>> CounterPool::create(std::shared_ptr<Device> device,
                                                         const DeviceCaps& caps) noexcept {
    const unsigned log = bulk_log_for(caps);
    std::unique_ptr<CounterPool> pool(new CounterPool(device, log));
    auto first = CounterBulk::create(std::move(device), log);
    if (!first) return tl::unexpected(std::move(first.error()));
    pool->add_bulk(std::move(*first));
    pool->poller_ = std::thread([raw = pool.get()] { raw->poll(); });
    pthread_setname_np(pool->poller_.native_handle(), "dr-counters");
    return pool;
}

CounterPool::CounterPool(std::shared_ptr<Device> device, unsigned bulk_log) noexcept
    : device_(std::move(device)), bulk_log_(bulk_log) {}

CounterPool::~CounterPool() {
    {
        std::lock_guard lock(mutex_);
        ending_ = true;
    }
    wake_.notify_all();
    if (poller_.joinable()) poller_.join();
}

Result<Counter> CounterPool::acquire(std::int16_t bytes_uncounted, bool polled, std::uint32_t neighbourhood) noexcept {
    std::lock_guard lock(mutex_);
    auto bulk = bulk_for(neighbourhood);
    if (!bulk) return tl::unexpected(std::move(bulk.error()));
    auto slot = (*bulk)->take(bytes_uncounted, polled);
    if (!slot) return tl::unexpected(std::move(slot.error()));
    if (polled && polled_slots_++ == 0) wake_.notify_all();
    return Counter(*bulk, *slot, bytes_uncounted, polled);
}

/// With mutex_ locked; it has room.
Result<CounterBulk*> CounterPool::bulk_for(std::uint32_t neighbourhood) {
    const std::size_t side_by_side = std::bit_floor(std::max<std::size_t>(bulks_.size() / 2, 1));
    if (open_.size() < side_by_side) open_.resize(side_by_side);
    CounterBulk*& open = open_[neighbourhood % open_.size()];
    if (open != nullptr && open->has_room()) return open;
    // A device that has no more bulks is not asked each time while there is room in one that is open for others.
    const auto now = std::chrono::steady_clock::now();
    if (now < no_more_until_) {
        if (CounterBulk* const other = any_with_room()) return other;
    }
    auto next = open_bulk();
    if (!next) {
        no_more_until_ = now + poll_interval;
        if (CounterBulk* const other = any_with_room()) return other;
        return next;
    }
    if (open != nullptr) uses_[open->number()] = Use::closed;
    open = *next;
    if (std::exchange(uses_[open->number()], Use::open) == Use::spare) --spares_;
    if (wants_spares()) wake_.notify_all();
    return open;
}

void CounterPool::pass_full_bulks() noexcept {
    while (first_with_room_ < bulks_.size() && !bulks_[first_with_room_]->has_room()) ++first_with_room_;
}

CounterBulk* CounterPool::any_with_room() noexcept {
    pass_full_bulks();
    return first_with_room_ < bulks_.size() ? bulks_[first_with_room_].get() : nullptr;
}

/// One with room that is not open yet.
Result<CounterBulk*> CounterPool::open_bulk() {
    pass_full_bulks();
    for (std::size_t i = first_with_room_; i < bulks_.size(); ++i) {
        if (uses_[i] != Use::open && bulks_[i]->has_room()) return bulks_[i].get();
    }
    auto bulk = CounterBulk::create(device_, bulk_log_);
    if (!bulk) return tl::unexpected(std::move(bulk.error()));
    return add_bulk(std::move(*bulk));
}

CounterBulk* CounterPool::add_bulk(std::unique_ptr<CounterBulk> bulk) {
    bulk->belong_to(this, bulks_.size());
    uses_.push_back(Use::spare);
    ++spares_;
    bulks_.push_back(std::move(bulk));
    bulk_count_.store(bulks_.size(), std::memory_order_release);
    return bulks_.back().get();
}

void CounterPool::release(CounterBulk* bulk, std::uint32_t slot, bool polled) noexcept {
    std::lock_guard lock(mutex_);
    polled_slots_ -= polled;
    first_with_room_ = std::min(first_with_room_, bulk->number());
    (void)bulk->give_back(slot);
}

void CounterPool::give_back(std::span<Leaving> leaving) noexcept {
    std::ranges::sort(leaving, {},
                      [](const Leaving& one) { return std::pair(one.counter->bulk_, one.counter->slot_); });
    std::uint64_t failed = 0, polled = 0;
    std::size_t lowest = SIZE_MAX;
    std::vector<CounterBulk::Leaving> of_bulk;
    of_bulk.reserve(leaving.size());
    for (auto first = leaving.begin(); first != leaving.end();) {
        CounterBulk* const bulk = first->counter->bulk_;
        of_bulk.clear();
        for (; first != leaving.end() && first->counter->bulk_ == bulk; ++first) {
            of_bulk.push_back({first->counter->slot_, first->counted});
        }
        failed += !bulk->give_back(of_bulk);
        lowest = std::min(lowest, bulk->number());
    }
    for (const Leaving& one : leaving) {
        polled += one.counter->polled_;
        one.counter->bulk_ = nullptr;
    }
    std::lock_guard lock(mutex_);
    failed_polls_ += failed;
    polled_slots_ -= polled;
    first_with_room_ = std::min(first_with_room_, lowest);
}

FlowStats CounterPool::read_now(const Counter& counter) noexcept {
    if (!counter.bulk_->read_now(counter.slot_)) {
        std::lock_guard lock(mutex_);
        ++failed_polls_;
    }
    return counter.read();
}

void CounterPool::read_now(std::span<const Counter* const> counters) {
    std::map<CounterBulk*, std::uint32_t> highest;   // slot, of each bulk
    for (const Counter* const counter : counters) {
        std::uint32_t& slot = highest[counter->bulk_];
        slot = std::max(slot, counter->slot_);
    }
    std::uint64_t failed = 0;
    for (const auto& [bulk, slot] : highest) failed += !bulk->read_now(slot);
    std::lock_guard lock(mutex_);
    failed_polls_ += failed;
}

void CounterPool::bring_up_to_date() noexcept {
    const std::size_t length = bulk_count_.load(std::memory_order_acquire);
    if (length > few_bulks) return;
    for (std::size_t i = 0; i < length; ++i) {
        std::unique_lock lock(mutex_);
        CounterBulk* const bulk = bulks_[i].get();   // bulks live as long as the pool
        lock.unlock();
        if (bulk->refresh_if_older(moment)) continue;
        lock.lock();
        ++failed_polls_;
    }
}

FlowStats CounterPool::total() const noexcept {
    std::lock_guard lock(mutex_);
    FlowStats sum;
    for (const auto& bulk : bulks_) {
        const FlowStats stats = bulk->total();
        sum.packets += stats.packets;
        sum.bytes += stats.bytes;
    }
    return sum;
}

std::uint64_t CounterPool::failed_polls() const noexcept {
    std::lock_guard lock(mutex_);
    return failed_polls_;
}

void CounterPool::poll() noexcept {
    std::unique_lock lock(mutex_);
    Clock::duration round{};   // how long the last one took
    auto next = Clock::now() + poll_interval;
    while (!ending_) {
        if (polled_slots_ == 0) {
            wake_.wait(lock, [this] { return ending_ || polled_slots_ != 0; });
            next = Clock::now() + interval_behind(round);
            continue;
        }
        if (wake_.wait_until(lock, next, [this] { return ending_ || wants_spares(); })) {
            make_spares(lock);
        } else {
            const Clock::time_point begin = Clock::now();
            read_all(lock);
            const Clock::time_point end = Clock::now();
            round = end - begin;
            next = end + interval_behind(round);
        }
    }
}

CounterPool::Clock::duration CounterPool::interval_behind(Clock::duration round) const noexcept {
    if (bulks_.size() <= few_bulks) return poll_interval;
    return std::clamp<Clock::duration>(5 * round, shortest_poll_interval, poll_interval);
}

void CounterPool::read_all(std::unique_lock<std::mutex>& lock) noexcept {
    // Bulks are only ever added, at the end, and live as long as the pool.
    for (std::size_t i = 0; i < bulks_.size() && !ending_; ++i) {
        make_spares(lock);
        CounterBulk* bulk = bulks_[i].get();
        lock.unlock();
        const bool failed = !bulk->refresh();
        lock.lock();
        failed_polls_ += failed;
    }
}

bool CounterPool::wants_spares() const noexcept {
    const std::size_t bulks = bulks_.size();
    return bulks >= no_spares_below && spares_ < std::min(bulks / bulks_per_spare, most_spares) &&
           std::chrono::steady_clock::now() >= no_more_until_;
}

/// A device that has no more bulks is not asked again at once: whoever needs one will ask.
void CounterPool::make_spares(std::unique_lock<std::mutex>& lock) noexcept {
    while (wants_spares() && !ending_) {
        lock.unlock();
        auto bulk = CounterBulk::create(device_, bulk_log_);
        lock.lock();
        if (!bulk) {
            no_more_until_ = std::chrono::steady_clock::now() + poll_interval;
            return;
        }
        add_bulk(std::move(*bulk));
    }
}

}  // namespace ovsdr::dr
