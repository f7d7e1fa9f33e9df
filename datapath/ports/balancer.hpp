// Measures what workers and receive queues cost, and moves queues from a worker that is saturated to one that has room,
// as placement.hpp decides. One for the NIC: devices share the workers.
//
// Threads: the control thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "datapath/ports/placement.hpp"
#include "datapath/ports/soft_device.hpp"
#include "datapath/ports/worker.hpp"

namespace ovsdr::soft {

class Balancer {
public:
    using Clock = std::chrono::steady_clock;
    static constexpr auto period = std::chrono::seconds(2);

    /// Both outlive it. `moves` false: it measures only.
    Balancer(const std::vector<std::unique_ptr<SoftDevice>>& devices, const SoftDevice::Workers& workers, bool moves);

    /// Does what is due; returns when it wants to be called again.
    Clock::time_point tick(Clock::time_point now);

    /// A queue was moved by hand: it stays there for a while.
    void moved(const QueueLoad& load) { rebalancer_.moved(&load); }

private:
    void measure_and_move();

    const std::vector<std::unique_ptr<SoftDevice>>& devices_;
    const SoftDevice::Workers& workers_;
    const bool moves_;
    Rebalancer rebalancer_;
    std::uint64_t measured_ = 0;              ///< when, in cycles
    std::vector<Worker::Statistics> before_;  ///< of each worker, then
    std::map<const QueueLoad*, std::uint64_t> cycles_;
    Clock::time_point next_{};
};

}  // namespace ovsdr::soft
