// A queue pair of the RoCEv2 transport, as the device has it: rings in the application's memory, numbers, states.
//
// Model. Rings have the device's own formats, so that it is all one who fills them: ibv_post_send() and ibv_wr_*() of
// this library (verbs/), mlx5dv_wr_raw_wqe(), or an application that made its queue by DEVX commands. A send ring is a
// run of 64-byte basic blocks; a work queue entry begins with a mlx5_wqe_ctrl_seg and takes as many blocks as its
// segments need. A receive ring is a run of equal strides of mlx5_wqe_data_seg, ended by the invalid lkey 0x100.
// Producer counters stand in doorbell records, big-endian; ring_send() tells the device to look, and a queue that was
// made without a notifier (DEVX) is looked at again and again.
//
// The worker that the queue is assigned to executes it: requester, responder, timers. Packets leave as those of the
// manager function's send queue `sqn`: NIC_TX, then FDB.
//
// States, attributes and transitions are those of ibv_modify_qp(3) for each type.
//
// RoCE is the manager function's: IB port 1. See gid_table.hpp for its addresses, address.hpp for what stands in a
// datagram segment, local_operations.hpp for entries that do not go over the wire.
//
// Threads: modify() and query() from any application thread; ring_send() and ring_receive() from any. A queue pair must
// not be destroyed while another thread is in one of its functions.
// Source: PRM (WQE and CQE formats, as mlx5dv.h has them), IBTA volume 1 release 1.4 chapters 9 and 17 (annex A17).
#pragma once

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "datapath/rdma/completion/completion_queue.hpp"
#include "datapath/rdma/device_state.hpp"

namespace ovsdr::soft {

namespace roce {

class SharedReceiveQueue;

inline constexpr unsigned basic_block_size = 64;  ///< bytes of a send ring's WQEBB

struct SendRing {
    std::byte* base = nullptr;
    std::uint32_t length = 0;                        ///< basic blocks, a power of two; 0: no send queue
    const std::atomic<__be32>* doorbell = nullptr;   ///< blocks posted, modulo 2^16 (libmlx5) or 2^32
    const std::uint64_t* wr_ids = nullptr;           ///< by an entry's first block; nullptr where nobody polls them
    std::atomic<std::uint64_t>* freed = nullptr;     ///< see Completion::freed: blocks
    /// By an entry's first block: what it completes as where only the library knows (IBV_WC_BIND_MW, IBV_WC_DRIVER2 for
    /// an entry that the application made, ...); 0: as its opcode says. nullptr: all are 0.
    const std::uint32_t* completes_as = nullptr;
};

struct ReceiveRing {
    std::byte* base = nullptr;
    std::uint32_t length = 0;                        ///< entries, a power of two; 0: none, or an SRQ's
    std::uint32_t stride = 0;                        ///< bytes of an entry
    const std::atomic<__be32>* doorbell = nullptr;   ///< entries posted
    const std::uint64_t* wr_ids = nullptr;
    std::atomic<std::uint64_t>* freed = nullptr;     ///< entries
};

/// A DC queue pair (IBV_QPT_DRIVER): which end it is. Source: mlx5dv_create_qp(3).
struct DcSpec {
    mlx5dv_dc_type end;            ///< MLX5DV_DCTYPE_DCI sends, MLX5DV_DCTYPE_DCT receives
    std::uint64_t access_key = 0;  ///< DCT: what initiators must say
    std::uint8_t log_streams = 0;  ///< DCI: 1 << log_streams are served side by side;
    std::uint8_t log_errored = 0;  ///< when 1 << log_errored of them have failed, the whole queue pair does
};

struct QueuePairSpec {
    DeviceState& state;
    ibv_qp_type type;
    const void* domain;          ///< protection domain
    std::uint32_t domain_number; ///< pdn, for those who compare numbers (DEVX, memory windows)
    std::uint32_t qpn, sqn;
    std::uint32_t user_index = 0;  ///< what CQEs name the queue by beside its number
    CompletionQueue* send_queue;     ///< nullptr: none (XRC targets)
    CompletionQueue* receive_queue;
    SharedReceiveQueue* srq = nullptr;
    SendRing send;
    ReceiveRing receive;
    bool polled = false;         ///< nobody calls ring_*(): the device looks at the doorbell records itself
    std::uint32_t create_flags = 0;  ///< enum ibv_qp_create_flags
    const void* xrc_domain = nullptr;  ///< XRC targets
    std::optional<DcSpec> dc = std::nullopt;  ///< of IBV_QPT_DRIVER

    [[nodiscard]] bool is_dc(mlx5dv_dc_type end) const noexcept { return dc && dc->end == end; }
    /// MLX5DV_QP_CREATE_SIG_PIPELINING: a transfer whose local key's signature fails is the last that is begun. The
    /// queue moves to SQD, and IBV_EVENT_SQ_DRAINED tells when all before has completed.
    bool stops_at_signature_errors = false;
    /// Asynchronous events of the queue (IBV_EVENT_COMM_EST, QP_FATAL, QP_ACCESS_ERR, QP_REQ_ERR, SQ_DRAINED,
    /// QP_LAST_WQE_REACHED). Called on a worker: it must not call back and must not wait.
    std::function<void(ibv_event_type)> event;
};

class QueuePair {
public:
    /// The queue is in RESET. Throws std::bad_alloc. EOPNOTSUPP (as a std::system_error) for other types than RC, UC,
    /// UD, XRC_SEND, XRC_RECV, and DRIVER with spec.dc.
    [[nodiscard]] static std::unique_ptr<QueuePair> create(const QueuePairSpec& spec);
    /// No worker touches the rings, the completion queues or the SRQ afterwards. Completions that nobody has taken are
    /// the caller's to forget.
    virtual ~QueuePair() = default;

    [[nodiscard]] virtual const QueuePairSpec& spec() const noexcept = 0;
    [[nodiscard]] virtual ibv_qp_state state() const noexcept = 0;

    /// A transition with its attributes. EINVAL for one that the type does not have in this state, for a required
    /// attribute that is missing, or one out of range. An RTR's address vector is resolved here (ARP, neighbour
    /// discovery: ETIMEDOUT, EHOSTUNREACH).
    /// On RESET the queue forgets what was posted: the caller sets doorbell records and `freed` to 0 and takes the
    /// completions out of the queues afterwards, before it lets anyone post.
    [[nodiscard]] virtual int modify(const ibv_qp_attr& attr, int mask) = 0;
    /// Everything but `cap`.
    virtual void query(ibv_qp_attr& attr) const = 0;

    /// Of packets from now on, in RTS; RC and UC. EINVAL in another state.
    [[nodiscard]] virtual int set_udp_source_port(std::uint16_t port) = 0;

    /// What the queue pair asks for, and what it answers, under leaves of the device's scheduler from now on, until
    /// RESET; nullptr: nowhere. In INIT and RTS; EINVAL in another state.
    [[nodiscard]] virtual int schedule(Scheduler::Element* requests, Scheduler::Element* answers) = 0;

    /// DCI: the stream that failed may send again; in RTS. EINVAL: no stream of that number has failed.
    [[nodiscard]] virtual int reset_stream(std::uint16_t stream) = 0;

    /// To RESET, also where the type has no such transition (DCT).
    virtual void stop() noexcept = 0;

    /// The doorbell record has changed. Cheap.
    virtual void ring_send() noexcept = 0;
    virtual void ring_receive() noexcept = 0;

    /// From now on the device looks at the doorbell records itself too, as of a queue that was made `polled`. Throws
    /// std::bad_alloc.
    virtual void poll_doorbells() {}

    /// Blocks that were taken off the send ring, where the queue is in SQD with nothing under way: what is posted
    /// behind them may be changed. Nothing in any other state.
    [[nodiscard]] virtual std::optional<std::uint64_t> drained_at() const { return std::nullopt; }
};

}  // namespace roce
}  // namespace ovsdr::soft
