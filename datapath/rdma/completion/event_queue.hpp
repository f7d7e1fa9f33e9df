// Events for an application behind a file descriptor: completion events, asynchronous events, DEVX events.
//
// Model. One unit of an eventfd in semaphore mode stands for one event, so poll(), O_NONBLOCK and a blocking read
// behave as on the kernel's descriptors; the events themselves wait in a queue. A unit without an event (its event was
// removed together with its object) is swallowed by the next pop().
//
// Threads: any function from any thread. The queue must outlive all of them.
// Source: ibv_get_cq_event(3), ibv_get_async_event(3), eventfd(2).
#pragma once

#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <deque>
#include <mutex>
#include <system_error>

namespace ovsdr::soft {

template <typename Event>
class EventQueue {
public:
    /// Throws std::system_error when there is no descriptor left.
    EventQueue() : fd_(eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC)) {
        if (fd_ < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
    }
    ~EventQueue() { close(fd_); }
    EventQueue(const EventQueue&) = delete;
    EventQueue& operator=(const EventQueue&) = delete;

    [[nodiscard]] int fd() const noexcept { return fd_; }

    void push(const Event& event) {
        {
            std::lock_guard guard(mutex_);
            events_.push_back(event);
        }
        const std::uint64_t one = 1;
        // An eventfd's counter cannot overflow here: every unit stands for an event in memory.
        [[maybe_unused]] const ssize_t written = write(fd_, &one, sizeof one);
    }

    /// As push(), but does nothing and returns false where an event that `same` accepts waits already.
    template <typename Same>
    bool push_unless(const Event& event, Same same) {
        {
            std::lock_guard guard(mutex_);
            if (std::any_of(events_.begin(), events_.end(), same)) return false;
        }
        push(event);
        return true;
    }

    /// Takes the oldest event; `taken` runs under the queue's lock, so that remove_if() is before it or after it.
    /// EAGAIN for a descriptor in non-blocking mode, or where nobody `waits`; EINTR, or the errno of read(2).
    template <typename Taken>
    [[nodiscard]] int pop(Event& event, Taken taken, bool waits = true) {
        for (;;) {
            std::uint64_t unit = 0;
            iovec buffer{&unit, sizeof unit};
            if (preadv2(fd_, &buffer, 1, -1, waits ? 0 : RWF_NOWAIT) != sizeof unit) return errno ? errno : EIO;
            std::lock_guard guard(mutex_);
            if (events_.empty()) continue;
            event = events_.front();
            events_.pop_front();
            taken(event);
            return 0;
        }
    }

    /// Takes the oldest event if `wanted` accepts it; ENOSPC where it does not, and the event stays.
    template <typename Wanted>
    [[nodiscard]] int pop_if(Event& event, Wanted wanted) {
        for (;;) {
            std::uint64_t unit = 0;
            if (read(fd_, &unit, sizeof unit) != sizeof unit) return errno ? errno : EIO;
            std::lock_guard guard(mutex_);
            if (events_.empty()) continue;
            if (!wanted(events_.front())) {
                [[maybe_unused]] const ssize_t written = write(fd_, &unit, sizeof unit);
                return ENOSPC;
            }
            event = events_.front();
            events_.pop_front();
            return 0;
        }
    }

    [[nodiscard]] int pop(Event& event) {
        return pop(event, [](const Event&) {});
    }

    /// Forgets events, for an object that goes away.
    template <typename Predicate>
    void remove_if(Predicate predicate) {
        std::lock_guard guard(mutex_);
        const std::size_t removed = std::erase_if(events_, predicate);
        for (std::size_t i = 0; i < removed; ++i) {
            std::uint64_t unit = 0;
            iovec buffer{&unit, sizeof unit};
            // Never waits: a reader may have taken the unit already and will swallow it.
            if (preadv2(fd_, &buffer, 1, -1, RWF_NOWAIT) < 0) break;
        }
    }

private:
    int fd_;
    std::mutex mutex_;
    std::deque<Event> events_;
};

}  // namespace ovsdr::soft
