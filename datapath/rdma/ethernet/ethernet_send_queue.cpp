#include "datapath/rdma/ethernet/ethernet_send_queue.hpp"

#include <rte_mbuf.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "datapath/rdma/aso_access.hpp"

namespace ovsdr::soft {

EthernetSendQueue::EthernetSendQueue(EthernetSendQueueSpec spec)
    : spec_(std::move(spec)), worker_(spec_.number % spec_.state.device().workers()) {
    spec_.completions.hold();
    spec_.state.device().add_service(worker_, {&EthernetSendQueue::run, &EthernetSendQueue::deadline, this});
}

EthernetSendQueue::~EthernetSendQueue() {
    spec_.state.device().remove_service(worker_, this);
    spec_.completions.release();
}

void EthernetSendQueue::move(State to) {
    {
        const std::lock_guard guard(mutex_);
        if (to == State::reset) {
            consumed_.store(0, std::memory_order_relaxed);
            under_way_ = false;
            segment_ = {};
        }
        state_.store(to, std::memory_order_release);
        doorbell_.expect();
    }
    spec_.state.device().ring_worker(worker_);
}

void EthernetSendQueue::limit_rate(std::uint32_t kilobits) {
    {
        const std::lock_guard guard(mutex_);
        rate_.set(kilobits);
    }
    spec_.state.device().ring_worker(worker_);
}

unsigned EthernetSendQueue::run(void* self, const Outlet& outlet, std::uint64_t now) noexcept {
    return static_cast<EthernetSendQueue*>(self)->send(outlet, now);
}

std::uint64_t EthernetSendQueue::deadline(void* self, std::uint64_t now) noexcept {
    auto& queue = *static_cast<EthernetSendQueue*>(self);
    if (queue.state() == State::reset) return Service::never;
    const std::lock_guard guard(queue.mutex_);
    const bool held = queue.state() == State::ready && queue.posted() != 0 && queue.rate_.allowance(now) == 0;
    return held ? queue.rate_.free_at() : queue.doorbell_.next_look(now);
}

std::uint16_t EthernetSendQueue::posted() const noexcept {
    const auto counter = static_cast<std::uint16_t>(be32toh(spec_.ring.doorbell->load(std::memory_order_acquire)));
    return static_cast<std::uint16_t>(counter - consumed_.load(std::memory_order_relaxed));
}

/// What was posted is never overtaken, whatever an entry says of its size.
void EthernetSendQueue::advance() noexcept {
    const auto blocks = static_cast<std::uint16_t>(std::min<std::uint32_t>(entry_.blocks, posted()));
    consumed_.store(static_cast<std::uint16_t>(consumed_.load(std::memory_order_relaxed) + blocks),
                    std::memory_order_relaxed);
    under_way_ = false;
}

unsigned EthernetSendQueue::send(const Outlet& outlet, std::uint64_t now) noexcept {
    if (state() == State::reset || posted() == 0) return 0;
    std::array<rte_mbuf*, poll_length> packets;
    unsigned length = 0;
    bool failed = false;
    {
        const std::lock_guard guard(mutex_);
        if (state() == State::failed) return spec_.flush_in_error ? flush() : 0;
        if (state() == State::ready) length = execute(packets.data(), failed, now);
        doorbell_.found(now);
    }
    if (length != 0) outlet.send(outlet.self, spec_.number, packets.data(), length);
    return length + failed;
}

Completion EthernetSendQueue::completion_of(ibv_wc_status status) const noexcept {
    return {.wr_id = 0,
            .status = status,
            .opcode = entry_.opcode == MLX5_OPCODE_TSO ? IBV_WC_TSO : IBV_WC_SEND,
            .vendor_err = 0,
            .byte_len = 0,
            .qp_num = spec_.number,
            .wc_flags = 0,
            .flow_tag = 0,
            .solicited = entry_.solicited,
            .timestamp = 0,
            .freed = nullptr,
            .freed_up_to = 0,
            .wqe_counter = consumed(),
            .user_index = spec_.user_index,
            .entry_opcode = entry_.opcode};
}

/// Under mutex_. Reads the next entry, and does it if it sends nothing.
ibv_wc_status EthernetSendQueue::begin_entry() noexcept {
    segment_ = {};
    under_way_ = true;
    const std::uint16_t left = posted();
    const bool whole = read_ethernet_entry(spec_.ring, consumed(), spec_.min_inline, entry_);
    const bool may = spec_.sends_frames || !entry_.sends();
    if (!whole || !may || entry_.blocks > left || left > spec_.ring.length) return IBV_WC_LOC_QP_OP_ERR;
    if (entry_.opcode != opcode_access_aso) return IBV_WC_SUCCESS;
    const int error =
        access_aso(spec_.state, {.pdn = spec_.domain_number, .domain = spec_.domain, .stripe = spec_.number},
                   {entry_.bytes.data(), entry_.size});
    return error == 0 ? IBV_WC_SUCCESS : error == EFAULT ? IBV_WC_LOC_PROT_ERR : IBV_WC_LOC_QP_OP_ERR;
}

/// Under mutex_. What is posted becomes frames, a batch at most; returns how many.
unsigned EthernetSendQueue::execute(rte_mbuf** packets, bool& failed, std::uint64_t now) noexcept {
    std::array<Completion, poll_length> done;
    unsigned filled = 0, completions = 0;
    const std::uint64_t allowed = rate_.allowance(now);
    std::uint64_t size = 0;
    const MemoryTable::Reading reading(spec_.state.memory(), spec_.number);
    while (filled < poll_length && completions < poll_length && size < allowed && !failed &&
           (under_way_ || posted() != 0)) {
        ibv_wc_status status = IBV_WC_SUCCESS;
        if (!under_way_) status = begin_entry();
        if (status == IBV_WC_SUCCESS && entry_.sends()) {
            rte_mbuf* const packet = rte_pktmbuf_alloc(spec_.state.mempool());
            if (!packet) break;  // The pool is empty for now: what is posted stays posted.
            status = build_frame(spec_.state.memory(), spec_.domain, entry_.request(), segment_, packet);
            if (status == IBV_WC_SUCCESS) {
                size += rte_pktmbuf_pkt_len(packet);
                packets[filled++] = packet;
            } else {
                rte_pktmbuf_free(packet);
            }
            if (status == IBV_WC_SUCCESS && !segment_.last) continue;
        }
        failed = status != IBV_WC_SUCCESS;
        if (entry_.signaled || failed) done[completions++] = completion_of(status);
        advance();
    }
    if (failed) state_.store(State::failed, std::memory_order_release);
    spec_.completions.add({done.data(), completions});
    if (size != 0) rate_.sent(size, now);
    return filled;
}

/// Under mutex_. Returns how many entries were completed as flushed.
unsigned EthernetSendQueue::flush() noexcept {
    unsigned count = 0;
    for (; count < poll_length && posted() != 0; ++count) {
        (void)read_ethernet_entry(spec_.ring, consumed(), 0, entry_);
        const Completion flushed = completion_of(IBV_WC_WR_FLUSH_ERR);
        spec_.completions.add({&flushed, 1});
        advance();
    }
    return count;
}

}  // namespace ovsdr::soft
