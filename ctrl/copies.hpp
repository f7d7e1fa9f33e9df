// The queues for copies of all open devices, and who receives from them.
//
// A device's queues are in the list from its first port on until the device goes. The receiver holds what it found in
// the list until it looks again, and then lets the tender have it: a device that goes waits for nobody, and its queue
// goes a moment later, in the tender's time.
//
// How many copies were lost. The device tells how many it led to a queue, and the queue how many came out of it; what
// is missing waits there or was lost. What is certain is told as lost, and is never taken back: all that is more than
// the queues can hold, and what is missing of that which the device had led up when somebody asked, once the queue has
// been found empty since. So who asks twice, with a moment between, knows all that was lost before the first time.
//
// Threads: add(), remove() and stats() from any; the Receiver's functions by one, the tender's by another one.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "ctrl/copies.h"
#include "offload/slowpath/copy_queue.hpp"

namespace ovsdr::ctrl {

/// A queue of a device for copies and what the receiver found in it.
struct DeviceCopies {
    using Clock = slowpath::CopyQueue::Clock;
    /// Has whoever receives look at the queue once more then, or later.
    using LookLater = std::function<void(Clock::time_point)>;

    /// Received from by the receiver of dr_copies.
    explicit DeviceCopies(std::shared_ptr<slowpath::CopyQueue> opened);
    /// By somebody else.
    DeviceCopies(std::shared_ptr<slowpath::CopyQueue> opened, LookLater later) noexcept
        : queue(std::move(opened)), look_later(std::move(later)) {}

    const std::shared_ptr<slowpath::CopyQueue> queue;
    const LookLater look_later;
    std::atomic<std::uint64_t> without_work = 0;   ///< copies that came after their megaflows had gone

    /// What a report found that is still to be settled.
    struct Question {
        std::uint64_t led;
        Clock::time_point when;
    };
    /// What reports know, whoever asks for them.
    struct Seen {
        std::uint64_t lost = 0;
        std::optional<Question> question{};
    };
    std::mutex seen_mutex;
    Seen seen;
    /// Of the receiver of dr_copies.
    std::atomic<Clock::time_point> look_again{Clock::time_point{}};
};

/// Of a queue, in frames: what the device has led to it is done, lost, waiting, an error or without work.
struct CopyReport {
    std::uint64_t led = 0, done = 0, lost = 0, waiting = 0, errors = 0, without_work = 0, restarts = 0;
};
[[nodiscard]] CopyReport operator+(const CopyReport& left, const CopyReport& right) noexcept;
[[nodiscard]] CopyReport report_of(DeviceCopies& copies);

class CopyQueues {
public:
    CopyQueues() noexcept;

    void add(std::shared_ptr<DeviceCopies> copies);
    void remove(const DeviceCopies& copies) noexcept;
    /// The receiver looks at the queues: one of them has something to do that is no copy.
    void wake_receiver() const noexcept;
    void wake_tender() const noexcept;
    /// The tender destroys them, if nobody else has them.
    void let_go(std::vector<std::shared_ptr<DeviceCopies>> queues);
    [[nodiscard]] std::vector<std::shared_ptr<DeviceCopies>> take_let_go() noexcept;

    [[nodiscard]] std::vector<std::shared_ptr<DeviceCopies>> all() const;
    /// Another number: all() may be other ones.
    [[nodiscard]] unsigned version() const noexcept { return version_; }
    [[nodiscard]] int receiver_fd() const noexcept { return receiver_fd_; }
    [[nodiscard]] int tender_fd() const noexcept { return tender_fd_; }

private:
    mutable std::mutex mutex_;
    std::vector<std::shared_ptr<DeviceCopies>> queues_;
    std::vector<std::shared_ptr<DeviceCopies>> let_go_;
    std::atomic<unsigned> version_ = 0;   ///< counted when queues_ has been changed
    int receiver_fd_, tender_fd_;
};

/// Of this process. Never destroyed: the receiver has no end.
[[nodiscard]] CopyQueues& copy_queues();

}  // namespace ovsdr::ctrl
