// What an application's thread sleeps on: the descriptor of a completion channel, which for a while also shows that
// packets wait at the NIC's ports.
//
// A packet that the eSwitch sends up wakes two threads one after the other: the worker that receives it, and whoever
// waits for its completion. Where that happens over and over, the worker appoints the second one its deputy
// (worker.hpp): the descriptor shows the ports themselves, and the deputy receives in the worker's place when it looks
// into its completion queue.
//
// It may then be readable though no completion has come: only a descriptor in non-blocking mode, whose owner must be
// ready for that, ever shows ports.
//
// Threads: about_to_wait() and this_thread() from any, for itself; the rest from any. Nobody uses the descriptor once
// end() has returned, though others hold the object.
#pragma once

#include <atomic>
#include <mutex>

namespace ovsdr::soft {

class Lookout {
public:
    /// A thread as lookouts tell them apart.
    using Thread = const void*;

    /// Shows the `events` descriptor, which it does not own. Throws std::system_error.
    explicit Lookout(int events);
    ~Lookout() { end(); }
    Lookout(const Lookout&) = delete;
    Lookout& operator=(const Lookout&) = delete;

    [[nodiscard]] int fd() const noexcept { return epoll_; }

    /// The calling thread is about to wait for completions.
    void about_to_wait() noexcept {
        waiter_.store(this_thread(), std::memory_order_relaxed);
        looked_in_vain = false;
    }

    /// Of the calling thread: it has looked at the ports, and nothing was there, since it was about to wait.
    static thread_local bool looked_in_vain;

    /// Closes the descriptor; later calls do nothing.
    void end() noexcept;

    /// Shows `ports`, an epoll descriptor, too. False where that is not possible.
    [[nodiscard]] bool show(int ports) noexcept;
    void hide(int ports) noexcept;

    [[nodiscard]] static Thread this_thread() noexcept { return &looked_in_vain; }
    /// Who has waited last; NULL: nobody has.
    [[nodiscard]] Thread waiter() const noexcept { return waiter_.load(std::memory_order_relaxed); }

private:
    std::mutex mutex_;
    int epoll_;
    bool ended_ = false;
    std::atomic<Thread> waiter_{nullptr};
};

}  // namespace ovsdr::soft
