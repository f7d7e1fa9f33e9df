#include "datapath/ports/listeners.hpp"

namespace ovsdr::soft {

std::uint64_t Listeners::add(Listener listener) {
    const std::lock_guard lock(mutex_);
    listeners_.emplace(next_id_, std::move(listener));
    return next_id_++;
}

void Listeners::remove(std::uint64_t id) noexcept {
    std::unique_lock lock(mutex_);
    listeners_.erase(id);
    if (dispatcher_ == std::this_thread::get_id()) return;
    idle_.wait(lock, [&] { return called_ != id; });
}

void Listeners::post(VportId vport, VportChange change) {
    {
        const std::lock_guard lock(mutex_);
        queue_.emplace_back(vport, change);
    }
    wake_();
}

void Listeners::dispatch() {
    std::unique_lock lock(mutex_);
    dispatcher_ = std::this_thread::get_id();
    while (!queue_.empty()) {
        const auto [vport, change] = queue_.front();
        queue_.pop_front();
        for (auto next = listeners_.begin(); next != listeners_.end();) {
            called_ = next->first;
            const Listener listener = next->second;  // a copy: it may remove itself
            lock.unlock();
            listener(vport, change);
            lock.lock();
            next = listeners_.upper_bound(std::exchange(called_, 0));
            idle_.notify_all();
        }
    }
    dispatcher_ = {};
}

}  // namespace ovsdr::soft
