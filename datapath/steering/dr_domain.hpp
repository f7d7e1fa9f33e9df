// A DR domain: the tables of one kind (NIC_RX, NIC_TX, FDB) that one application made on a device.
//
// Domains of a kind share the device's root table: a root rule of either takes packets. Destroyed last: EBUSY while a
// table, or an action bound to it, lives.
//
// Threads: any.
#pragma once

#include <atomic>
#include <mutex>
#include <vector>

#include "datapath/steering/match.hpp"
#include "datapath/steering/steering.hpp"

namespace ovsdr::soft {

class Table;

/// Reference counts as libmlx5 keeps them: an object that somebody else refers to cannot be destroyed.
class Referenced {
public:
    void refer() noexcept { references_.fetch_add(1, std::memory_order_relaxed); }
    void forget() noexcept { references_.fetch_sub(1, std::memory_order_release); }
    [[nodiscard]] bool busy() const noexcept { return references_.load(std::memory_order_acquire) != 0; }

private:
    std::atomic<unsigned> references_{0};
};

class Domain : public Referenced {
public:
    Domain(Steering& steering, DomainType type, void* owner) noexcept
        : steering_(steering), type_(type), owner_(owner) {}
    Domain(const Domain&) = delete;
    Domain& operator=(const Domain&) = delete;

    [[nodiscard]] Steering& steering() noexcept { return steering_; }
    [[nodiscard]] DomainType type() const noexcept { return type_; }
    /// Whatever the creator wanted kept: the verbs front's ibv_context.
    [[nodiscard]] void* owner() const noexcept { return owner_; }

    /// Whether rules with equal values may coexist in a non-root matcher; they may by default.
    void allow_duplicates(bool allow) noexcept { duplicates_.store(allow, std::memory_order_relaxed); }
    [[nodiscard]] bool duplicates_allowed() const noexcept { return duplicates_.load(std::memory_order_relaxed); }

    /// Whether what rules leave goes back to the system: by default it is kept for rules to come.
    void reclaim_memory(bool reclaim) noexcept { reclaims_.store(reclaim, std::memory_order_relaxed); }
    [[nodiscard]] bool reclaims_memory() const noexcept { return reclaims_.load(std::memory_order_relaxed); }

    /// Frees what was removed from the device; where memory is reclaimed, matchers keep no room that their rules do not
    /// need and the process's free memory goes to the system. Waits like Steering::synchronize().
    void free_cached_memory();

    /// For dumps; under the lock the tables stay.
    [[nodiscard]] std::mutex& tables_mutex() noexcept { return tables_mutex_; }
    [[nodiscard]] std::vector<Table*>& tables() noexcept { return tables_; }

private:
    Steering& steering_;
    DomainType type_;
    void* owner_;
    std::atomic<bool> duplicates_{true};
    std::atomic<bool> reclaims_{false};
    std::mutex tables_mutex_;
    std::vector<Table*> tables_;
};

}  // namespace ovsdr::soft
