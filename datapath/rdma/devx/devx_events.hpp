// Events of one DEVX object: who wants to hear of them.
//
// Model. An object publishes the event-queue entry that hardware would write; each subscriber to its type gets it. A
// subscriber that has gone is forgotten; the object's end ends its subscriptions.
//
// Threads: any. A subscriber's function runs on the publisher's thread and must not wait.
// Source: mlx5dv_devx_subscribe_devx_event(3).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "datapath/rdma/prm.hpp"

namespace ovsdr::soft::devx {

using EventEntry = std::array<std::byte, prm::event::eqe_size>;
using Subscriber = std::function<void(std::uint16_t type, const EventEntry&)>;

class ObjectEvents {
public:
    void subscribe(std::uint16_t type, const std::shared_ptr<Subscriber>& subscriber) {
        std::lock_guard guard(mutex_);
        std::erase_if(subscriptions_, [](const Subscription& old) { return old.subscriber.expired(); });
        subscriptions_.push_back({type, subscriber});
        wanted_.store(true, std::memory_order_release);
    }
    /// Whether anybody ever subscribed.
    [[nodiscard]] bool wanted() const noexcept { return wanted_.load(std::memory_order_acquire); }

    void publish(std::uint16_t type, const EventEntry& entry) {
        if (!wanted()) return;
        std::lock_guard guard(mutex_);
        for (const Subscription& subscription : subscriptions_) {
            const auto subscriber = subscription.type == type ? subscription.subscriber.lock() : nullptr;
            if (subscriber) (*subscriber)(type, entry);
        }
    }

private:
    struct Subscription {
        std::uint16_t type;
        std::weak_ptr<Subscriber> subscriber;
    };
    std::mutex mutex_;
    std::vector<Subscription> subscriptions_;
    std::atomic<bool> wanted_{false};
};

}  // namespace ovsdr::soft::devx
