// One worker's share of the RoCE transport: the queue pairs that it executes, their packets, their timers.
//
// Model. In each turn of its worker the engine takes what doorbells rang for, what timers ran out, and what packets
// came (the inbox), and then lets each queue pair that has something to send send a batch, one after another. A turn
// with nothing to do costs a few loads.
//
// Control. Queue pairs change (states, attributes, birth and death) under the engine's lock, which a turn holds: see
// Engine::Control. A worker that finds someone waiting lets them go first.
//
// Timers. Each queue pair has one next deadline. The heap has at least one entry no later than it; entries that are out
// of date are thrown away when they come up.
//
// Polled queues (QueuePairSpec::polled) are looked at in each turn, and when polled_doorbell.hpp says.
//
// Threads: post(), ring() from any thread; run() and deadline() from the worker.
#pragma once

#include <rte_ring.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "datapath/packet.hpp"
#include "datapath/ports/nic.hpp"
#include "datapath/rdma/completion/polled_doorbell.hpp"

namespace ovsdr::soft::roce {

class Transport;
class Pair;

class Engine {
public:
    static constexpr unsigned inbox_length = 2048;

    Engine(Transport& transport, unsigned worker, std::uint32_t own_sqn);
    ~Engine();
    Engine(const Engine&) = delete;
    Engine& operator=(const Engine&) = delete;

    /// Holds the engine's lock.
    class Control {
    public:
        explicit Control(Engine& engine) : engine_(engine) {
            engine_.waiting_.fetch_add(1, std::memory_order_relaxed);
            engine_.mutex_.lock();
            engine_.waiting_.fetch_sub(1, std::memory_order_relaxed);
        }
        ~Control() { engine_.mutex_.unlock(); }
        Control(const Control&) = delete;
        Control& operator=(const Control&) = delete;

    private:
        Engine& engine_;
    };

    // Under Control.
    void add(Pair& pair);
    void remove(Pair& pair) noexcept;
    [[nodiscard]] Pair* find(std::uint32_t qpn) noexcept {
        const auto found = pairs_.find(qpn);
        return found == pairs_.end() ? nullptr : found->second;
    }

    // Under Control or in a turn.
    void schedule(Pair& pair) noexcept;
    /// Its doorbell record is looked at from now on. Under Control.
    void poll(Pair& pair);
    /// A polled queue has begun to take posts: it is looked at often for a while.
    void look_closely() noexcept { polled_doorbells_.expect(); }
    /// The pair's deadline may have become earlier.
    void arm(Pair& pair, std::uint64_t deadline) noexcept;

    /// A packet for a queue pair of this engine; takes ownership. false: the inbox is full, the packet stays the
    /// caller's.
    [[nodiscard]] bool post(rte_mbuf* packet) noexcept;
    /// Packets that the inbox has room for.
    [[nodiscard]] unsigned room() const noexcept { return rte_ring_free_count(inbox_); }
    /// Wakes the worker.
    void wake() noexcept;
    /// The pair's doorbell rang.
    void ring(Pair& pair) noexcept;
    /// A frame to send as it is; takes ownership.
    void post_frame(rte_mbuf* frame) noexcept;

    [[nodiscard]] unsigned worker() const noexcept { return worker_; }
    [[nodiscard]] Transport& transport() noexcept { return transport_; }

    /// Returns when the doorbells that have rung are answered, and what they told of has been sent or waits for its
    /// peer; at the latest after two turns of the worker that had something to do, or a second. Any thread but the
    /// worker.
    void settle() noexcept;

    [[nodiscard]] unsigned run(const Outlet& outlet, std::uint64_t now) noexcept;
    [[nodiscard]] std::uint64_t deadline(std::uint64_t now) noexcept;

private:
    struct Timer {
        std::uint64_t deadline;
        std::uint32_t qpn;
        friend bool operator>(const Timer& left, const Timer& right) noexcept { return left.deadline > right.deadline; }
    };

    [[nodiscard]] bool idle(std::uint64_t now) const noexcept;
    unsigned answer_doorbells() noexcept;
    unsigned look_at_polled(std::uint64_t now) noexcept;
    unsigned run_timers(std::uint64_t now) noexcept;
    unsigned receive(std::uint64_t now) noexcept;
    unsigned send(const Outlet& outlet, std::uint64_t now) noexcept;
    unsigned send_frames(const Outlet& outlet) noexcept;

    Transport& transport_;
    const unsigned worker_;
    const std::uint32_t own_sqn_;
    rte_ring* inbox_;
    rte_ring* frames_;
    std::atomic<Pair*> rung_{nullptr};
    std::atomic<unsigned> waiting_{0};
    std::mutex mutex_;

    // Under mutex_.
    std::unordered_map<std::uint32_t, Pair*> pairs_;
    std::vector<Pair*> polled_;
    std::vector<Timer> timers_;  ///< a heap, the earliest first
    Pair* first_active_ = nullptr;
    Pair* last_active_ = nullptr;
    unsigned turns_ = 0;  ///< that had something to do
    PolledDoorbell polled_doorbells_;
    // Written under mutex_, read by the worker without it.
    std::atomic<bool> has_active_{false}, has_polled_{false};
    std::atomic<std::uint64_t> next_timer_{Service::never};
};

}  // namespace ovsdr::soft::roce
