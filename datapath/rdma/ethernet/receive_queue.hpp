// A receive queue: buffers that the application posts, and packets that steering rules lead to it.
//
// Model. deliver(), called by any worker, copies packets into posted buffers and completes those. A packet that finds
// no buffer is dropped and counted, as hardware does. A buffer that is not registered for writing or too small
// completes with the error and the queue fails: what is posted then completes as flushed, until it is reset.
//
// It is the receive side of a raw packet QP, or a work queue (ibv_create_wq, CREATE_RQ) on its own. Buffers are posted
// with post(), or stand in a ring of the application's, whose doorbell record is read when a packet comes.
//
// Threads: post() and state changes from any application thread, deliver() from any worker. One lock per batch.
// Source: ibv_post_recv(3), ibv_create_wq(3).
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>

#include "datapath/packet.hpp"
#include "datapath/rdma/completion/completion_queue.hpp"
#include "datapath/rdma/ethernet/work_queue.hpp"
#include "datapath/rdma/memory/memory.hpp"
#include "datapath/rdma/roce/work_entry.hpp"

namespace ovsdr::soft {

/// What `request` comes to: its completion, with its slot of `queue` done.
[[nodiscard]] Completion completion_of(const WorkQueue::Request& request, WorkQueue& queue, std::uint32_t number,
                                       ibv_wc_opcode opcode, ibv_wc_status status) noexcept;

/// IBV_WC_SUCCESS, or what a fault on demand of this name makes of a work request (datapath/control/fault.hpp).
[[nodiscard]] ibv_wc_status injected_status(std::string_view fault) noexcept;

/// What becomes of a packet on its way into a buffer.
struct ReceiveFlags {
    bool strip_cvlan = false;  ///< the outermost tag, if it is a C-VLAN's
    bool scatter_fcs = false;  ///< the frame check sequence behind the data, counted in byte_len
    bool flush_in_error = true;
};

struct ReceiveQueueSpec {
    MemoryTable& memory;
    CompletionQueue& completions;
    const void* domain;  ///< protection domain of its buffers
    unsigned length;     ///< requests
    unsigned max_sges;
    ReceiveFlags flags = {};
    QueueAllocator allocate = {};
    std::uint32_t number;  ///< as its completions name it: QP or WQ number
    std::optional<roce::ReceiveRing> ring = {};  ///< in place of post()
    std::uint32_t user_index = 0;
    /// Counts for others what counters() says; outlives the queue.
    std::atomic<std::uint64_t>* out_of_buffer = nullptr;
    std::uint32_t unheard = 0;  ///< the send queue whose multicasts are dropped, by its SenderMark; 0: none
};

class ReceiveQueue {
public:
    enum class State : std::uint8_t { closed, open, failed };

    /// `failed` is called, on a worker and without a lock, when a delivery fails the queue.
    explicit ReceiveQueue(const ReceiveQueueSpec& spec, std::function<void()> failed = {});
    /// Nothing may hold the queue any more.
    ~ReceiveQueue();
    ReceiveQueue(const ReceiveQueue&) = delete;
    ReceiveQueue& operator=(const ReceiveQueue&) = delete;

    [[nodiscard]] State state() const noexcept { return state_.load(std::memory_order_acquire); }
    /// From closed only; a queue that has failed stays so.
    void open() noexcept;
    void fail() noexcept;
    /// Closes and forgets what was posted and completed.
    void reset();
    /// For packets that come from now on.
    void strip_cvlan(bool strip) noexcept { strip_cvlan_.store(strip, std::memory_order_relaxed); }

    [[nodiscard]] int post(ibv_recv_wr* first, ibv_recv_wr** bad);
    /// Something was posted to the ring: a queue that has failed flushes it.
    void rung() noexcept {
        if (state() == State::failed) flush();
    }

    [[nodiscard]] Sink sink() noexcept { return Sink{&ReceiveQueue::deliver, this}; }

    /// Rules and TIRs that lead to the queue: it cannot be destroyed while there are any.
    void hold() noexcept { holders_.fetch_add(1, std::memory_order_relaxed); }
    void release() noexcept { holders_.fetch_sub(1, std::memory_order_release); }
    [[nodiscard]] bool held() const noexcept { return holders_.load(std::memory_order_acquire) != 0; }

    struct Counters {
        std::uint64_t received, out_of_buffer, not_ready;
    };
    [[nodiscard]] Counters counters() const noexcept;

private:
    static void deliver(void* self, unsigned worker, rte_mbuf** packets, unsigned length) noexcept;
    void receive(unsigned worker, rte_mbuf** packets, unsigned length) noexcept;
    /// Drops what must not be heard; returns how many packets are left, in their order.
    [[nodiscard]] unsigned drop_unheard(rte_mbuf** packets, unsigned length) const noexcept;
    /// Sets what `completion` says of the data: bytes that went into the buffers, a tag that did not.
    [[nodiscard]] ibv_wc_status scatter(std::span<const ibv_sge> sges, const rte_mbuf* packet,
                                        Completion& completion) noexcept;
    [[nodiscard]] ibv_wc_status place(std::span<const ibv_sge> sges,
                                      std::span<std::span<const std::uint8_t>> parts) noexcept;
    /// Takes the next posted buffer, and begins its completion; false: nothing is posted.
    [[nodiscard]] bool take(Completion& completion, std::span<const ibv_sge>& sges) noexcept;
    [[nodiscard]] bool take_from_ring(Completion& completion, std::span<const ibv_sge>& sges) noexcept;
    void flush() noexcept;
    void count_out_of_buffer(unsigned packets) noexcept;

    const ReceiveQueueSpec spec_;
    const std::function<void()> failed_;
    std::atomic<State> state_{State::closed};
    WorkQueue queue_;
    // Of a ring; under execute_mutex_.
    std::uint64_t taken_ = 0;
    std::array<ibv_sge, roce::most_pieces> pieces_;
    std::mutex post_mutex_;
    std::mutex execute_mutex_;
    std::atomic<bool> strip_cvlan_;
    std::atomic<unsigned> holders_{0};
    std::atomic<std::uint64_t> received_{0}, out_of_buffer_{0}, not_ready_{0};
};

}  // namespace ovsdr::soft
