// Grace periods between the control calls and the lanes of one Steering: DPDK's quiescent-state counters, plus what
// waits to be freed.
//
// Readers (lanes) never wait. A writer unpublishes first, then retires; what it retired is freed by a later call of a
// writer, once every online lane has been quiescent.
//
// Threads: the lane functions from the lane's worker, all others from any.
#pragma once

#include <rte_rcu_qsbr.h>

#include <cstdint>
#include <cstdlib>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "datapath/vport_id.hpp"

namespace ovsdr::soft {

class Rcu {
public:
    Rcu();
    /// No lane may be online any more. Frees everything.
    ~Rcu();
    Rcu(const Rcu&) = delete;
    Rcu& operator=(const Rcu&) = delete;

    void add_lane(unsigned worker) noexcept { rte_rcu_qsbr_thread_register(state_.get(), worker); }
    void remove_lane(unsigned worker) noexcept { rte_rcu_qsbr_thread_unregister(state_.get(), worker); }
    void online(unsigned worker) noexcept { rte_rcu_qsbr_thread_online(state_.get(), worker); }
    void offline(unsigned worker) noexcept { rte_rcu_qsbr_thread_offline(state_.get(), worker); }
    void quiescent(unsigned worker) noexcept { rte_rcu_qsbr_quiescent(state_.get(), worker); }

    /// Frees `object` with `free_object` after a grace period.
    void retire(void* object, void (*free_object)(void*)) { retire({0, object, free_object, nullptr}); }
    /// Lets go of its share after a grace period.
    void retire(std::shared_ptr<const void> share) { retire({0, nullptr, nullptr, std::move(share)}); }

    template <typename T>
    void retire(T* object) {
        retire(object, [](void* it) { delete static_cast<T*>(it); });
    }

    /// Waits for a grace period, sleeping in between. Never from a lane.
    void synchronize() noexcept;
    /// The same, and everything that was retired before is freed then.
    void drain() noexcept;

private:
    struct Retired {
        std::uint64_t token = 0;
        void* object = nullptr;
        void (*free_object)(void*) = nullptr;
        std::shared_ptr<const void> share;

        /// The share goes by itself.
        void free() const {
            if (free_object != nullptr) free_object(object);
        }
    };
    struct Free {
        void operator()(rte_rcu_qsbr* state) const noexcept { std::free(state); }
    };

    void retire(Retired retired) noexcept;
    /// Frees some of what is due; whether there was any.
    bool collect(std::unique_lock<std::mutex>& lock);

    std::unique_ptr<rte_rcu_qsbr, Free> state_;
    std::mutex mutex_;
    std::deque<Retired> retired_;
};

}  // namespace ovsdr::soft
