#include "datapath/rdma/ethernet/raw_packet_qp.hpp"

#include <rte_mempool.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "datapath/control/fault.hpp"
#include "datapath/rdma/ethernet/outgoing_frame.hpp"
#include "datapath/rdma/ethernet/sender_mark.hpp"

namespace ovsdr::soft {

RawPacketQp::RawPacketQp(const RawPacketQpSpec& spec)
    : spec_(spec),
      lag_affinity_(spec.device.steering(), spec.sqn),
      send_(spec.cap.max_send_wr, spec.cap.max_send_sge, spec.cap.max_inline_data, spec.allocate, spec.max_tso_header),
      receiver_(ReceiveQueueSpec{.memory = spec.memory,
                                 .completions = spec.receive_queue,
                                 .domain = spec.domain,
                                 .length = spec.cap.max_recv_wr,
                                 .max_sges = spec.cap.max_recv_sge,
                                 .flags = spec.receive,
                                 .allocate = spec.allocate,
                                 .number = spec.qpn,
                                 .unheard = spec.block_own_multicasts ? spec.sqn : 0},
                [this] { receive_failed(); }) {
    if (spec_.block_own_multicasts) (void)SenderMark::get();  // now, not on a worker
    spec_.send_queue.hold();
}

RawPacketQp::~RawPacketQp() {
    stop_sending();
    spec_.send_queue.forget(spec_.qpn);
    spec_.send_queue.release();
}

unsigned RawPacketQp::poll(void* self, rte_mbuf** packets, unsigned length) noexcept {
    return static_cast<RawPacketQp*>(self)->send(packets, length, nullptr, 0);
}

unsigned RawPacketQp::run(void* self, const Outlet& outlet, std::uint64_t now) noexcept {
    auto& qp = *static_cast<RawPacketQp*>(self);
    std::array<rte_mbuf*, poll_length> packets;
    const unsigned length = qp.send(packets.data(), poll_length, &qp.limit_, now);
    if (length != 0) outlet.send(outlet.self, qp.spec_.sqn, packets.data(), length);
    return length;
}

std::uint64_t RawPacketQp::deadline(void* self, std::uint64_t now) noexcept {
    constexpr std::uint64_t pool_empty = 20'000;
    auto& qp = *static_cast<RawPacketQp*>(self);
    if (qp.send_.idle() || qp.state() != IBV_QPS_RTS) return Service::never;
    const std::lock_guard guard(qp.execute_mutex_);
    return qp.limit_.held_until() != 0 ? qp.limit_.held_until() : now + pool_empty;
}

unsigned RawPacketQp::send(rte_mbuf** packets, unsigned length, SendLimit* limit, std::uint64_t now) noexcept {
    if (send_.idle() || state() != IBV_QPS_RTS) return 0;
    std::array<Completion, batch_length> done;
    unsigned completions = 0;
    unsigned filled = 0;
    bool failed = false;
    {
        std::lock_guard guard(execute_mutex_);
        const std::uint64_t allowed = limit ? limit->begin(now) : RateLimit::unlimited;
        if (allowed == 0) return 0;
        std::uint64_t size = 0;
        const MemoryTable::Reading reading(spec_.memory, spec_.sqn);
        const bool faulty = faults_are_armed();
        while (filled < length && size < allowed && !failed && state() == IBV_QPS_RTS) {
            const WorkQueue::Request* const request = send_.front();
            if (!request) break;
            rte_mbuf* const packet = rte_pktmbuf_alloc(spec_.mempool);
            if (!packet) break;  // The pool is empty for now: what is posted stays posted.
            bool last = true;
            ibv_wc_status status = faulty ? injected_status("work_request_send") : IBV_WC_SUCCESS;
            if (status == IBV_WC_SUCCESS) status = fill(*request, packet, last);
            failed = status != IBV_WC_SUCCESS;
            if (!failed && spec_.block_own_multicasts) SenderMark::get().set(packet, spec_.sqn);
            if (!failed) {
                size += rte_pktmbuf_pkt_len(packet);
                packets[filled++] = packet;
            }
            if (failed) rte_pktmbuf_free(packet);
            if (!failed && !last) continue;
            segment_ = {};
            const bool reported = request->signaled || failed;
            const ibv_wc_opcode opcode = request->mss ? IBV_WC_TSO : IBV_WC_SEND;
            const Completion completion = completion_of(*request, send_, spec_.qpn, opcode, status);
            if (reported) done[completions++] = completion;
        }
        if (failed) state_.store(IBV_QPS_ERR, std::memory_order_release);
        spec_.send_queue.add({done.data(), completions});
        if (limit) limit->end(size, now, !failed && send_.front());
    }
    sent_.fetch_add(filled, std::memory_order_relaxed);
    if (failed) fail();
    return filled;
}

/// The request's next packet; `last` says whether there is another one.
ibv_wc_status RawPacketQp::fill(const WorkQueue::Request& request, rte_mbuf* packet, bool& last) noexcept {
    const OutgoingRequest outgoing{.front = {request.inline_room(), request.header_size + request.inline_size},
                                   .sges = request.sges(),
                                   .mss = request.mss,
                                   .checksums = {request.checksums, request.checksums}};
    const ibv_wc_status status = build_frame(spec_.memory, spec_.domain, outgoing, segment_, packet);
    last = segment_.last;
    return status;
}

/// On a worker: the QP fails with its receive queue, unless the application has reset it meanwhile.
void RawPacketQp::receive_failed() noexcept {
    ibv_qp_state now = state();
    while (now != IBV_QPS_RESET && now != IBV_QPS_INIT && now != IBV_QPS_ERR) {
        if (state_.compare_exchange_weak(now, IBV_QPS_ERR)) break;
    }
    flush_send();
}

/// Both sides flush; the state is ERR already.
void RawPacketQp::fail() noexcept {
    flush_send();
    receiver_.fail();
}

void RawPacketQp::flush_send() noexcept {
    std::lock_guard guard(execute_mutex_);
    if (state() != IBV_QPS_ERR) return;
    while (const WorkQueue::Request* const request = send_.front()) {
        const Completion flushed = completion_of(*request, send_, spec_.qpn, IBV_WC_SEND, IBV_WC_WR_FLUSH_ERR);
        spec_.send_queue.add({&flushed, 1});
    }
}

}  // namespace ovsdr::soft
