// A raw packet QP: a send queue whose packets enter NIC_TX, and a receive queue that steering rules lead packets to.
//
// Model. The application posts; a worker of the NIC executes. Sending: the worker's poll() copies posted packets out
// of registered memory into mbufs and completes them. Receiving: deliver(), called by any worker, copies packets into
// posted buffers and completes those; a packet that finds no buffer is dropped and counted, as hardware does.
//
// States. RESET, INIT, RTR, RTS, SQD and ERR with ibv_modify_qp(3)'s rules for raw packet QPs. Packets are received in
// RTR, RTS and SQD, sent in RTS. A request that fails (memory that is not registered, a buffer too small) completes with
// the error and moves the QP to ERR, where everything that is posted completes as flushed.
//
// Threads: post_* and modify() from any application thread, poll() from the worker that the send queue is assigned to,
// deliver() from any worker. One lock per batch, none per packet.
// Source: ibv_create_qp_ex(3), ibv_post_send(3), ibv_post_recv(3), ibv_modify_qp(3).
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <span>

#include "datapath/packet.hpp"
#include "datapath/ports/nic.hpp"
#include "datapath/rdma/completion_queue.hpp"
#include "datapath/rdma/memory.hpp"
#include "datapath/rdma/work_queue.hpp"

namespace ovsdr::soft {

struct RawPacketQpSpec {
    Device& device;
    MemoryTable& memory;
    rte_mempool* mempool;
    const void* domain;              ///< protection domain of the memory it may touch
    CompletionQueue& send_queue;
    CompletionQueue& receive_queue;
    ibv_qp_cap cap;                  ///< as granted
    bool all_signaled;
    std::uint32_t qpn, sqn, rqn, tirn, tisn;
};

class RawPacketQp {
public:
    explicit RawPacketQp(const RawPacketQpSpec& spec);
    /// Stops sending first. Nothing may hold the QP any more.
    ~RawPacketQp();
    RawPacketQp(const RawPacketQp&) = delete;
    RawPacketQp& operator=(const RawPacketQp&) = delete;

    [[nodiscard]] const RawPacketQpSpec& spec() const noexcept { return spec_; }
    [[nodiscard]] ibv_qp_state state() const noexcept { return state_.load(std::memory_order_acquire); }

    /// EINVAL for a transition or an attribute that raw packet QPs do not have in this state; `ports` is the device's
    /// number of IB ports. Attributes but the state are checked and left to the caller.
    [[nodiscard]] int modify(const ibv_qp_attr& attr, int mask, unsigned ports);

    [[nodiscard]] int post_send(ibv_send_wr* first, ibv_send_wr** bad);
    [[nodiscard]] int post_receive(ibv_recv_wr* first, ibv_recv_wr** bad);

    /// Where a request's bytes are.
    struct Payload {
        std::span<const ibv_sge> sges;
        std::span<const ibv_data_buf> inline_bufs;   ///< where given, the request is inline
    };
    /// Post side for ibv_wr_*: lock_send() to unlock_send(), stage() any number, then publish(); what is not published
    /// never was. ENOMEM full, EINVAL too many pieces or too many inline bytes.
    void lock_send() { send_post_mutex_.lock(); }
    void unlock_send() { send_post_mutex_.unlock(); }
    [[nodiscard]] int stage(unsigned ahead, std::uint64_t wr_id, unsigned flags, const Payload& payload) noexcept;
    void publish_send(unsigned count);

    [[nodiscard]] Sink receive_sink() noexcept { return Sink{&RawPacketQp::deliver, this}; }

    /// Rules that lead to the QP: it cannot be destroyed while there are any.
    void hold() noexcept { holders_.fetch_add(1, std::memory_order_relaxed); }
    void release() noexcept { holders_.fetch_sub(1, std::memory_order_relaxed); }
    [[nodiscard]] bool held() const noexcept { return holders_.load(std::memory_order_relaxed) != 0; }

    struct Counters {
        std::uint64_t received, sent, out_of_buffer, not_ready;
    };
    [[nodiscard]] Counters counters() const noexcept;

private:
    static void deliver(void* self, unsigned worker, rte_mbuf** packets, unsigned length) noexcept;
    static unsigned poll(void* self, rte_mbuf** packets, unsigned length) noexcept;

    void receive(unsigned worker, rte_mbuf** packets, unsigned length) noexcept;
    [[nodiscard]] unsigned send(rte_mbuf** packets, unsigned length) noexcept;
    [[nodiscard]] ibv_wc_status gather(const WorkQueue::Request& request, rte_mbuf* packet) noexcept;
    [[nodiscard]] ibv_wc_status scatter(const WorkQueue::Request& request, const rte_mbuf* packet) noexcept;
    [[nodiscard]] Completion completion_of(const WorkQueue::Request& request, ibv_wc_status status, ibv_wc_opcode opcode,
                                           WorkQueue& queue) noexcept;
    void fail() noexcept;
    void flush(std::mutex& mutex, WorkQueue& queue, CompletionQueue& completions, ibv_wc_opcode opcode) noexcept;
    void flush_send() noexcept { flush(send_mutex_, send_, spec_.send_queue, IBV_WC_SEND); }
    void flush_receive() noexcept { flush(receive_mutex_, receive_, spec_.receive_queue, IBV_WC_RECV); }
    void reset();
    void start_sending();
    void stop_sending() noexcept;

    const RawPacketQpSpec spec_;
    std::atomic<ibv_qp_state> state_{IBV_QPS_RESET};
    bool sending_ = false;                     // under modify_mutex_
    WorkQueue send_;
    WorkQueue receive_;
    std::mutex modify_mutex_;
    std::mutex send_post_mutex_, receive_post_mutex_;
    std::mutex send_mutex_, receive_mutex_;    // execute sides; neither is taken under the other
    std::atomic<unsigned> holders_{0};
    std::atomic<std::uint64_t> received_{0}, sent_{0}, out_of_buffer_{0}, not_ready_{0};
};

}  // namespace ovsdr::soft
