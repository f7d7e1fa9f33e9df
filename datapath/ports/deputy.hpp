// Who receives in a sleeping worker's place: a thread that waits for completions.
//
// A packet that the eSwitch sends up wakes two threads one after the other: the worker, which receives it, and whoever
// waits for its completion. Where what wakes the worker has woken the same waiting thread several times in a row, that
// thread becomes the worker's deputy: the ports wake it by the descriptor that it sleeps on (lookout.hpp), and when it
// finds its completion queue empty it receives. One thread wakes for a packet instead of two.
//
// The worker naps meanwhile: a millisecond, or up to four while nothing comes and the deputy waits. It is on its own
// again
// - when packets wait behind a nap and the deputy has not come, three times in a row,
// - when it is awake for some passes in a row, since there is more to do,
// - when the deputy finds as many at once as a worker takes at a time,
// - when turn after turn of the deputy's finds nothing, forwards packets, or is for another thread,
// - when ports or queues change, and after two seconds without a packet.
// A thread that has not come is asked again only after twice as many wakes.
//
// Only who can be expected to come is appointed: a thread that looks into its completion queue after it was woken, and
// whose descriptor is in non-blocking mode and has once been found without an event; and never with several workers.
//
// Threads: is_this_thread() from any, the rest from who has the worker's turn.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>

#include "datapath/ports/lookout.hpp"
#include "datapath/ports/sleeper.hpp"

namespace ovsdr::soft {

class Deputy {
public:
    explicit Deputy(Sleeper& sleeper) noexcept : sleeper_(sleeper) {}
    ~Deputy() { dismiss(); }
    Deputy(const Deputy&) = delete;
    Deputy& operator=(const Deputy&) = delete;

    [[nodiscard]] bool appointed() const noexcept { return lookout_ != nullptr; }
    [[nodiscard]] bool is_this_thread() const noexcept {
        return thread_.load(std::memory_order_relaxed) == Lookout::this_thread();
    }

    /// What was received in this turn has woken whoever waits behind `lookout`.
    void woke(const std::shared_ptr<Lookout>& lookout) noexcept { woken_ = lookout; }

    /// The worker is about to sleep.
    void forget_woken() noexcept { woken_.reset(); }

    /// What the worker has found in a pass.
    struct Pass {
        unsigned received;   ///< packets from ports, at least one
        bool forwarded;      ///< some of them went to ports; where it has slept
        bool slept;          ///< behind a sleep
        bool rang;           ///< which the doorbell ended
        bool may_be_stood_in_for;
    };
    void worker_passed(const Pass& pass) noexcept;

    /// How the deputy's turn went. False: it was its last, and the worker must wake.
    [[nodiscard]] bool took_turn(unsigned received, bool forwarded) noexcept;

    /// How long the worker may nap. The first of several in a row says so.
    [[nodiscard]] std::chrono::nanoseconds begin_nap(bool first) noexcept;
    /// Whether it may go on napping: nothing is left to the worker.
    [[nodiscard]] bool end_nap(bool rang) noexcept;

    void dismiss() noexcept;

private:
    void appoint(const std::shared_ptr<Lookout>& lookout) noexcept;
    void missed() noexcept;

    Sleeper& sleeper_;
    std::atomic<Lookout::Thread> thread_{nullptr};

    // Before one is appointed.
    std::shared_ptr<Lookout> woken_;  ///< by what was received last
    Lookout::Thread woken_thread_ = nullptr;
    unsigned wakes_ = 0;              ///< in a row, for that thread

    std::shared_ptr<Lookout> lookout_;  ///< the deputy's; NULL: there is none
    std::uint64_t turns_ = 0;           ///< that found something
    std::uint64_t turns_before_nap_ = 0;
    unsigned turns_missed_ = 0, turns_for_nothing_ = 0, passes_awake_ = 0;
    std::chrono::nanoseconds nap_{}, quiet_{};
};

}  // namespace ovsdr::soft
