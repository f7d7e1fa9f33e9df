// The packets' side of a vport: what workers touch for every batch.
//
// Towards the vport, steering calls the sink, which checks state and MTU and sends on the port. From the vport, the
// worker that owns a receive queue receives a batch, counts it and gives it to its Lane. Settings are single atomics
// that a control thread stores and workers load; counters have one cache line set per worker.
//
// Several workers may have packets for one port. Each has a send queue of its own where the port has as many, and then
// nothing is shared. Where workers share a send queue, a batch is sent under a lock of the queue. (A ring to the owning
// worker would cost every batch a hand-over and a wake-up, the lock costs only those that meet.) A full port is waited
// for while it takes packets; one that takes none, a guest that hangs, holds up nobody else's.
#pragma once

#include <rte_spinlock.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "datapath/capture/capture.hpp"
#include "datapath/packet.hpp"
#include "datapath/ports/nic.hpp"
#include "datapath/ports/port.hpp"
#include "datapath/vport_id.hpp"

namespace ovsdr::soft {

class VportPath {
public:
    /// `id`: of the vport that packets come from; two paths may share it. `workers`: their number. `look`: has somebody
    /// look at the port's link soon; from workers, must not wait. Down, without a port at first.
    VportPath(VportId id, unsigned workers, std::function<void()> look = [] {});
    VportPath(const VportPath&) = delete;
    VportPath& operator=(const VportPath&) = delete;

    [[nodiscard]] VportId id() const noexcept { return id_; }

    /// For Steering::attach(). Works in every state: what cannot be sent is counted.
    [[nodiscard]] Sink sink() noexcept;

    /// The port to use from now on; nullptr for none. Before a port dies: bind(nullptr), then Steering::synchronize(),
    /// and no worker may call receive(). Threads: one at a time.
    void bind(const Port* port) noexcept;

    void set_admin_up(bool up) noexcept { set_state(admin_up, up); }
    void set_link_up(bool up) noexcept { set_state(link_up, up); }

    /// Whether what it is given can leave: it has a port, whose link is up, and is not administratively down.
    /// Threads: any.
    [[nodiscard]] bool usable() const noexcept { return state_.load(std::memory_order_acquire) == ready; }

    /// Frames of up to the MTU plus an Ethernet header and two VLAN tags pass.
    void set_mtu(std::uint16_t mtu) noexcept;

    /// Who captures from now on; nullptr for nobody. No worker uses the list of before once Steering::synchronize()
    /// has returned.
    void set_captures(const CaptureList* captures) noexcept { captures_.store(captures, std::memory_order_release); }

    /// Counts frames to the slow protocols' address (LACP) that come from this vport. Set before the first packet.
    void watch_slow_protocols() noexcept { watch_slow_protocols_ = true; }

    /// Receives a batch from one of the port's queues and steers it; returns how many packets there were. A port must
    /// be bound. Threads: the worker that owns the queue.
    unsigned receive(unsigned worker, unsigned queue, Lane& lane) noexcept;

    /// Counts packets that the vport's owner has sent by another way than a port: the manager's send queues.
    void count_sent(unsigned worker, std::uint64_t packets, std::uint64_t bytes) noexcept;

    /// Sums over workers; overruns are the port's to tell. Threads: any.
    [[nodiscard]] VportCounters counters() const noexcept;
    [[nodiscard]] std::uint64_t slow_protocol_frames() const noexcept;

    /// Packets that the calling thread has given to ports.
    static thread_local std::uint64_t delivered;

private:
    enum State : std::uint8_t { admin_up = 1, link_up = 2, has_port = 4, ready = 7 };

    // Written by one worker, read by any thread.
    class Counter {
    public:
        void add(std::uint64_t value) noexcept {
            value_.store(value_.load(std::memory_order_relaxed) + value, std::memory_order_relaxed);
        }
        [[nodiscard]] std::uint64_t value() const noexcept { return value_.load(std::memory_order_relaxed); }

    private:
        std::atomic<std::uint64_t> value_{0};
    };

    struct alignas(64) Cells {
        Counter received_packets, received_bytes, sent_packets, sent_bytes;
        Counter receive_drops, send_drops, oversize, down, slow_protocols;
    };

    // Of a send queue. As many as there are workers: no more are used.
    struct alignas(64) Sending {
        rte_spinlock_t lock = RTE_SPINLOCK_INITIALIZER;
        unsigned patience = 0;  ///< pauses that the queue may still be waited for; its user's
    };

    void set_state(State bit, bool on) noexcept;
    [[nodiscard]] bool link_has_come_up() noexcept;
    void link_is_evident() noexcept;
    void deliver(unsigned worker, rte_mbuf** packets, unsigned length) noexcept;
    unsigned send(unsigned worker, rte_mbuf** packets, unsigned length) noexcept;
    unsigned drop_oversize(Cells& cells, rte_mbuf** packets, unsigned length) noexcept;
    [[nodiscard]] std::uint64_t sum(Counter Cells::*counter) const noexcept;

    const VportId id_;
    const unsigned workers_;
    const std::function<void()> look_;
    std::atomic<std::uint8_t> state_{0};
    std::atomic<const CaptureList*> captures_{nullptr};
    std::atomic<std::uint64_t> link_asked_{0};  ///< when, in cycles
    const Port* port_ = nullptr;                ///< this and what follows of it: valid while has_port is set
    std::span<const PortReceiveQueue> receive_queues_;
    std::span<const PortSendQueue> send_queues_;
    bool locks_ = false;  ///< workers may meet at a send queue
    bool may_exceed_mtu_ = false;
    bool watch_slow_protocols_ = false;
    std::atomic<std::uint32_t> largest_frame_{1522};
    std::unique_ptr<Cells[]> cells_;
    std::unique_ptr<Sending[]> sending_;
};

}  // namespace ovsdr::soft
