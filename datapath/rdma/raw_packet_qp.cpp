#include "datapath/rdma/raw_packet_qp.hpp"

#include <rte_mempool.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace ovsdr::soft {

namespace {

/// mlx5's vendor syndromes for the errors that occur here (struct mlx5_err_cqe, vendor_err_synd).
constexpr std::uint32_t no_vendor_error = 0;

[[nodiscard]] bool receives_in(ibv_qp_state state) {
    return state == IBV_QPS_RTR || state == IBV_QPS_RTS || state == IBV_QPS_SQD;
}

[[nodiscard]] std::uint32_t receive_flags(const rte_mbuf* packet) {
    constexpr std::uint64_t good = RTE_MBUF_F_RX_IP_CKSUM_GOOD | RTE_MBUF_F_RX_L4_CKSUM_GOOD;
    return (packet->ol_flags & good) == good ? IBV_WC_IP_CSUM_OK : 0;
}

}  // namespace

RawPacketQp::RawPacketQp(const RawPacketQpSpec& spec)
    : spec_(spec),
      send_(spec.cap.max_send_wr, spec.cap.max_send_sge, spec.cap.max_inline_data),
      receive_(spec.cap.max_recv_wr, spec.cap.max_recv_sge, 0) {
    spec_.send_queue.hold();
    spec_.receive_queue.hold();
}

RawPacketQp::~RawPacketQp() {
    stop_sending();
    spec_.send_queue.forget(spec_.qpn);
    spec_.receive_queue.forget(spec_.qpn);
    spec_.send_queue.release();
    spec_.receive_queue.release();
}

RawPacketQp::Counters RawPacketQp::counters() const noexcept {
    return {received_.load(std::memory_order_relaxed), sent_.load(std::memory_order_relaxed),
            out_of_buffer_.load(std::memory_order_relaxed), not_ready_.load(std::memory_order_relaxed)};
}

Completion RawPacketQp::completion_of(const WorkQueue::Request& request, ibv_wc_status status, ibv_wc_opcode opcode,
                                      WorkQueue& queue) noexcept {
    return Completion{.wr_id = request.wr_id,
                      .status = status,
                      .opcode = opcode,
                      .vendor_err = no_vendor_error,
                      .byte_len = 0,
                      .qp_num = spec_.qpn,
                      .wc_flags = 0,
                      .flow_tag = 0,
                      .solicited = request.solicited,
                      .timestamp = 0,
                      .freed = &queue.freed(),
                      .freed_up_to = queue.advance()};
}

// Sending, on a worker.

unsigned RawPacketQp::poll(void* self, rte_mbuf** packets, unsigned length) noexcept {
    return static_cast<RawPacketQp*>(self)->send(packets, length);
}

unsigned RawPacketQp::send(rte_mbuf** packets, unsigned length) noexcept {
    if (send_.idle() || state() != IBV_QPS_RTS) return 0;
    std::array<Completion, batch_length> done;
    unsigned completions = 0;
    unsigned filled = 0;
    ibv_wc_status status = IBV_WC_SUCCESS;
    {
        std::lock_guard guard(send_mutex_);
        const MemoryTable::Reading reading(spec_.memory, spec_.sqn);
        while (filled < length && status == IBV_WC_SUCCESS && state() == IBV_QPS_RTS) {
            const WorkQueue::Request* const request = send_.front();
            if (!request) break;
            rte_mbuf* const packet = rte_pktmbuf_alloc(spec_.mempool);
            if (!packet) break;  // The pool is empty for now: what is posted stays posted.
            status = gather(*request, packet);
            const bool reported = request->signaled || status != IBV_WC_SUCCESS;
            const Completion completion = completion_of(*request, status, IBV_WC_SEND, send_);
            if (reported) done[completions++] = completion;
            if (status == IBV_WC_SUCCESS) {
                packets[filled++] = packet;
            } else {
                rte_pktmbuf_free(packet);
            }
        }
        if (status != IBV_WC_SUCCESS) state_.store(IBV_QPS_ERR, std::memory_order_release);
        spec_.send_queue.add({done.data(), completions});
    }
    sent_.fetch_add(filled, std::memory_order_relaxed);
    if (status != IBV_WC_SUCCESS) fail();
    return filled;
}

ibv_wc_status RawPacketQp::gather(const WorkQueue::Request& request, rte_mbuf* packet) noexcept {
    std::uint64_t size = request.inline_size;
    for (const ibv_sge& sge : request.sges()) size += sge.length;
    if (size > rte_pktmbuf_tailroom(packet)) return IBV_WC_LOC_LEN_ERR;
    char* out = rte_pktmbuf_append(packet, static_cast<std::uint16_t>(size));
    if (request.inline_size) std::memcpy(out, request.inline_bytes().data(), request.inline_size);
    for (const ibv_sge& sge : request.sges()) {
        if (sge.length == 0) continue;
        const std::byte* const from = spec_.memory.lookup(sge.lkey, sge.addr, sge.length, 0, spec_.domain);
        if (!from) return IBV_WC_LOC_PROT_ERR;
        std::memcpy(out, from, sge.length);
        out += sge.length;
    }
    return IBV_WC_SUCCESS;
}

// Receiving, on a worker.

void RawPacketQp::deliver(void* self, unsigned worker, rte_mbuf** packets, unsigned length) noexcept {
    static_cast<RawPacketQp*>(self)->receive(worker, packets, length);
}

void RawPacketQp::receive(unsigned worker, rte_mbuf** packets, unsigned length) noexcept {
    std::array<Completion, batch_length> done;
    unsigned completions = 0;
    unsigned received = 0;
    ibv_wc_status status = IBV_WC_SUCCESS;
    if (receives_in(state())) {
        std::lock_guard guard(receive_mutex_);
        const MemoryTable::Reading reading(spec_.memory, worker);
        for (; received < length && status == IBV_WC_SUCCESS && receives_in(state()); ++received) {
            const WorkQueue::Request* const request = receive_.front();
            if (!request) break;
            const rte_mbuf* const packet = packets[received];
            status = scatter(*request, packet);
            Completion& completion = done[completions++] = completion_of(*request, status, IBV_WC_RECV, receive_);
            completion.byte_len = rte_pktmbuf_pkt_len(packet);
            completion.flow_tag = tag_of(packet);
            completion.wc_flags = receive_flags(packet);
        }
        if (status != IBV_WC_SUCCESS) state_.store(IBV_QPS_ERR, std::memory_order_release);
        spec_.receive_queue.add({done.data(), completions});
        received_.fetch_add(completions - (status != IBV_WC_SUCCESS), std::memory_order_relaxed);
        out_of_buffer_.fetch_add(length - received, std::memory_order_relaxed);
    } else {
        not_ready_.fetch_add(length, std::memory_order_relaxed);
    }
    rte_pktmbuf_free_bulk(packets, length);
    if (status != IBV_WC_SUCCESS) fail();
}

ibv_wc_status RawPacketQp::scatter(const WorkQueue::Request& request, const rte_mbuf* packet) noexcept {
    const char* from = rte_pktmbuf_mtod(packet, const char*);
    std::uint32_t left = rte_pktmbuf_data_len(packet);
    for (const ibv_sge& sge : request.sges()) {
        const std::uint32_t size = std::min(left, sge.length);
        if (size == 0) continue;
        std::byte* const to = spec_.memory.lookup(sge.lkey, sge.addr, size, IBV_ACCESS_LOCAL_WRITE, spec_.domain);
        if (!to) return IBV_WC_LOC_PROT_ERR;
        std::memcpy(to, from, size);
        from += size;
        left -= size;
    }
    return left == 0 ? IBV_WC_SUCCESS : IBV_WC_LOC_LEN_ERR;
}

// Failure: both queues flush, neither lock held when the other is taken.

void RawPacketQp::fail() noexcept {
    flush_send();
    flush_receive();
}

void RawPacketQp::flush(std::mutex& mutex, WorkQueue& queue, CompletionQueue& completions, ibv_wc_opcode opcode) noexcept {
    std::lock_guard guard(mutex);
    if (state() != IBV_QPS_ERR) return;
    while (const WorkQueue::Request* const request = queue.front()) {
        const Completion flushed = completion_of(*request, IBV_WC_WR_FLUSH_ERR, opcode, queue);
        completions.add({&flushed, 1});
    }
}

}  // namespace ovsdr::soft
