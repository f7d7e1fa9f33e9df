// "Something has changed", for the main loop, which asks each time and sleeps on a descriptor.
//
// To ask costs no system call where nothing was announced.
//
// Threads: any; one takes.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

namespace ovsdr {

class Announcement {
public:
    Announcement() noexcept : fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}
    ~Announcement() { close(fd_); }
    Announcement(const Announcement&) = delete;
    Announcement& operator=(const Announcement&) = delete;

    /// Readable until what was announced is taken.
    [[nodiscard]] int fd() const noexcept { return fd_; }

    void announce() noexcept {
        const std::uint64_t one = 1;
        // A full counter means that the main loop has been told already.
        [[maybe_unused]] const auto written = write(fd_, &one, sizeof one);
        made_.store(true, std::memory_order_release);   // behind it: whoever sees it finds the descriptor readable
    }

    /// Whether there was one since the last call.
    [[nodiscard]] bool take() noexcept {
        if (!made_.load(std::memory_order_relaxed) || !made_.exchange(false, std::memory_order_acq_rel)) return false;
        std::uint64_t count;
        // It fails where two announcements were read at once, and the second one says so only now.
        return read(fd_, &count, sizeof count) == sizeof count;
    }

private:
    const int fd_;
    std::atomic<bool> made_{false};
};

}  // namespace ovsdr
