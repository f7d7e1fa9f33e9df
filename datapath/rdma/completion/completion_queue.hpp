// A completion queue: what became of work requests, in the order in which queues finished them.
//
// Model. A ring of Completions; queues add in batches, the application takes. Taking a completion also gives the work
// queue its slots back (Completion::freed), which is when hardware's library frees them: a send queue of unsignaled
// requests stays full until a signaled one is polled.
//
// Events. req_notify arms the queue; the next added completion (or, solicited only, the next solicited or failed one)
// calls the notifier once. What was there before arming gives no event.
//
// Overrun. A completion that finds the ring full is lost, and the queue is broken from then on: the failure is reported
// once, further completions are lost too, and what was there before can still be taken. As on hardware. A queue that
// ignores overruns loses its oldest completion instead; the slots that it would have given back come with the next one
// of its work queue.
//
// Exposed. A queue may also write its completions as CQEs into a ring that the application polls itself
// (mlx5dv_init_obj()): the same entries at the same positions, taken by whoever moves the consumer's counter on, the
// application in the doorbell record or take().
//
// Threads: add() by any number of queues, take() and forget() by any number of application threads.
// Source: ibv_poll_cq(3), ibv_req_notify_cq(3), ibv_get_async_event(3) IBV_EVENT_CQ_ERR.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>

#include "datapath/rdma/memory/queue_memory.hpp"

namespace ovsdr::soft {

class CqeRing;

struct Completion {
    std::uint64_t wr_id;
    ibv_wc_status status;
    ibv_wc_opcode opcode;
    std::uint32_t vendor_err;
    std::uint32_t byte_len;
    std::uint32_t qp_num;
    std::uint32_t wc_flags;  ///< enum ibv_wc_flags
    std::uint32_t flow_tag;
    bool solicited;
    std::uint64_t timestamp;            ///< CLOCK_MONOTONIC nanoseconds, 0 where the queue does not ask for it
    std::atomic<std::uint64_t>* freed;  ///< the work queue's count of free slots, set to `freed_up_to` when taken
    std::uint64_t freed_up_to;
    std::uint32_t imm_data = 0;  ///< as ibv_wc's: big-endian with IBV_WC_WITH_IMM; the key, host order, with
                                 ///< IBV_WC_WITH_INV; of a frame: reg_b
    std::uint32_t src_qp = 0;  ///< datagrams
    std::uint16_t wqe_counter =
        0;  ///< of the entry in its ring, as a CQE has it: the first basic block, or the receive entry
    std::uint8_t sl = 0;  ///< datagrams: the L3 type, 1 IPv6, 2 IPv4
    std::uint16_t cvlan = 0;  ///< TCI of the tag that was stripped, host order
    std::uint32_t user_index = 0;  ///< the queue's, where it has one
    /// MLX5_OPCODE_* of a send entry in a ring of the application's; 0xff: as `opcode` says
    std::uint8_t entry_opcode = 0xff;
    /// Of a frame that an Ethernet queue received, as CQEs have them; see cqe_ring.hpp.
    std::uint8_t rx_hash_type = 0;
    std::uint8_t tunnel = 0;
    std::uint16_t headers = 0;
    std::uint32_t rx_hash = 0;
};

class CompletionQueue {
public:
    struct Notifier {
        std::function<void()> completion;  ///< armed and something came
        std::function<void()> overrun;     ///< once
    };

    /// `length` is what the queue holds at least; `allocate` gives the ring's memory, the heap where it is empty.
    /// Throws std::bad_alloc.
    CompletionQueue(unsigned length, bool timestamps, Notifier notifier, QueueAllocator allocate = {},
                    bool ignore_overrun = false);

    ~CompletionQueue();

    [[nodiscard]] unsigned length() const noexcept { return length_; }

    /// From now on the queue is written into `ring` too, of as many CQEs as it has itself; `consumer` is the doorbell
    /// record's first word, which is set to the queue's counter. A ring that it had before is let go.
    void expose(std::unique_ptr<CqeRing> ring, std::atomic<__be32>& consumer);

    void add(std::span<const Completion> completions) noexcept;
    /// Takes at most completions.size(); returns how many.
    [[nodiscard]] int take(std::span<Completion> completions) noexcept;

    /// While one lives, its thread looks into the queue: it needs no event of what it adds itself, and the queue stays
    /// armed.
    class LookedInto {
    public:
        explicit LookedInto(const CompletionQueue& queue) noexcept { looked_into_ = &queue; }
        ~LookedInto() { looked_into_ = nullptr; }
        LookedInto(const LookedInto&) = delete;
        LookedInto& operator=(const LookedInto&) = delete;
    };

    /// Calls the notifier if the queue is armed and has completions.
    void notify_of_rest() noexcept;

    void arm(bool solicited_only) noexcept;
    /// Arms as an application does that has taken `consumed` completions (24 bits): one that came since calls the
    /// notifier at once.
    void arm_from(std::uint32_t consumed, bool solicited_only) noexcept;

    /// Removes the completions of a QP that is being destroyed; those of an exposed queue are the application's.
    void forget(std::uint32_t qp_num) noexcept;

    /// EINVAL when more completions wait than would fit.
    [[nodiscard]] int resize(unsigned length);

    /// QPs that use the queue: it cannot be destroyed while there are any.
    void hold() noexcept { holders_.fetch_add(1, std::memory_order_relaxed); }
    void release() noexcept { holders_.fetch_sub(1, std::memory_order_relaxed); }
    [[nodiscard]] bool held() const noexcept { return holders_.load(std::memory_order_relaxed) != 0; }

private:
    enum class Armed : std::uint8_t { no, solicited, any };
    static thread_local const CompletionQueue* looked_into_;

    [[nodiscard]] Completion& at(std::uint64_t index) noexcept { return slots(ring_)[index & (length_ - 1)]; }
    [[nodiscard]] static Completion* slots(const QueueMemory& ring) noexcept {
        return reinterpret_cast<Completion*>(ring.get());
    }
    [[nodiscard]] QueueMemory make_ring(unsigned length) const;
    /// Under both mutexes: takes what the application took out of the exposed ring.
    void follow_consumer() noexcept;

    std::atomic<bool> timestamps_;
    const bool ignore_overrun_;
    Notifier notifier_;
    // Lock order: take_mutex_, add_mutex_. The ring's size changes only under both.
    std::mutex take_mutex_;
    std::mutex add_mutex_;
    unsigned length_;
    const QueueAllocator allocate_;
    QueueMemory ring_;
    alignas(64) std::atomic<std::uint64_t> added_{0};
    alignas(64) std::atomic<std::uint64_t> taken_{0};
    Armed armed_ = Armed::no;        // under add_mutex_
    std::uint64_t solicited_ = 0;    // up to the last solicited or failed one; under add_mutex_
    std::unique_ptr<CqeRing> exposed_;                // under add_mutex_; set under both
    std::atomic<__be32>* consumer_ = nullptr;         // the same
    std::atomic<bool> is_exposed_{false};
    bool overrun_ = false;     // under add_mutex_
    std::atomic<unsigned> holders_{0};
};

}  // namespace ovsdr::soft
