// The queues for copies of all open devices, and who receives from them.
//
// A device's queues are in the list from its first port on until the device goes. The receiver holds what it found in
// the list until it looks again: a device that goes waits for nobody, and its queue goes a moment later.
//
// Threads: add(), remove() and stats() from any; the Receiver's functions by one.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "ctrl/copies.h"
#include "offload/slowpath/copy_queue.hpp"

namespace ovsdr::ctrl {

/// A queue of a device for copies and what the receiver found in it.
struct DeviceCopies {
    explicit DeviceCopies(std::shared_ptr<slowpath::CopyQueue> opened) noexcept : queue(std::move(opened)) {}

    const std::shared_ptr<slowpath::CopyQueue> queue;
    std::atomic<std::uint64_t> without_work = 0;   ///< copies that came after their megaflows had gone

    /// What reports know, whoever asks for them.
    struct Seen {
        std::uint64_t led = 0, taken = 0;
        std::uint64_t lost = 0;   ///< never less than before: it is a counter to whoever reads it
        std::chrono::steady_clock::time_point since{};   ///< `led` and `taken` have been as they are
    };
    std::mutex seen_mutex;
    Seen seen;
};

class CopyQueues {
public:
    CopyQueues() noexcept;

    void add(std::shared_ptr<DeviceCopies> copies);
    void remove(const DeviceCopies& copies) noexcept;
    /// The receiver looks at the queues: one of them has something to do that is no copy.
    void wake() const noexcept;

    [[nodiscard]] std::vector<std::shared_ptr<DeviceCopies>> all() const;
    /// Another number: all() may be other ones.
    [[nodiscard]] unsigned version() const noexcept { return version_; }
    [[nodiscard]] int wake_fd() const noexcept { return wake_fd_; }

private:
    mutable std::mutex mutex_;
    std::vector<std::shared_ptr<DeviceCopies>> queues_;
    std::atomic<unsigned> version_ = 0;   ///< counted when queues_ has been changed
    int wake_fd_;
};

/// Of this process. Never destroyed: the receiver has no end.
[[nodiscard]] CopyQueues& copy_queues();

}  // namespace ovsdr::ctrl
