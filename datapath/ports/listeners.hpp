// Who wants to know of a vport's changes, and the queue of changes that waits for the control thread.
//
// Threads: post(), add() and remove() from any thread; dispatch() from the control thread only. Listeners are called
// without any lock, so they may call anything, remove() of themselves included.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "datapath/ports/nic.hpp"

namespace ovsdr::soft {

class Listeners {
public:
    using Listener = std::function<void(VportId, VportChange)>;

    /// `wake` makes the control thread call dispatch().
    explicit Listeners(std::function<void()> wake) : wake_(std::move(wake)) {}

    std::uint64_t add(Listener listener);

    /// Returns once the listener is not being called, except when it calls this itself.
    void remove(std::uint64_t id) noexcept;

    void post(VportId vport, VportChange change);
    void dispatch();

private:
    std::function<void()> wake_;
    std::mutex mutex_;
    std::condition_variable idle_;
    std::map<std::uint64_t, Listener> listeners_;
    std::deque<std::pair<VportId, VportChange>> queue_;
    std::uint64_t next_id_ = 1;
    std::uint64_t called_ = 0;  ///< the one that is being called, 0 for none
    std::thread::id dispatcher_;
};

}  // namespace ovsdr::soft
