// How a worker sleeps: on a doorbell and on its ports' sockets, for a limited time.
//
// The sockets are looked at only when the worker is about to sleep (ppoll rather than epoll), so a busy worker pays
// nothing for them, in the kernel either. A socket that keeps saying "readable" when there is nothing to receive,
// because its interface is gone for example, is left out after a while, and its port is polled like one without a
// socket. A source may also be an epoll descriptor: it shows the edges that came since they were last collected, which
// sleep() does.
//
// Doorbell protocol. The worker calls prepare(), looks at its queues and ports once more, and then sleep() or cancel().
// Whoever posts work for it does so first and then calls ring(). One of the two sees the other: both have a full
// barrier between their store and their load.
//
// Threads: ring() and asleep() from any thread, the rest from the worker.
#pragma once

#include <poll.h>

#include <atomic>
#include <chrono>
#include <span>
#include <vector>

#include "datapath/ports/port.hpp"

namespace ovsdr::soft {

class Sleeper {
public:
    /// Throws std::system_error when there is no eventfd.
    Sleeper();
    ~Sleeper();
    Sleeper(const Sleeper&) = delete;
    Sleeper& operator=(const Sleeper&) = delete;

    /// Wakes the worker if it sleeps or is about to; one load and a barrier otherwise.
    void ring() noexcept;

    /// What ring() looks at, with its barrier: false means that the worker will look at its queues once more.
    [[nodiscard]] bool asleep() const noexcept {
        std::atomic_thread_fence(std::memory_order_seq_cst);
        return asleep_.load(std::memory_order_relaxed);
    }

    /// The sources to watch from now on; they stay the caller's.
    void watch(const std::vector<WakeSource>& sources);

    /// Some socket was left out: the ports must be polled.
    [[nodiscard]] bool lost_sockets() const noexcept { return lost_; }

    void prepare() noexcept;
    void cancel() noexcept { asleep_.store(false, std::memory_order_relaxed); }

    /// Until the doorbell, a socket, or the time.
    void sleep(std::chrono::nanoseconds time) noexcept;
    /// Until the doorbell or the time; the sources are somebody else's, and asleep() stays true. Whether the doorbell
    /// rang.
    [[nodiscard]] bool nap(std::chrono::nanoseconds time) noexcept;

    /// Puts the sources into gathered(), for whoever is to look after them, until scatter() or watch(). False where
    /// that would not be readable for as long as a packet waits: a source has edges to collect, or there is none.
    [[nodiscard]] bool gather() noexcept;
    void scatter() noexcept;
    /// An epoll descriptor that is the same for good.
    [[nodiscard]] int gathered() const noexcept { return gathered_; }
    /// Which of the sources in it are readable, by their places in what watch() was given; returns how many. Threads:
    /// any.
    unsigned readable(std::span<unsigned> places) const noexcept;

    /// What came of the last sleep: whether the worker found anything to do.
    void woke_for(bool work) noexcept;

private:
    void drop_idle_talkers() noexcept;

    std::atomic<bool> asleep_{false};
    int doorbell_;
    std::vector<pollfd> watched_;        ///< the doorbell first
    std::vector<bool> is_epoll_;         ///< for each of them
    std::vector<unsigned> empty_wakes_;  ///< in a row, for each of them
    const int gathered_;
    std::vector<int> in_gathered_;
    bool lost_ = false;
};

}  // namespace ovsdr::soft
