// Tells a switch that its collector is at work, while the session's thread waits for a disk.
//
// Model. A switch leaves a collector of which it hears nothing. Reading a file or a slow fdatasync() may take longer
// than a switch waits, so that a thread of this class's says something meanwhile. It does so only while the disk gets
// on: where a call has not returned, or nothing has been read, for as long as the rhythm's patience, it falls silent,
// and the switch may go to another collector.
//
// Threads: begin(), progressed() and Busy by the session's; while a Busy is there, nobody but this class uses the
// socket. Errors: std::system_error where there is no thread to be had.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

#include "offload/mirror/message_socket.hpp"

namespace ovsdr::drcollect {

class SignOfLife {
public:
    struct Rhythm {
        std::chrono::milliseconds every{2000};
        std::chrono::milliseconds patience{60'000};   ///< with a disk that does not get on
    };

    /// The disk is waited for as long as it is there.
    class Busy {
    public:
        explicit Busy(SignOfLife& owner) noexcept : owner_(owner) {}
        ~Busy() { owner_.end(); }
        Busy(const Busy&) = delete;
        Busy& operator=(const Busy&) = delete;

    private:
        SignOfLife& owner_;
    };

    SignOfLife(mirror::MessageSocket& socket, Rhythm rhythm);
    ~SignOfLife();
    SignOfLife(const SignOfLife&) = delete;
    SignOfLife& operator=(const SignOfLife&) = delete;

    [[nodiscard]] Busy begin(const mirror::Message& sign);
    /// The disk gets on, which `sign` says from now on. False: the switch has gone.
    [[nodiscard]] bool progressed(const mirror::Message& sign);

private:
    using Clock = std::chrono::steady_clock;

    void end() noexcept;
    void run();

    mirror::MessageSocket& socket_;
    const Rhythm rhythm_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::optional<mirror::Message> sign_;   ///< none: nobody waits for a disk
    Clock::time_point said_{}, progressed_{};
    bool has_gone_ = false, stopping_ = false;
    std::thread thread_;
};

}  // namespace ovsdr::drcollect
