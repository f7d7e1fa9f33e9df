// The slow path of one port: a raw packet QP with its CQs, buffers and rings.
//
// receive() gives frames that no rule took, transmit() sends frames that a source_sqn rule takes to the port's vport.
// The rules themselves are Eswitch::attach_port()'s.
//
// With one receive queue, that of the QP, all that comes up is in there. With several, each is a WQ, and the QP only
// sends; what comes up is spread by flow (spread.hpp).
//
// Failure. A QP that the device moves to the error state stays there: what was received before is given out, everything
// posted comes back flushed, nothing more is posted, and failed() says so. The owner makes another queue
// (attached_port.hpp).
//
// Threads: one receiver of each receive queue at a time; transmit() may be called by several threads at once (a mutex:
// this is the slow path). receive_fd() becomes readable when frames wait, after arm(), and, of the only receive queue,
// when the queue fails.
// Source: ibv_create_qp_ex(3), ibv_post_send(3), ibv_req_notify_cq(3), mlx5dv_init_obj(3) for the SQ number.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "offload/dr/eswitch.hpp"
#include "offload/dr/result.hpp"

struct ibv_context;
struct ibv_pd;
struct ibv_qp;

namespace ovsdr::slowpath {

inline constexpr unsigned batch_length = 32;
inline constexpr unsigned max_receive_queues = 32;

struct PortQueueSpec {
    static constexpr unsigned usual_transmit_length = 512;

    ibv_context* context;
    ibv_pd* pd;
    std::uint32_t ib_port;            ///< of the port's representor: others are refused raw packet QPs by the kernel
    unsigned receive_length = 1024;   ///< frames, a power of two
    unsigned transmit_length = usual_transmit_length;
    unsigned frame_size = 2048;       ///< bytes a buffer holds: at least MTU + 22
    unsigned receive_queues = 1;
};

/// A received frame; `data` is valid until the next receive() or release.
struct Frame {
    const std::uint8_t* data;
    std::uint32_t size;   ///< bytes, without FCS
    std::uint32_t tag;    ///< flow tag of the NIC_RX rule: the FDB table that missed
};

/// In frames.
struct QueueStats {
    std::uint64_t received = 0;         ///< given out
    std::uint64_t receive_errors = 0;   ///< the device could not put them into a buffer
    std::uint64_t sent = 0;             ///< known to have left the send queue
    std::uint64_t send_drops = 0;       ///< ring full, or longer than frame_size
    std::uint64_t send_errors = 0;      ///< taken, and then lost in a queue that failed

    QueueStats& operator+=(const QueueStats& other) noexcept {
        received += other.received;
        receive_errors += other.receive_errors;
        sent += other.sent;
        send_drops += other.send_drops;
        send_errors += other.send_errors;
        return *this;
    }
};

class PortQueue {
public:
    [[nodiscard]] static Result<std::unique_ptr<PortQueue>> create(const PortQueueSpec& spec) noexcept;
    virtual ~PortQueue() = default;

    [[nodiscard]] virtual unsigned receive_queues() const noexcept = 0;
    /// Where packets are led to that come up: those of these kinds there, all others to qp().
    [[nodiscard]] virtual ibv_qp* qp() const noexcept = 0;
    [[nodiscard]] virtual std::span<const dr::QueuePairFor> by_kind() const noexcept = 0;
    [[nodiscard]] virtual std::uint32_t sqn() const noexcept = 0;

    /// At most batch_length frames. Their buffers are posted again by the next receive() or arm() of the same queue.
    [[nodiscard]] virtual std::span<const Frame> receive(unsigned queue) noexcept = 0;
    /// Asks for one wake-up of receive_fd(); false when frames wait already (receive again instead of sleeping).
    [[nodiscard]] virtual bool arm(unsigned queue) noexcept = 0;
    /// The last receive() or arm() of this queue found nothing that had come. By who called it.
    [[nodiscard]] virtual bool found_empty(unsigned queue) const noexcept = 0;
    [[nodiscard]] virtual int receive_fd(unsigned queue) const noexcept = 0;

    /// Copies and posts; returns how many frames were taken. The rest found the ring full or no buffer long enough,
    /// which counts as send_drops, or the queue failed, which counts as send_errors.
    [[nodiscard]] virtual unsigned transmit(std::span<const std::span<const std::uint8_t>> frames) noexcept = 0;

    /// Frames taken and not known to be sent or lost.
    [[nodiscard]] virtual std::size_t sends_under_way() const noexcept = 0;

    [[nodiscard]] virtual bool failed() const noexcept = 0;
    /// What failed() means, for people: "receiving: local length error". Empty while the queue works.
    [[nodiscard]] virtual std::string failure() const = 0;

    [[nodiscard]] virtual QueueStats stats() const noexcept = 0;
};

}  // namespace ovsdr::slowpath
