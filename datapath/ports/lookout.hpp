// What an application's thread sleeps on: the descriptor of a completion channel, which for a while also shows that
// packets wait at the NIC's ports (deputy.hpp).
//
// It may then be readable though no completion has come: only a descriptor in non-blocking mode, whose owner has met
// that before, ever shows ports. The descriptor is an epoll's. An application that nests it into epolls of its own has
// two levels fewer than with hardware.
//
// Threads: any; but wakes_wanted is the worker's. Nobody uses the descriptor once end() has returned, though others
// hold the object.
#pragma once

#include <atomic>
#include <cstdint>
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

    // What the application does.
    /// The calling thread is about to wait for completions.
    void about_to_wait() noexcept {
        waiter_.store(this_thread(), std::memory_order_relaxed);
        waits_.store(true, std::memory_order_relaxed);
        if (found_nothing_.load(std::memory_order_relaxed)) copes_.store(true, std::memory_order_relaxed);
        in_vain_until = 0;
    }
    /// The calling thread looks for completions, not only right behind about_to_wait().
    void looks() noexcept {
        if (waiter() != this_thread()) return;
        waits_.store(false, std::memory_order_relaxed);
        looks_.store(true, std::memory_order_relaxed);
    }
    /// Somebody has looked for an event where there was none, and was told so.
    void found_nothing() noexcept { found_nothing_.store(true, std::memory_order_relaxed); }
    /// Closes the descriptor; later calls do nothing.
    void end() noexcept;

    // What the worker does.
    /// Shows `ports`, an epoll descriptor, too. False where that is not possible.
    [[nodiscard]] bool show(int ports) noexcept;
    void hide(int ports) noexcept;
    /// Who has waited last; NULL: nobody has.
    [[nodiscard]] Thread waiter() const noexcept { return waiter_.load(std::memory_order_relaxed); }
    [[nodiscard]] bool is_waiting() const noexcept { return waits_.load(std::memory_order_relaxed); }
    /// Whether a packet at a port would have that thread look for it.
    [[nodiscard]] bool will_come() const noexcept {
        return looks_.load(std::memory_order_relaxed) && copes_.load(std::memory_order_relaxed);
    }
    static constexpr unsigned fewest_wakes_wanted = 4, most_wakes_wanted = 1024;
    /// In a row, before the thread is the worker's deputy.
    unsigned wakes_wanted = fewest_wakes_wanted;

    [[nodiscard]] static Thread this_thread() noexcept { return &in_vain_until; }
    /// Of the calling thread, in cycles: it has looked at the ports, and nothing was there. Until then, until it is
    /// about to wait or takes a completion, it need not look again.
    static thread_local std::uint64_t in_vain_until;

private:
    std::mutex mutex_;
    int epoll_;
    bool ended_ = false;
    std::atomic<Thread> waiter_{nullptr};
    std::atomic<bool> waits_{false}, looks_{false}, found_nothing_{false}, copes_{false};
};

}  // namespace ovsdr::soft
