// An Ethernet send queue whose ring is the application's: what a SQ made by DEVX commands does.
//
// Model. A worker looks at the doorbell record in each of its turns (polled_doorbell.hpp), executes the entries that
// were posted and hands their frames to NIC_TX as those of this queue's number. Completions name the queue by that
// number and the entry by its first block.
//
// States. reset: nothing is looked at. ready: executing. failed: everything that is posted completes as flushed (where
// the queue was made so), until it is reset. An entry that fails completes with the error and fails the queue. A rate
// bounds what a ready queue sends (rate_limit.hpp).
//
// Threads: move() from any application thread, one at a time; the rest on the queue's worker.
// Source: PRM, SQ context and MODIFY_SQ.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <mutex>

#include "datapath/ports/nic.hpp"
#include "datapath/rdma/completion/completion_queue.hpp"
#include "datapath/rdma/completion/polled_doorbell.hpp"
#include "datapath/rdma/device_state.hpp"
#include "datapath/rdma/ethernet/ethernet_entry.hpp"
#include "datapath/rdma/pacing/rate_limit.hpp"

namespace ovsdr::soft {

struct EthernetSendQueueSpec {
    DeviceState& state;
    const void* domain;  ///< protection domain of what its entries point to
    std::uint32_t domain_number;  ///< the same as ASO objects know it
    CompletionQueue& completions;
    std::uint32_t number;
    roce::SendRing ring;
    std::uint32_t user_index;  ///< what its completions name it by beside its number
    std::uint32_t min_inline;  ///< bytes
    bool flush_in_error;
    bool sends_frames = true;  ///< false: a queue without a TIS, for NOP and ACCESS_ASO
};

class EthernetSendQueue {
public:
    enum class State : std::uint8_t { reset, ready, failed };

    explicit EthernetSendQueue(EthernetSendQueueSpec spec);
    /// No worker touches the ring afterwards.
    ~EthernetSendQueue();
    EthernetSendQueue(const EthernetSendQueue&) = delete;
    EthernetSendQueue& operator=(const EthernetSendQueue&) = delete;

    [[nodiscard]] State state() const noexcept { return state_.load(std::memory_order_acquire); }
    void move(State to);
    /// How fast it may send: kilobits per second, 0 for no limit.
    void limit_rate(std::uint32_t kilobits);
    /// Entries' blocks that were taken off the ring, modulo 2^16.
    [[nodiscard]] std::uint16_t consumed() const noexcept { return consumed_.load(std::memory_order_relaxed); }

private:
    static unsigned run(void* self, const Outlet& outlet, std::uint64_t now) noexcept;
    static std::uint64_t deadline(void* self, std::uint64_t now) noexcept;
    [[nodiscard]] unsigned send(const Outlet& outlet, std::uint64_t now) noexcept;
    [[nodiscard]] unsigned execute(rte_mbuf** packets, bool& failed, std::uint64_t now) noexcept;
    [[nodiscard]] ibv_wc_status begin_entry() noexcept;
    [[nodiscard]] unsigned flush() noexcept;
    /// Blocks that wait, modulo 2^16.
    [[nodiscard]] std::uint16_t posted() const noexcept;
    void advance() noexcept;
    [[nodiscard]] Completion completion_of(ibv_wc_status status) const noexcept;

    const EthernetSendQueueSpec spec_;
    const unsigned worker_;
    std::atomic<State> state_{State::reset};
    std::atomic<std::uint16_t> consumed_{0};
    std::mutex mutex_;  ///< of a turn and of move()
    // Under mutex_.
    EthernetEntry entry_;  ///< the one under way
    bool under_way_ = false;
    Segment segment_{};
    PolledDoorbell doorbell_;
    RateLimit rate_;
};

}  // namespace ovsdr::soft
