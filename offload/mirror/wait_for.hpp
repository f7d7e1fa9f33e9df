// Waits for a descriptor, for a time, or until somebody says stop.
//
// Threads: any.
#pragma once

#include <poll.h>

#include <cerrno>
#include <chrono>

namespace ovsdr::mirror {

/// 0 when `descriptor` is ready for `events`, ETIMEDOUT, ECANCELED when `stop` (-1: nobody) is readable, or poll()'s
/// errno.
inline int wait_for(int descriptor, short events, int stop, std::chrono::steady_clock::time_point end) noexcept {
    for (;;) {
        const auto left =
            std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now()).count();
        if (left <= 0) return ETIMEDOUT;
        pollfd polled[] = {{descriptor, events, 0}, {stop, POLLIN, 0}};
        const int ready = poll(polled, stop < 0 ? 1 : 2, static_cast<int>(left));
        if (ready < 0 && errno != EINTR) return errno;
        if (ready > 0 && stop >= 0 && polled[1].revents != 0) return ECANCELED;
        if (ready > 0 && polled[0].revents != 0) return 0;
    }
}

}  // namespace ovsdr::mirror
