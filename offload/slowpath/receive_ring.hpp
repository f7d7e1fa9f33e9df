// One receive queue of the slow path: posted buffers, the completion queue that tells of filled ones, and the channel
// that wakes whoever waits for them. The receive queue is a raw packet QP's, or a WQ of its own.
//
// Threads: one receiver at a time; the counts from any.
// Source: ibv_create_cq_ex(3), ibv_create_wq(3), ibv_req_notify_cq(3).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "offload/slowpath/buffers.hpp"
#include "offload/slowpath/port_queue.hpp"
#include "offload/slowpath/queue_failure.hpp"
#include "offload/slowpath/verbs_owner.hpp"

namespace ovsdr::slowpath {

class ReceiveRing {
public:
    /// Without a receive queue yet. `failure` outlives the ring.
    [[nodiscard]] static Result<ReceiveRing> create(const PortQueueSpec& spec, QueueFailure& failure);
    /// Makes a receive queue of its own.
    [[nodiscard]] Result<void> make_wq(const PortQueueSpec& spec);
    /// Gives the device all buffers. `qp`: whose own receive queue this is, null for a WQ.
    [[nodiscard]] Result<void> start(ibv_qp* qp);

    [[nodiscard]] ibv_comp_channel* channel() const noexcept { return channel_.get(); }
    [[nodiscard]] ibv_cq* cq() const noexcept { return ibv_cq_ex_to_cq(cq_.get()); }
    [[nodiscard]] ibv_wq* wq() const noexcept { return wq_.get(); }

    /// As PortQueue's.
    [[nodiscard]] std::span<const Frame> receive() noexcept;
    [[nodiscard]] bool arm() noexcept;
    [[nodiscard]] bool found_empty() const noexcept { return found_empty_; }
    /// Takes the wake-up of the last arm(), and what lies in front of it; true if one was another completion queue's.
    /// One that stays behind is taken after a few calls more.
    bool drain_wake_ups(ibv_cq* other) noexcept;

    [[nodiscard]] std::uint64_t received() const noexcept { return __atomic_load_n(&received_, __ATOMIC_RELAXED); }
    [[nodiscard]] std::uint64_t errors() const noexcept { return __atomic_load_n(&errors_, __ATOMIC_RELAXED); }

private:
    static constexpr unsigned looks_for_nothing = 4;

    ReceiveRing(unsigned length, Buffers buffers, QueueFailure& failure);
    int post_returned() noexcept;
    void poll() noexcept;

    unsigned length_;
    Buffers buffers_;   // gone after the queue that uses them
    Owner<ibv_comp_channel> channel_;
    Owner<ibv_cq_ex> cq_;
    Owner<ibv_wq> wq_;
    ibv_qp* qp_ = nullptr;
    QueueFailure* failure_;

    std::array<Frame, batch_length> frames_;
    std::size_t frame_length_ = 0;
    std::vector<std::uint32_t> returned_;   ///< buffers of the frames that were given out last
    bool looked_ahead_ = false;             ///< arm() has frames for the next receive()
    bool frames_came_ = false;              ///< since the last look for wake-ups
    unsigned looks_without_frames_ = 0;
    bool found_empty_ = false;              ///< by the last poll
    std::uint64_t received_ = 0, errors_ = 0;
};

}  // namespace ovsdr::slowpath
