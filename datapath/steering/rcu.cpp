#include "datapath/steering/rcu.hpp"

#include <array>
#include <chrono>
#include <new>
#include <span>
#include <thread>

namespace ovsdr::soft {

Rcu::Rcu() {
    const std::size_t size = rte_rcu_qsbr_get_memsize(max_workers);
    void* memory = std::aligned_alloc(RTE_CACHE_LINE_SIZE, (size + 63) & ~std::size_t{63});
    if (memory == nullptr) throw std::bad_alloc();
    state_.reset(static_cast<rte_rcu_qsbr*>(memory));
    rte_rcu_qsbr_init(state_.get(), max_workers);
}

Rcu::~Rcu() {
    for (const Retired& retired : retired_) retired.free_object(retired.object);
}

void Rcu::retire(void* object, void (*free_object)(void*)) {
    std::unique_lock lock(mutex_);
    retired_.push_back({rte_rcu_qsbr_start(state_.get()), object, free_object});
    collect(lock);
}

/// Freeing runs outside the lock: what is freed may retire in turn.
bool Rcu::collect(std::unique_lock<std::mutex>& lock) {
    std::array<Retired, 64> due;
    std::size_t length = 0;
    while (!retired_.empty() && length < due.size() &&
           rte_rcu_qsbr_check(state_.get(), retired_.front().token, false) == 1) {
        due[length++] = retired_.front();
        retired_.pop_front();
    }
    lock.unlock();
    for (const Retired& retired : std::span(due.data(), length)) retired.free_object(retired.object);
    return length != 0;
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
