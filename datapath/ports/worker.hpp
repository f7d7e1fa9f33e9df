// A thread that moves packets: it polls its ports and send queues, and steers what it finds to the end.
//
// What a worker polls is its plan, a value that is replaced as a whole: change() edits a copy, publishes it, wakes the
// worker, and returns when the worker has taken it over. So when change() has removed a port or a queue, the worker
// will not touch it again. A worker that does not run (not yet, or not any more) takes a plan over at once.
//
// When nothing arrives a worker polls on for some ten microseconds and then sleeps, see sleeper.hpp: until a port or
// the doorbell wakes it when each of its ports has something that does, otherwise for 20 µs at first and 500 µs in
// the end. It never sleeps past the deadline of a service.
//
// A thread that posts to a send queue while the worker sleeps takes the worker's turn and steers the packets itself: to
// wake another thread would take longer, and both may want the same CPU. Whoever has the turn is the worker to its
// lanes, ports and queues; the worker gives it away only while it sleeps. Of several workers none does: others would
// wait for a thread that nobody knows, and there are CPUs.
//
// A thread that waits for what packets become may receive in its place too: deputy.hpp.
//
// Threads: change(), posted(), look_out(), ring_doorbell() and statistics() from any thread but a worker; woke() from
// who has a turn; start() and stop() from one.
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

#include "datapath/ports/deputy.hpp"
#include "datapath/ports/lookout.hpp"
#include "datapath/ports/nic.hpp"
#include "datapath/ports/port.hpp"
#include "datapath/ports/sleeper.hpp"
#include "datapath/ports/vport_path.hpp"

namespace ovsdr::soft {

/// What a receive queue costs.
struct alignas(64) QueueLoad {
    std::atomic<std::uint64_t> cycles{0};  ///< of receiving and steering; written by the worker that polls the queue
    std::atomic<double> share{0};          ///< of a worker's time, in the balancer's last period; written by that
};

/// A receive queue of a port.
struct PolledPort {
    VportPath* path;
    unsigned device;  ///< index into the worker's steerings
    Port* port;       ///< whose wake sources are watched; it outlives its place in the plan
    unsigned queue;   ///< of its receive queues
    QueueLoad* load;  ///< as the port
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
        std::uint64_t other_cycles;  ///< of them for send queues and services
        std::uint64_t idle_cycles;  ///< of loops that did not, sleep not included
        std::uint64_t asleep_cycles;
        std::uint64_t sleeps;
    };

    /// `steerings`: one for each device; they outlive the worker. `alone`: there is no other worker.
    Worker(unsigned index, std::vector<Steering*> steerings, std::optional<unsigned> cpu, bool alone);
    ~Worker();
    Worker(const Worker&) = delete;
    Worker& operator=(const Worker&) = delete;

    /// The thread inherits the caller's mask: each signal blocked but those of faults. Throws std::system_error.
    void start();

    /// Ends the thread. change() still works and only edits the plan.
    void stop() noexcept;

    void change(const std::function<void(WorkerPlan&)>& edit);
    void ring_doorbell() noexcept { sleeper_.ring(); }

    /// To be called after each post to the send queue `sqn` of the device: sends in the place of a worker that sleeps,
    /// or sees to it that the worker does.
    void posted(unsigned device, std::uint32_t sqn) noexcept;

    /// To be called by who has a turn: a completion has woken whoever waits behind `lookout`.
    void woke(const std::shared_ptr<Lookout>& lookout) noexcept;
    /// To be called by whoever found no completion: receives in the place of a worker that sleeps, if the calling
    /// thread is its deputy. True when there were packets.
    bool look_out() noexcept { return deputy_.is_this_thread() && receive_in_place(); }

    [[nodiscard]] std::size_t port_count() const;

    /// The share of its time that it spent on packets in the balancer's last period.
    [[nodiscard]] double load() const noexcept { return load_.load(std::memory_order_relaxed); }
    void set_load(double load) noexcept { load_.store(load, std::memory_order_relaxed); }
    [[nodiscard]] Statistics statistics() const noexcept;

private:
    void run();
    void adopt_plan();
    unsigned pass(std::uint64_t begin) noexcept;
    unsigned poll_queue(const PolledQueue& queue) noexcept;
    [[nodiscard]] bool send_in_place(unsigned device, std::uint32_t sqn) noexcept;
    [[nodiscard]] bool may_be_stood_in_for() const noexcept;
    [[nodiscard]] bool is_posted_to_over_and_over() noexcept;
    unsigned serve(const PolledService& polled, std::uint64_t now) noexcept;
    [[nodiscard]] std::chrono::nanoseconds until_next_service() const noexcept;
    bool rest(std::chrono::nanoseconds& nap) noexcept;
    void sleep_behind_deputy() noexcept;
    [[nodiscard]] bool receive_in_place() noexcept;
    void disarm_ports() noexcept;

    const unsigned index_;
    const std::vector<Steering*> steerings_;
    const std::optional<unsigned> cpu_;
    const bool alone_;
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

    // Of whoever has the turn.
    std::mutex turn_;
    std::shared_ptr<const WorkerPlan> current_;
    unsigned lcore_ = 0;              ///< by which DPDK knows the worker's caches
    bool yields_ = true;              ///< it has no priority over those who post
    std::uint64_t stood_in_for_ = 0;  ///< last, in cycles
    unsigned times_in_a_row_ = 0;
    bool all_ports_wake_ = false;
    std::vector<unsigned> port_of_source_;  ///< places in the plan, as the sleeper has the sources
    unsigned received_ = 0;                 ///< by the last pass, from ports
    bool rang_ = false;                     ///< the doorbell ended the last nap
    Deputy deputy_{sleeper_};
    std::vector<std::unique_ptr<Lane>> lanes_;
    std::atomic<std::uint64_t> busy_cycles_{0}, other_cycles_{0}, idle_cycles_{0}, asleep_cycles_{0}, sleeps_{0};

    std::atomic<double> load_{0};
};

}  // namespace ovsdr::soft
