// Which worker polls which receive queue: where a new one goes, and when one is moved.
//
// Pure decisions, out of loads that somebody else has measured (balancer.hpp). A load is a share of one worker's time:
// 0.5 is half a processor.
//
// A new queue goes where its port has the fewest, then to the worker with the least load, then to the one with the
// fewest queues. Loads count in tenths: below that they are chance.
//
// A queue is moved from a worker that has been saturated for some periods to the one with the least load, if that has
// room for it and the larger of the two loads becomes clearly smaller. What a saturated worker's queues would take if
// they could is not known, so a move shows only afterwards what it was worth: after one the loads are left to settle,
// and a queue that was moved stays for a minute. So a queue never goes back and forth.
//
// OVS decides similarly for its PMD threads (pmd-auto-lb).
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <vector>

namespace ovsdr::soft {

struct WorkerLoad {
    double busy = 0;        ///< share of its time that it spends on packets
    unsigned queues = 0;    ///< receive queues that it polls
    unsigned siblings = 0;  ///< of them of the port that the new queue belongs to
};

/// The worker for a new queue. There is one at least.
[[nodiscard]] unsigned choose_worker(std::span<const WorkerLoad> workers) noexcept;

struct QueueShare {
    const void* id;   ///< the same in each period
    unsigned worker;  ///< that polls it
    double share;     ///< of that worker's time
};

struct QueueMove {
    std::size_t queue;  ///< its place among the shares
    unsigned to;
};

class Rebalancer {
public:
    // In periods, each a call of consider().
    static constexpr unsigned saturated_for = 3, settling = 5, staying = 30;
    static constexpr double saturated = 0.95;  ///< a load from which on a worker may lose packets
    static constexpr double filled = 0.85;     ///< the most that a worker is given by a move
    static constexpr double least_gain = 0.1;

    /// To be called once a period, with each worker's load over that period. At most one queue is moved.
    [[nodiscard]] std::optional<QueueMove> consider(std::span<const double> busy, std::span<const QueueShare> queues);

    /// Somebody has moved a queue by hand: it stays there for as long as after a move of ours.
    void moved(const void* id) { stays_[id] = staying; }

private:
    void pass_a_period(std::span<const double> busy);

    std::vector<unsigned> saturated_periods_;  ///< in a row, of each worker
    unsigned settling_ = 0;
    std::map<const void*, unsigned> stays_;  ///< periods to go
};

}  // namespace ovsdr::soft
