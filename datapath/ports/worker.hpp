// A thread that moves packets: it polls its ports and send queues, and steers what it finds to the end.
//
// What a worker polls is its plan, a value that is replaced as a whole: change() edits a copy, publishes it, wakes the
// worker, and returns when the worker has taken it over. So when change() has removed a port or a queue, the worker
// will not touch it again. A worker that does not run (not yet, or not any more) takes a plan over at once.
//
// When nothing arrives a worker polls on for some ten microseconds and then sleeps, see sleeper.hpp: until a port or
// the doorbell wakes it when each of its ports has something that does, otherwise for 20 µs at first and 500 µs in the
// end. It never sleeps past the deadline of a service.
//
// Threads: change(), ring_doorbell() and statistics() from any thread but a worker; start() and stop() from one.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "datapath/ports/nic.hpp"
#include "datapath/ports/port.hpp"
#include "datapath/ports/sleeper.hpp"
#include "datapath/ports/vport_path.hpp"

namespace ovsdr::soft {

struct PolledPort {
    VportPath* path;
    unsigned device;  ///< index into the worker's steerings
    Port* port;       ///< whose wake sources are watched; it outlives its place in the plan
};

struct PolledQueue {
    SendSource source;
    unsigned device;
    VportPath* manager;  ///< counts what the queue sends
};

struct PolledService {
    Service service;
    unsigned device;
    VportPath* manager;
};

struct WorkerPlan {
    std::vector<PolledPort> ports;
    std::vector<PolledQueue> queues;
    std::vector<PolledService> services;
};

class Worker {
public:
    struct Statistics {
        std::uint64_t busy_cycles;  ///< of loops that found something
        std::uint64_t idle_cycles;  ///< of loops that did not, sleep not included
        std::uint64_t asleep_cycles;
        std::uint64_t sleeps;
    };

    /// `steerings`: one for each device; they outlive the worker.
    Worker(unsigned index, std::vector<Steering*> steerings, std::optional<unsigned> cpu);
    ~Worker();
    Worker(const Worker&) = delete;
    Worker& operator=(const Worker&) = delete;

    /// The thread inherits the caller's mask: each signal blocked but those of faults. Throws std::system_error.
    void start();

    /// Ends the thread. change() still works and only edits the plan.
    void stop() noexcept;

    void change(const std::function<void(WorkerPlan&)>& edit);
    void ring_doorbell() noexcept { sleeper_.ring(); }

    [[nodiscard]] std::size_t port_count() const;
    [[nodiscard]] Statistics statistics() const noexcept;

private:
    void run();
    void adopt_plan();
    unsigned pass() noexcept;
    unsigned poll_queue(const PolledQueue& queue) noexcept;
    unsigned serve(const PolledService& polled, std::uint64_t now) noexcept;
    [[nodiscard]] std::chrono::nanoseconds until_next_service() const noexcept;
    bool rest(std::chrono::nanoseconds& nap) noexcept;
    void disarm_ports() noexcept;

    const unsigned index_;
    const std::vector<Steering*> steerings_;
    const std::optional<unsigned> cpu_;
    Sleeper sleeper_;

    mutable std::mutex mutex_;  ///< guards the plan and what follows
    std::condition_variable adopted_;
    std::shared_ptr<const WorkerPlan> plan_ = std::make_shared<WorkerPlan>();
    bool running_ = false;
    std::uint64_t adopted_version_ = 0;
    std::uint64_t version_ = 0;
    std::atomic<bool> plan_changed_{false};
    std::atomic<bool> stop_{false};
    std::thread thread_;

    // The worker's own.
    std::shared_ptr<const WorkerPlan> current_;
    bool all_ports_wake_ = false;
    std::vector<std::unique_ptr<Lane>> lanes_;
    std::atomic<std::uint64_t> busy_cycles_{0}, idle_cycles_{0}, asleep_cycles_{0}, sleeps_{0};
};

}  // namespace ovsdr::soft
