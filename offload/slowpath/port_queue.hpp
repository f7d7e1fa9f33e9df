// The slow path of one port: a raw packet QP with its CQs, buffers and rings.
//
// receive() gives frames that no rule took, transmit() sends frames that a source_sqn rule takes to the port's vport.
// The rules themselves are Eswitch::attach_port()'s.
//
// Threads: one receiver at a time; transmit() may be called by several threads at once (a mutex: this is the slow path).
// receive_fd() becomes readable when frames wait, after arm().
// Source: ibv_create_qp_ex(3), ibv_req_notify_cq(3), mlx5dv_init_obj(3) for the SQ number.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "offload/dr/result.hpp"

struct ibv_context;
struct ibv_pd;
struct ibv_qp;

namespace ovsdr::slowpath {

inline constexpr unsigned batch_length = 32;

struct PortQueueSpec {
    ibv_context* context;
    ibv_pd* pd;
    unsigned receive_length = 1024;   ///< frames, a power of two
    unsigned transmit_length = 1024;
    unsigned frame_size = 2048;       ///< bytes a buffer holds: at least MTU + 22
};

/// A received frame; `data` is valid until the next receive() or release.
struct Frame {
    const std::uint8_t* data;
    std::uint32_t size;   ///< bytes, without FCS
    std::uint32_t tag;    ///< flow tag of the NIC_RX rule: the FDB table that missed
};

struct QueueStats {
    std::uint64_t received, receive_errors;
    std::uint64_t sent, send_drops;   ///< ring full, or longer than frame_size

    QueueStats& operator+=(const QueueStats& other) noexcept {
        received += other.received;
        receive_errors += other.receive_errors;
        sent += other.sent;
        send_drops += other.send_drops;
        return *this;
    }
};

class PortQueue {
public:
    [[nodiscard]] static Result<std::unique_ptr<PortQueue>> create(const PortQueueSpec& spec) noexcept;
    virtual ~PortQueue() = default;

    [[nodiscard]] virtual ibv_qp* qp() const noexcept = 0;
    [[nodiscard]] virtual std::uint32_t sqn() const noexcept = 0;

    /// At most batch_length frames. Their buffers are posted again by the next receive() or arm().
    [[nodiscard]] virtual std::span<const Frame> receive() noexcept = 0;
    /// Asks for one wake-up of receive_fd(); false when frames wait already (receive again instead of sleeping).
    [[nodiscard]] virtual bool arm() noexcept = 0;
    [[nodiscard]] virtual int receive_fd() const noexcept = 0;

    /// Copies and posts; returns how many frames went, the rest found the ring full or no buffer long enough and are
    /// counted as send_drops.
    [[nodiscard]] virtual unsigned transmit(std::span<const std::span<const std::uint8_t>> frames) noexcept = 0;

    [[nodiscard]] virtual QueueStats stats() const noexcept = 0;
};

}  // namespace ovsdr::slowpath
