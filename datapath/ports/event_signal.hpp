// Adds to eventfds that somebody else has, too, and never sleeps.
//
// O_NONBLOCK belongs to the open file, which a peer that we have the eventfd of, or that has ours, may change at any
// time; with a counter that it has filled, write() would sleep for as long as it likes. The kernel's own signals do not
// sleep: a request of its asynchronous I/O that is complete at once adds to an eventfd as it ends.
//
// Where the kernel has no asynchronous I/O for us (fs.aio-max-nr, a filter of system calls) or refuses such a request,
// it is write() after all.
//
// Threads: a value, of one thread.
#pragma once

#include <linux/aio_abi.h>

namespace ovsdr::soft {

class EventSignal {
public:
    EventSignal() noexcept;
    ~EventSignal();
    EventSignal(const EventSignal&) = delete;
    EventSignal& operator=(const EventSignal&) = delete;

    /// Wakes whoever waits for `event`, an eventfd.
    void wake(int event) noexcept;
    /// False: it may sleep.
    [[nodiscard]] bool never_sleeps() const noexcept { return context_ != 0 && ready_ >= 0; }

private:
    [[nodiscard]] bool submit(int event) noexcept;

    aio_context_t context_ = 0;
    int ready_ = -1;   ///< can always be read: to wait for that is to have it at once
};

}  // namespace ovsdr::soft
