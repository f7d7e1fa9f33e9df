// What the slow path sends of one port: a ring of buffers, and the completions that tell what became of them. The send
// queue is a raw packet QP's.
//
// One completion is asked for per batch. It carries the number of the last send that it covers: a good one says that
// all of those were sent, a failed one that all but the last were, a flushed one says nothing of any, so none counts as
// sent.
//
// Threads: any, serialised by a mutex: this is the slow path.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>

#include "offload/slowpath/buffers.hpp"
#include "offload/slowpath/port_queue.hpp"
#include "offload/slowpath/queue_failure.hpp"
#include "offload/slowpath/verbs_owner.hpp"

namespace ovsdr::slowpath {

class SendRing {
public:
    /// Without a queue pair yet. `channel`, if there is one, is woken when a send fails; `failure` outlives the ring.
    [[nodiscard]] static Result<std::unique_ptr<SendRing>> create(const PortQueueSpec& spec, ibv_comp_channel* channel,
                                                                  QueueFailure& failure);
    /// Asks to be woken when a send fails. Once, before anything else.
    [[nodiscard]] Result<void> start(ibv_qp* qp);

    [[nodiscard]] ibv_cq* cq() const noexcept { return cq_.get(); }

    /// As PortQueue's.
    [[nodiscard]] unsigned transmit(std::span<const std::span<const std::uint8_t>> frames) noexcept;
    [[nodiscard]] std::size_t under_way() noexcept;
    /// Takes the completions there are.
    void reap() noexcept;
    /// sent, send_drops and send_errors.
    [[nodiscard]] QueueStats stats() noexcept;

private:
    SendRing(unsigned length, Buffers buffers, QueueFailure& failure)
        : length_(length), buffers_(std::move(buffers)), failure_(failure) {}
    // With the mutex.
    [[nodiscard]] unsigned send_batch(std::span<const std::span<const std::uint8_t>> frames) noexcept;
    void take_completions() noexcept;
    void credit(const ibv_wc& completion) noexcept;
    [[nodiscard]] std::size_t in_flight() const noexcept { return static_cast<std::size_t>(posted_ - completed_); }

    unsigned length_;
    Buffers buffers_;   // gone after the QP that uses them
    Owner<ibv_cq> cq_;
    ibv_qp* qp_ = nullptr;
    QueueFailure& failure_;

    std::mutex mutex_;
    std::uint64_t posted_ = 0;      ///< sends taken by the device
    std::uint64_t completed_ = 0;   ///< of those, what completions have told of
    QueueStats stats_;
};

}  // namespace ovsdr::slowpath
