// A raw packet QP: a send queue whose packets enter NIC_TX, and a receive queue that steering rules lead packets to.
//
// Model. The application posts; a worker of the NIC executes: its poll() copies posted packets out of registered memory
// into mbufs and completes them. The receive side is a ReceiveQueue.
//
// States. RESET, INIT, RTR, RTS, SQD and ERR with ibv_modify_qp(3)'s rules for raw packet QPs. Packets are received in
// RTR, RTS and SQD, sent in RTS. A request that fails (memory that is not registered, a buffer too small) completes
// with the error and moves the QP to ERR, where everything that is posted completes as flushed.
//
// Limits. A queue without one is polled by its worker; one with a rate or a place in the scheduler is a service of the
// same worker's, which has to be woken when it may go on. RESET and ERR end limits.
//
// Threads: post_* and modify() from any application thread, poll() from the worker that the send queue is assigned to.
// One lock per batch, none per packet.
// Source: ibv_create_qp_ex(3), ibv_post_send(3), ibv_modify_qp(3).
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <span>

#include "datapath/packet.hpp"
#include "datapath/ports/nic.hpp"
#include "datapath/rdma/completion/completion_queue.hpp"
#include "datapath/rdma/ethernet/receive_queue.hpp"
#include "datapath/rdma/ethernet/segmentation.hpp"
#include "datapath/rdma/ethernet/work_queue.hpp"
#include "datapath/rdma/lag_affinity.hpp"
#include "datapath/rdma/memory/memory.hpp"
#include "datapath/rdma/pacing/send_limit.hpp"

namespace ovsdr::soft {

struct RawPacketQpSpec {
    Device& device;
    MemoryTable& memory;
    rte_mempool* mempool;
    const void* domain;  ///< protection domain of the memory it may touch
    CompletionQueue& send_queue;
    CompletionQueue& receive_queue;
    ibv_qp_cap cap;  ///< as granted
    bool all_signaled;
    std::uint32_t qpn, sqn, rqn, tirn, tisn;
    std::uint16_t max_tso_header = 0;  ///< bytes; 0: no segmentation
    bool block_own_multicasts = false;  ///< it does not receive multicasts that it sent itself
    ReceiveFlags receive = {};
    QueueAllocator allocate = {};  ///< of both queues' slots
};

class RawPacketQp {
public:
    explicit RawPacketQp(const RawPacketQpSpec& spec);
    /// Stops sending first. Nothing may hold the receive queue any more.
    ~RawPacketQp();
    RawPacketQp(const RawPacketQp&) = delete;
    RawPacketQp& operator=(const RawPacketQp&) = delete;

    [[nodiscard]] const RawPacketQpSpec& spec() const noexcept { return spec_; }
    [[nodiscard]] ibv_qp_state state() const noexcept { return state_.load(std::memory_order_acquire); }
    [[nodiscard]] ReceiveQueue& receiver() noexcept { return receiver_; }
    /// The TIS's, which RESET leaves as it is.
    [[nodiscard]] LagAffinity& lag_affinity() noexcept { return lag_affinity_; }

    /// EINVAL for a transition or an attribute that raw packet QPs do not have in this state; `ports` is the device's
    /// number of IB ports. Attributes but the state are checked and left to the caller.
    [[nodiscard]] int modify(const ibv_qp_attr& attr, int mask, unsigned ports);

    /// How fast the queue may send: kilobits per second, 0 for no limit.
    void limit_rate(std::uint32_t kilobits);
    /// EOPNOTSUPP but in RTS. nullptr: no place in the scheduler.
    [[nodiscard]] int schedule(Scheduler& scheduler, Scheduler::Element* leaf);

    [[nodiscard]] int post_send(ibv_send_wr* first, ibv_send_wr** bad);

    /// Where a request's bytes are.
    struct Payload {
        std::span<const ibv_sge> sges;
        std::span<const ibv_data_buf> inline_bufs;  ///< where given, the request is inline
        std::span<const std::byte> header = {};     ///< of a request to segment
        std::uint16_t mss = 0;
    };
    /// Post side for ibv_wr_*: lock_send() to unlock_send(), stage() any number, then publish_send(); what is not
    /// published never was. Behind the lock ring_doorbell(), which may send what was posted. ENOMEM full, too many
    /// pieces, too many inline bytes; EINVAL a segmentation's header or flags.
    void lock_send() { post_mutex_.lock(); }
    void unlock_send() { post_mutex_.unlock(); }
    [[nodiscard]] int stage(unsigned ahead, std::uint64_t wr_id, unsigned flags, const Payload& payload) noexcept;
    void publish_send(unsigned count);
    void ring_doorbell() noexcept { spec_.device.ring_doorbell(spec_.sqn); }
    /// As libmlx5 has it: since the queue was in RTS; receives since INIT.
    [[nodiscard]] bool may_send() const noexcept { return may_send_.load(std::memory_order_relaxed); }
    [[nodiscard]] bool may_receive() const noexcept { return may_receive_.load(std::memory_order_relaxed); }

    /// Packets that went into NIC_TX.
    [[nodiscard]] std::uint64_t sent() const noexcept { return sent_.load(std::memory_order_relaxed); }

private:
    static unsigned poll(void* self, rte_mbuf** packets, unsigned length) noexcept;
    static unsigned run(void* self, const Outlet& outlet, std::uint64_t now) noexcept;
    static std::uint64_t deadline(void* self, std::uint64_t now) noexcept;
    /// `limit`: nullptr where there is none.
    [[nodiscard]] unsigned send(rte_mbuf** packets, unsigned length, SendLimit* limit, std::uint64_t now) noexcept;
    template <typename Change>
    void change_limit(Change change);
    [[nodiscard]] ibv_wc_status fill(const WorkQueue::Request& request, rte_mbuf* packet, bool& last) noexcept;
    [[nodiscard]] int publish_all(ibv_send_wr* first, ibv_send_wr** bad);
    void fail() noexcept;
    void receive_failed() noexcept;
    void flush_send() noexcept;
    void reset();
    [[nodiscard]] unsigned worker() const noexcept { return spec_.sqn % spec_.device.workers(); }
    void lift_limits();
    void start_sending();
    void stop_sending() noexcept;

    const RawPacketQpSpec spec_;
    std::atomic<ibv_qp_state> state_{IBV_QPS_RESET};
    std::atomic<bool> may_send_{false}, may_receive_{false};
    bool sending_ = false;  // under modify_mutex_
    bool limited_ = false;  // likewise
    LagAffinity lag_affinity_;
    WorkQueue send_;
    std::mutex modify_mutex_;
    std::mutex post_mutex_;
    Segment segment_{};         // of the request under way; under execute_mutex_
    SendLimit limit_;           // likewise
    std::mutex execute_mutex_;  // never held when the receive queue's is taken, nor the other way round
    std::atomic<std::uint64_t> sent_{0};
    ReceiveQueue receiver_;
};

}  // namespace ovsdr::soft
