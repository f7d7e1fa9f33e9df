#include "datapath/rdma/ethernet/receive_queue.hpp"

#include <isa-l/crc.h>
#include <rte_mbuf.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "common/wide_registers.hpp"
#include "datapath/control/fault.hpp"
#include "datapath/rdma/completion/cqe_ring.hpp"
#include "datapath/rdma/ethernet/inner_packet.hpp"
#include "datapath/rdma/ethernet/segmentation.hpp"
#include "datapath/rdma/ethernet/sender_mark.hpp"
#include "datapath/ports/guarded_copy.hpp"
#include "datapath/steering/key.hpp"
#include "datapath/steering/parser.hpp"

namespace ovsdr::soft {

namespace {

constexpr std::uint8_t protocol_tcp = 6, protocol_udp = 17;

using PacketBytes = std::span<const std::uint8_t>;

[[nodiscard]] PacketBytes bytes_of(const rte_mbuf* packet) {
    return {rte_pktmbuf_mtod(packet, const std::uint8_t*), rte_pktmbuf_data_len(packet)};
}

[[nodiscard]] Checksums checksums_of(const rte_mbuf* packet) {
    constexpr std::uint64_t good = RTE_MBUF_F_RX_IP_CKSUM_GOOD | RTE_MBUF_F_RX_L4_CKSUM_GOOD;
    if ((packet->ol_flags & good) == good) return {true, true};
    return good_checksums(bytes_of(packet));
}

/// See Completion::headers.
[[nodiscard]] std::uint16_t headers_of(PacketBytes packet, const Headers& headers, Checksums good) {
    namespace bits = received_headers;
    unsigned found = bits::l2_good;
    if (headers.l3_version == 0) return static_cast<std::uint16_t>(found);
    found |= headers.l3_version == 4 ? bits::ipv4 : bits::ipv6;
    if (headers.fragment) found |= bits::fragment;
    if (headers.l3_version == 4 && (packet[headers.l3] & 15) > 5) found |= bits::ip_options;
    if (headers.l4 != 0 && !headers.fragment && headers.l4_protocol == protocol_tcp) found |= bits::tcp;
    if (headers.l4 != 0 && !headers.fragment && headers.l4_protocol == protocol_udp) found |= bits::udp;
    if (good.ip) found |= bits::l3_good;
    if (good.transport) found |= bits::l4_good;
    return static_cast<std::uint16_t>(found);
}

/// Of a tunnel's outer header: a UDP checksum that is not there is none that is wrong.
[[nodiscard]] bool outer_is_good(PacketBytes frame, const Headers& outer) {
    constexpr unsigned udp_checksum = 6;
    const Checksums good = good_checksums(frame, outer);
    const bool none =
        outer.l4 == 0 || outer.l4_protocol != protocol_udp || load_be16(frame.data() + outer.l4 + udp_checksum) == 0;
    return good.ip && (none || good.transport);
}

/// The packet that a tunnel carries, where there is one and the receiver looks inside; false otherwise.
[[nodiscard]] bool describe_inner(PacketBytes frame, Completion& completion) {
    const InnerPacket inner = inner_packet(frame);
    if (inner.bytes.empty()) return false;
    const Headers outer = locate(frame.data(), static_cast<std::uint32_t>(frame.size()));
    Checksums good = good_checksums(inner.bytes, inner.headers);
    if (!outer_is_good(frame, outer)) good = {};
    completion.wc_flags = good.both() ? IBV_WC_IP_CSUM_OK : 0;
    completion.headers = headers_of(inner.bytes, inner.headers, good);
    completion.tunnel = received_tunnel::tunneled | (outer.l3_version == 4 ? received_tunnel::outer_ipv4 : 0);
    return true;
}

/// What a CQE says of the frame beside its bytes.
void describe(const rte_mbuf* packet, Completion& completion) {
    const PacketBytes frame = bytes_of(packet);
    const bool spread = packet->ol_flags & RTE_MBUF_F_RX_RSS_HASH;
    completion.flow_tag = tag_of(packet);
    completion.imm_data = htobe32(reg_b_of(packet));
    if (spread) {
        completion.rx_hash = packet->hash.fdir.lo;
        completion.rx_hash_type = static_cast<std::uint8_t>(packet->packet_type);
    }
    if (spread && (packet->packet_type & rx_hash_type::looks_inside) && describe_inner(frame, completion)) return;
    const Headers headers = locate(frame.data(), static_cast<std::uint32_t>(frame.size()));
    const Checksums good = headers.l3_version != 0 ? checksums_of(packet) : Checksums{};
    completion.wc_flags = good.both() ? IBV_WC_IP_CSUM_OK : 0;
    completion.headers = headers_of(frame, headers, good);
}

}  // namespace

Completion completion_of(const WorkQueue::Request& request, WorkQueue& queue, std::uint32_t number,
                         ibv_wc_opcode opcode, ibv_wc_status status) noexcept {
    return Completion{.wr_id = request.wr_id,
                      .status = status,
                      .opcode = opcode,
                      .vendor_err = 0,
                      .byte_len = 0,
                      .qp_num = number,
                      .wc_flags = 0,
                      .flow_tag = 0,
                      .solicited = request.solicited,
                      .timestamp = 0,
                      .freed = &queue.freed(),
                      .freed_up_to = queue.advance()};
}

ibv_wc_status injected_status(std::string_view fault) noexcept {
    switch (injected_fault(fault)) {
        case 0: return IBV_WC_SUCCESS;
        case EMSGSIZE: return IBV_WC_LOC_LEN_ERR;
        case EFAULT: return IBV_WC_LOC_PROT_ERR;
        default: return IBV_WC_GENERAL_ERR;
    }
}

ReceiveQueue::ReceiveQueue(const ReceiveQueueSpec& spec, std::function<void()> failed)
    : spec_(spec),
      failed_(std::move(failed)),
      queue_(spec.length, spec.max_sges, 0, spec.allocate),
      strip_cvlan_(spec.flags.strip_cvlan) {
    spec_.completions.hold();
}

ReceiveQueue::~ReceiveQueue() {
    spec_.completions.forget(spec_.number);
    spec_.completions.release();
}

ReceiveQueue::Counters ReceiveQueue::counters() const noexcept {
    return {received_.load(std::memory_order_relaxed), out_of_buffer_.load(std::memory_order_relaxed),
            not_ready_.load(std::memory_order_relaxed)};
}

void ReceiveQueue::open() noexcept {
    State closed = State::closed;
    state_.compare_exchange_strong(closed, State::open);
}

void ReceiveQueue::fail() noexcept {
    state_.store(State::failed, std::memory_order_seq_cst);
    flush();
}

void ReceiveQueue::reset() {
    std::scoped_lock guard(post_mutex_, execute_mutex_);
    state_.store(State::closed, std::memory_order_seq_cst);
    spec_.completions.forget(spec_.number);
    queue_.reset();
    taken_ = 0;
}

int ReceiveQueue::post(ibv_recv_wr* first, ibv_recv_wr** bad) {
    std::lock_guard guard(post_mutex_);
    unsigned staged = 0;
    int error = 0;
    ibv_recv_wr* request = first;
    for (; request; request = request->next) {
        WorkQueue::Request* const room = queue_.room(staged);
        if (request->num_sge < 0 || static_cast<unsigned>(request->num_sge) > spec_.max_sges) error = EINVAL;
        if (!room) error = ENOMEM;
        if (error) break;
        *room = WorkQueue::Request{request->wr_id, static_cast<std::uint32_t>(request->num_sge), 0, true, false};
        std::copy_n(request->sg_list, request->num_sge, room->sge_room());
        ++staged;
    }
    if (error) *bad = request;
    if (staged) queue_.publish(staged);
    if (state() == State::failed) flush();
    return error;
}

void ReceiveQueue::deliver(void* self, unsigned worker, rte_mbuf** packets, unsigned length) noexcept {
    auto& queue = *static_cast<ReceiveQueue*>(self);
    if (queue.spec_.unheard != 0) length = queue.drop_unheard(packets, length);
    queue.receive(worker, packets, length);
}

unsigned ReceiveQueue::drop_unheard(rte_mbuf** packets, unsigned length) const noexcept {
    const SenderMark& mark = SenderMark::get();
    unsigned left = 0;
    for (unsigned i = 0; i < length; ++i) {
        const bool multicast = *rte_pktmbuf_mtod(packets[i], const std::uint8_t*) & 1;
        if (multicast && mark.of(packets[i]) == spec_.unheard) {
            rte_pktmbuf_free(packets[i]);
        } else {
            packets[left++] = packets[i];
        }
    }
    return left;
}

void ReceiveQueue::receive(unsigned worker, rte_mbuf** packets, unsigned length) noexcept {
    std::array<Completion, batch_length> done;
    unsigned taken = 0;
    bool failed = false;
    if (state() == State::open) {
        std::lock_guard guard(execute_mutex_);
        const MemoryTable::Reading reading(spec_.memory, worker);
        const bool faulty = faults_are_armed();
        while (taken < length && !failed && state() == State::open) {
            Completion& completion = done[taken];
            std::span<const ibv_sge> sges;
            if (!take(completion, sges)) break;
            const rte_mbuf* const packet = packets[taken++];
            describe(packet, completion);
            completion.status = faulty ? injected_status("work_request_receive") : IBV_WC_SUCCESS;
            if (completion.status == IBV_WC_SUCCESS) completion.status = scatter(sges, packet, completion);
            failed = completion.status != IBV_WC_SUCCESS;
        }
        if (failed) state_.store(State::failed, std::memory_order_release);
        spec_.completions.add({done.data(), taken});
        received_.fetch_add(taken - failed, std::memory_order_relaxed);
        count_out_of_buffer(length - taken);
    } else {
        not_ready_.fetch_add(length, std::memory_order_relaxed);
    }
    rte_pktmbuf_free_bulk(packets, length);
    if (!failed) return;
    flush();
    if (failed_) failed_();
}

void ReceiveQueue::count_out_of_buffer(unsigned packets) noexcept {
    if (packets == 0) return;
    out_of_buffer_.fetch_add(packets, std::memory_order_relaxed);
    if (spec_.out_of_buffer) spec_.out_of_buffer->fetch_add(packets, std::memory_order_relaxed);
}

bool ReceiveQueue::take(Completion& completion, std::span<const ibv_sge>& sges) noexcept {
    if (spec_.ring) return take_from_ring(completion, sges);
    const WorkQueue::Request* const request = queue_.front();
    if (!request) return false;
    completion = completion_of(*request, queue_, spec_.number, IBV_WC_RECV, IBV_WC_SUCCESS);
    sges = request->sges();
    return true;
}

bool ReceiveQueue::take_from_ring(Completion& completion, std::span<const ibv_sge>& sges) noexcept {
    const roce::ReceiveRing& ring = *spec_.ring;
    const auto posted = static_cast<std::uint16_t>(be32toh(ring.doorbell->load(std::memory_order_acquire)));
    if (posted == static_cast<std::uint16_t>(taken_)) return false;
    sges = {pieces_.data(), read_receive_entry(ring, taken_, pieces_)};
    const std::uint64_t index = taken_++;
    completion = Completion{.wr_id = ring.wr_ids ? ring.wr_ids[index & (ring.length - 1)] : 0,
                            .status = IBV_WC_SUCCESS,
                            .opcode = IBV_WC_RECV,
                            .vendor_err = 0,
                            .byte_len = 0,
                            .qp_num = spec_.number,
                            .wc_flags = 0,
                            .flow_tag = 0,
                            .solicited = false,
                            .timestamp = 0,
                            .freed = ring.freed,
                            .freed_up_to = taken_,
                            .wqe_counter = static_cast<std::uint16_t>(index),
                            .user_index = spec_.user_index};
    return true;
}

ibv_wc_status ReceiveQueue::scatter(std::span<const ibv_sge> sges, const rte_mbuf* packet,
                                    Completion& completion) noexcept {
    constexpr std::uint32_t addresses = 12, tag = 4;
    const auto* const frame = rte_pktmbuf_mtod(packet, const std::uint8_t*);
    const std::uint32_t length = rte_pktmbuf_data_len(packet);
    const bool strips = strip_cvlan_.load(std::memory_order_relaxed) && length >= addresses + tag + 2 &&
                        load_be16(frame + addresses) == 0x8100;
    std::array<std::uint8_t, 4> fcs{};
    std::array<std::span<const std::uint8_t>, 3> parts{std::span(frame, strips ? addresses : length)};
    if (strips) {
        parts[1] = std::span(frame + addresses + tag, length - addresses - tag);
        completion.cvlan = load_be16(frame + addresses + 2);
        completion.headers |= received_headers::tag_stripped;
    }
    if (spec_.flags.scatter_fcs) {
        // Of the frame as it was on the wire, least significant byte first.
        const std::uint32_t sum = crc32_gzip_refl(0, frame, length);
        leave_wide_registers();
        std::memcpy(fcs.data(), &sum, sizeof sum);
        parts[2] = fcs;
    }
    for (const auto& part : parts) completion.byte_len += static_cast<std::uint32_t>(part.size());
    return place(sges, parts);
}

ibv_wc_status ReceiveQueue::place(std::span<const ibv_sge> sges,
                                  std::span<std::span<const std::uint8_t>> parts) noexcept {
    std::size_t used = 0;  // of the scatter entry that is being filled
    auto sge = sges.begin();
    for (std::span<const std::uint8_t> part : parts) {
        while (!part.empty()) {
            if (sge == sges.end()) return IBV_WC_LOC_LEN_ERR;
            const std::size_t size = std::min<std::size_t>(part.size(), sge->length - used);
            if (size != 0) {
                std::byte* const to =
                    spec_.memory.lookup(sge->lkey, sge->addr + used, size, IBV_ACCESS_LOCAL_WRITE, spec_.domain);
                if (!to || !guarded_copy(to, part.data(), size)) return IBV_WC_LOC_PROT_ERR;
            }
            part = part.subspan(size);
            used += size;
            if (used == sge->length) {
                ++sge;
                used = 0;
            }
        }
    }
    return IBV_WC_SUCCESS;
}

void ReceiveQueue::flush() noexcept {
    std::lock_guard guard(execute_mutex_);
    if (state() != State::failed || !spec_.flags.flush_in_error) return;
    Completion flushed;
    for (std::span<const ibv_sge> sges; take(flushed, sges);) {
        flushed.status = IBV_WC_WR_FLUSH_ERR;
        spec_.completions.add({&flushed, 1});
    }
}

}  // namespace ovsdr::soft
