#include "datapath/steering/rcu.hpp"

#include <chrono>
#include <new>
#include <thread>

#include "datapath/steering/short_list.hpp"

namespace ovsdr::soft {

Rcu::Rcu() {
    const std::size_t size = rte_rcu_qsbr_get_memsize(max_workers);
    void* memory = std::aligned_alloc(RTE_CACHE_LINE_SIZE, (size + 63) & ~std::size_t{63});
    if (memory == nullptr) throw std::bad_alloc();
    state_.reset(static_cast<rte_rcu_qsbr*>(memory));
    rte_rcu_qsbr_init(state_.get(), max_workers);
}

Rcu::~Rcu() {
    for (const Retired& retired : retired_) retired.free();
}

/// Without memory to remember it by, the writer waits.
void Rcu::retire(Retired retired) noexcept {
    std::unique_lock lock(mutex_);
    retired.token = rte_rcu_qsbr_start(state_.get());
    try {
        retired_.push_back(std::move(retired));
    } catch (const std::bad_alloc&) {
        lock.unlock();
        synchronize();
        return retired.free();
    }
    collect(lock);
}

/// Freeing runs outside the lock: what is freed may retire in turn.
bool Rcu::collect(std::unique_lock<std::mutex>& lock) {
    constexpr std::size_t at_once = 64;
    ShortList<Retired, at_once> due;
    while (!retired_.empty() && due.length() < at_once &&
           rte_rcu_qsbr_check(state_.get(), retired_.front().token, false) == 1) {
        due.push_back(std::move(retired_.front()));
        retired_.pop_front();
    }
    lock.unlock();
    for (const Retired& retired : due.all()) retired.free();
    return due.length() != 0;
}

void Rcu::drain() noexcept {
    synchronize();
    for (std::unique_lock lock(mutex_); collect(lock);) lock.lock();
}

void Rcu::synchronize() noexcept {
    const std::uint64_t token = rte_rcu_qsbr_start(state_.get());
    // A busy worker passes within microseconds; one that shares our core needs it.
    for (unsigned round = 0; rte_rcu_qsbr_check(state_.get(), token, false) != 1; ++round) {
        if (round < 16) {
            std::this_thread::yield();
        } else {
            std::this_thread::sleep_for(std::chrono::microseconds(20));
        }
    }
    std::unique_lock lock(mutex_);
    collect(lock);
}

}  // namespace ovsdr::soft
