// The responder's requests: what of them is taken, and what it does.
#include "datapath/rdma/roce/responder.hpp"

#include <algorithm>
#include <cstring>

#include "datapath/ports/guarded_copy.hpp"
#include "datapath/rdma/roce/local_operations.hpp"
#include "datapath/rdma/roce/pair.hpp"
#include "datapath/rdma/roce/tag_matching.hpp"

namespace ovsdr::soft::roce {

namespace {

constexpr std::uint32_t most_message = 1u << 31;
constexpr unsigned grh_size = 40;
/// What stands in bits 2:0 of a datagram's service level: the L3 header that it came with. 0 would be RoCE v1.
/// Source: mlx5_ib, handle_responder(); UCX asks for it.
constexpr std::uint8_t roce_l3_type_ipv6 = 1, roce_l3_type_ipv4 = 2;

template <typename Header>
[[nodiscard]] Header load(const std::byte* from) noexcept {
    Header header;
    std::memcpy(&header, from, sizeof header);
    return header;
}

/// The immediate, or the key to invalidate, stands last.
[[nodiscard]] __be32 immediate_of(const Arrival& arrival) noexcept {
    return load<__be32>(arrival.payload - sizeof(__be32));
}

}  // namespace

Responder::Responder(Pair& pair, const Peer& peer) noexcept : pair_(pair), peer_(peer), spec_(pair.spec()) {
    start(0);
}

void Responder::reset() noexcept {
    if (has_receive_ && receive_.tag == Receive::Tag::matched) {
        receive_.srq->tags()->forget(receive_.match);
    } else if (has_receive_ && receive_.srq != nullptr) {
        receive_.srq->give_back(receive_.slot);
    }
    has_receive_ = false;
    next_receive_ = 0;
    first_answer_ = answers_ = 0;
    start(0);
}

void Responder::start(std::uint32_t psn) noexcept {
    expected_ = psn & mask24;
    messages_ = 0;
    refused_ = dropping_ = failed_ = false;
    kind_ = Kind::none;
    results_length_ = next_result_ = 0;
    reading_open_ = false;
}

bool Responder::has_posts() const noexcept {
    if (spec_.receive.length == 0) return false;
    const std::uint32_t counter = be32toh(spec_.receive.doorbell->load(std::memory_order_acquire));
    const auto ahead = static_cast<std::uint16_t>(counter - static_cast<std::uint32_t>(next_receive_));
    return ahead != 0 && ahead <= spec_.receive.length;
}

unsigned Responder::granted() const noexcept {
    return std::min<unsigned>(pair_.attr().max_dest_rd_atomic, most_reads);
}

const void* Responder::domain_of(const Arrival& arrival) const noexcept {
    if (arrival.service != ServiceType::xrc) return spec_.domain;
    const void* domain = nullptr;
    const std::uint32_t number = be32toh(load<__be32>(arrival.extensions)) & mask24;
    pair_.transport().with_shared_queue(number, [&](const SharedReceiveQueue* queue) {
        if (queue != nullptr && queue->spec().xrc_domain == spec_.xrc_domain) domain = queue->spec().domain;
    });
    return domain;
}

Transfer::Spec Responder::remote_spec(const void* domain, unsigned access) const noexcept {
    return {.memory = spec_.state.memory(),
            .domain = domain,
            .access = access,
            .remote = true,
            .stripe = pair_.engine().worker(),
            .qpn = spec_.qpn};
}

/// Sequence numbers decide first.
void Responder::request(const Arrival& arrival) noexcept {
    const std::int32_t ahead = psn_distance(expected_, arrival.psn);
    if (ahead > 0) {
        if (!refused_) refuse(expected_, Nak::sequence);
        refused_ = true;
    } else if (ahead < 0) {
        answer_again(arrival);
    } else {
        refused_ = false;
        execute(arrival);
    }
}

bool Responder::fits_sequence(const Arrival& arrival) const noexcept {
    const Operation& operation = arrival.operation;
    if (operation.first != (kind_ == Kind::none)) return false;
    if (!operation.first && operation.kind != kind_) return false;
    if (operation.kind != Kind::send && operation.kind != Kind::write) return arrival.payload_size == 0;
    if (!operation.last) return arrival.payload_size == pair_.mtu();
    return arrival.payload_size <= pair_.mtu() && (operation.first || arrival.payload_size != 0);
}

void Responder::execute(const Arrival& arrival) noexcept {
    if (!fits_sequence(arrival)) return refuse_and_fail(arrival.psn, Nak::invalid_request);
    switch (arrival.operation.kind) {
        case Kind::read: return read(arrival, false);
        case Kind::compare_swap:
        case Kind::fetch_add: return atomic(arrival);
        default: break;
    }
    bool ready = true;
    if (const auto code = message(arrival, ready)) return refuse_and_fail(arrival.psn, *code);
    if (!ready) return not_ready(arrival);
    expected_ = psn_add(arrival.psn, 1);
    if (arrival.ack_requested()) acknowledge(arrival.psn);
}

/// A packet of a send or a write. `ready` false: there is no receive entry, and nothing was done.
std::optional<Nak> Responder::message(const Arrival& arrival, bool& ready) noexcept {
    const Operation& operation = arrival.operation;
    const bool takes_entry = operation.kind == Kind::send ? operation.first : operation.last && operation.immediate;
    if (takes_entry && operation.kind == Kind::send && spec_.srq != nullptr && spec_.srq->tags() != nullptr) {
        if (const auto code = take_tagged(arrival, ready)) return code;
        if (ready && !has_receive_) return std::nullopt;  // a rendezvous, which is complete
    } else if (takes_entry && !take_receive(arrival, ready)) {
        return Nak::invalid_request;
    }
    if (!ready) return std::nullopt;
    if (operation.first) {
        if (const auto code = begin_message(arrival)) return code;
    }
    const std::uint64_t size = operation.kind == Kind::write ? announced_ : transfer_.size();
    std::span<const std::byte> payload{arrival.payload, arrival.payload_size};
    const bool matched = operation.kind == Kind::send && receive_.tag == Receive::Tag::matched;
    if (operation.first && matched) payload = payload.subspan(sizeof(ibv_tmh));
    if (payload.size() > size - offset_) {
        if (operation.kind == Kind::send) complete(arrival, IBV_WC_LOC_LEN_ERR, 0, 0);
        return Nak::invalid_request;
    }
    if (transfer_.scatter(offset_, payload) != Transfer::Fault::none) {
        if (operation.kind == Kind::write) return Nak::access;
        complete(arrival, IBV_WC_LOC_PROT_ERR, 0, 0);
        return Nak::operation;
    }
    offset_ += payload.size();
    kind_ = operation.kind;
    return operation.last ? end_message(arrival) : std::nullopt;
}

std::optional<Nak> Responder::begin_message(const Arrival& arrival) noexcept {
    offset_ = announced_ = 0;
    if (arrival.operation.kind == Kind::send) {
        const Transfer::Spec local{.memory = spec_.state.memory(),
                                   .domain = receive_.srq != nullptr ? receive_.srq->spec().domain : spec_.domain,
                                   .access = IBV_ACCESS_LOCAL_WRITE,
                                   .remote = false,
                                   .stripe = pair_.engine().worker()};
        if (transfer_.begin(local, {receive_.pieces.data(), receive_.length}) == Transfer::Fault::none) {
            return std::nullopt;
        }
        complete(arrival, IBV_WC_LOC_PROT_ERR, 0, 0);
        return Nak::operation;
    }
    const Reth header = load<Reth>(arrival.headers());
    announced_ = be32toh(header.size);
    if (announced_ > most_message) return Nak::invalid_request;
    if (!(pair_.attr().qp_access_flags & IBV_ACCESS_REMOTE_WRITE)) return Nak::access;
    const ibv_sge place{be64toh(header.address), static_cast<std::uint32_t>(announced_), be32toh(header.rkey)};
    // A write of nothing touches no memory: its key is not looked at (IBTA 9.7.4.1.6).
    const auto fault = transfer_.begin(remote_spec(domain_of(arrival), IBV_ACCESS_REMOTE_WRITE), {&place, 1});
    return fault == Transfer::Fault::none ? std::nullopt : std::optional(Nak::access);
}

std::optional<Nak> Responder::end_message(const Arrival& arrival) noexcept {
    const Operation& operation = arrival.operation;
    const bool write = operation.kind == Kind::write;
    kind_ = Kind::none;
    if (write && offset_ != announced_) return Nak::invalid_request;
    if (operation.invalidate) {
        const std::uint32_t key = be32toh(immediate_of(arrival));
        if (invalidate_remotely(spec_.state, spec_.domain, spec_.qpn, key) != 0) return Nak::access;
    }
    ++messages_;
    if (!write || operation.immediate) {
        const unsigned flags = (operation.immediate ? static_cast<unsigned>(IBV_WC_WITH_IMM) : 0u) |
                               (operation.invalidate ? static_cast<unsigned>(IBV_WC_WITH_INV) : 0u);
        complete(arrival, IBV_WC_SUCCESS, static_cast<std::uint32_t>(offset_), flags);
    }
    return std::nullopt;
}

void Responder::hold(const SharedReceiveQueue::Request& request, SharedReceiveQueue& queue) noexcept {
    receive_.wr_id = request.wr_id;
    receive_.slot = request.slot;
    receive_.srq = &queue;
    receive_.length = request.length;
    std::copy_n(request.sges.begin(), request.length, receive_.pieces.begin());
    has_receive_ = true;
}

/// false: the request names no receive queue. Without an entry `exists` is false.
bool Responder::take_receive(const Arrival& arrival, bool& exists) noexcept {
    exists = true;
    receive_.tag = Receive::Tag::off;
    if (has_receive_) return true;  // of a message that was abandoned, or that waited for it
    bool named = true;
    const auto from_shared = [&](SharedReceiveQueue* queue) {
        SharedReceiveQueue::Request request;
        exists = queue->take(request);
        if (exists) hold(request, *queue);
    };
    if (arrival.service == ServiceType::xrc) {
        const std::uint32_t number = be32toh(load<__be32>(arrival.extensions)) & mask24;
        pair_.transport().with_shared_queue(number, [&](SharedReceiveQueue* queue) {
            named = queue != nullptr && queue->spec().xrc_domain == spec_.xrc_domain;
            if (named) from_shared(queue);
        });
    } else if (spec_.srq != nullptr) {
        from_shared(spec_.srq);
    } else {
        exists = has_posts();
        if (exists) take_own();
    }
    return named;
}

/// The next entry of the ring; there is one.
void Responder::take_own() noexcept {
    const ReceiveRing& ring = spec_.receive;
    receive_.index = next_receive_++;
    receive_.srq = nullptr;
    receive_.wr_id = ring.wr_ids != nullptr ? ring.wr_ids[receive_.index & (ring.length - 1)] : 0;
    receive_.length = read_receive_entry(ring, receive_.index, std::span<ibv_sge, most_pieces>(receive_.pieces));
    has_receive_ = true;
}

void Responder::complete(const Arrival& arrival, ibv_wc_status status, std::uint32_t size, unsigned flags) noexcept {
    has_receive_ = false;
    kind_ = Kind::none;
    const bool ring = receive_.srq == nullptr;
    Completion completion{
        .wr_id = receive_.wr_id,
        .status = status,
        .opcode = arrival.operation.kind == Kind::write ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV,
        .byte_len = size,
        .qp_num = spec_.qpn,
        .wc_flags = flags,
        .solicited = arrival.solicited(),
        .freed = ring ? spec_.receive.freed : nullptr,
        .freed_up_to = ring ? receive_.index + 1 : 0,
        .wqe_counter = static_cast<std::uint16_t>(ring ? receive_.index : receive_.slot),
        .user_index = spec_.user_index};
    if (flags & IBV_WC_WITH_IMM) completion.imm_data = immediate_of(arrival);
    if (flags & IBV_WC_WITH_INV) completion.imm_data = be32toh(immediate_of(arrival));
    if (arrival.service == ServiceType::ud) {
        completion.sl = arrival.ipv4 ? roce_l3_type_ipv4 : roce_l3_type_ipv6;
        completion.src_qp = be32toh(load<Deth>(arrival.extensions).source) & mask24;
    }
    CompletionQueue* queue = spec_.receive_queue;
    if (!ring) {
        if (receive_.srq->spec().completions != nullptr) queue = receive_.srq->spec().completions;
        if (receive_.tag != Receive::Tag::matched) receive_.srq->give_back(receive_.slot);
        if (receive_.tag != Receive::Tag::off) complete_tagged(arrival, completion);
    }
    queue->add({&completion, 1});
}

void Responder::flush() noexcept {
    const Arrival none{.operation = {.kind = Kind::send}};
    if (has_receive_) complete(none, IBV_WC_WR_FLUSH_ERR, 0, 0);
    kind_ = Kind::none;
    while (has_posts()) {
        take_own();
        complete(none, IBV_WC_WR_FLUSH_ERR, 0, 0);
    }
}

void Responder::read(const Arrival& arrival, bool again) noexcept {
    const Reth header = load<Reth>(arrival.headers());
    const std::uint32_t size = be32toh(header.size);
    unsigned waiting = 0;
    for (unsigned i = 0; i < answers_; ++i) {
        const auto type = answer_at(i).type;
        // What is answered again the requester may have had already: it does not count.
        waiting += !answer_at(i).again && (type == Answer::Type::read || type == Answer::Type::atomic);
    }
    if (size > most_message || (!again && waiting >= granted())) {
        return refuse_and_fail(arrival.psn, Nak::invalid_request);
    }
    const ibv_sge place{be64toh(header.address), size, be32toh(header.rkey)};
    const void* const domain = domain_of(arrival);
    Transfer probe;
    if (!(pair_.attr().qp_access_flags & IBV_ACCESS_REMOTE_READ) ||
        probe.begin(remote_spec(domain, IBV_ACCESS_REMOTE_READ), {&place, 1}) != Transfer::Fault::none) {
        return refuse_and_fail(arrival.psn, Nak::access);
    }
    const std::uint32_t packets = std::max<std::uint32_t>(1, size / pair_.mtu() + (size % pair_.mtu() != 0));
    const Answer answer{.type = Answer::Type::read,
                        .again = again,
                        .psn = arrival.psn,
                        .packets = packets,
                        .address = place.addr,
                        .rkey = place.lkey,
                        .size = size,
                        .domain = domain};
    if (again) return read_again(answer);
    push(answer);
    expected_ = psn_add(arrival.psn, packets);
    ++messages_;
}

void Responder::atomic(const Arrival& arrival) noexcept {
    const AtomicEth header = load<AtomicEth>(arrival.headers());
    const std::uint64_t address = be64toh(header.address);
    if (address % sizeof(std::uint64_t) != 0 || granted() == 0) {
        return refuse_and_fail(arrival.psn, Nak::invalid_request);
    }
    std::uint64_t before = 0;
    {
        const ibv_sge piece{address, sizeof before, be32toh(header.rkey)};
        Transfer place;
        bool done = false;
        const bool allowed = pair_.attr().qp_access_flags & IBV_ACCESS_REMOTE_ATOMIC;
        const auto spec = remote_spec(domain_of(arrival), IBV_ACCESS_REMOTE_ATOMIC);
        if (allowed && place.begin(spec, {&piece, 1}) == Transfer::Fault::none) {
            const auto fault = place.in_place([&](std::byte* memory) {
                if (reinterpret_cast<std::uintptr_t>(memory) % sizeof before != 0) return;
                auto* const word = reinterpret_cast<std::uint64_t*>(memory);
                const std::uint64_t swap_add = be64toh(header.swap_add);
                before = be64toh(header.compare);
                done = arrival.operation.kind == Kind::fetch_add ? guarded_fetch_add(word, swap_add, before)
                                                                 : guarded_compare_swap(word, swap_add, before);
            });
            done &= fault == Transfer::Fault::none;
        }
        if (!done) return refuse_and_fail(arrival.psn, Nak::access);
    }
    results_[next_result_] = {arrival.psn, before};
    next_result_ = (next_result_ + 1) % most_reads;
    results_length_ = std::min(results_length_ + 1, most_reads);
    push({.type = Answer::Type::atomic, .psn = arrival.psn, .value = before});
    expected_ = psn_add(arrival.psn, 1);
    ++messages_;
}

/// UC: what does not follow is lost, up to the next message (IBTA 9.8.2.2).
void Responder::unreliable_request(const Arrival& arrival) noexcept {
    const bool first = arrival.operation.first;
    const bool in_order = arrival.psn == expected_;
    expected_ = psn_add(arrival.psn, 1);
    if (first) {
        kind_ = Kind::none;
        dropping_ = false;
    } else if (!in_order) {
        dropping_ = true;
    }
    if (dropping_) {
        kind_ = Kind::none;
        return;
    }
    dropping_ = true;  // unless all goes well
    if (!fits_sequence(arrival)) return;
    bool ready = true;
    const bool had_receive = has_receive_;
    const auto code = message(arrival, ready);
    if (!code && ready) {
        dropping_ = false;
        return;
    }
    kind_ = Kind::none;
    // A receive entry that was completed with an error fails the queue; a key that is not granted does not.
    const bool completed = arrival.operation.kind == Kind::send && ready && !has_receive_;
    if (completed || (had_receive && !has_receive_)) fail();
}

void Responder::datagram(const Arrival& arrival) noexcept {
    const Deth header = load<Deth>(arrival.extensions);
    if (be32toh(header.qkey) != pair_.attr().qkey || arrival.payload_size > pair_.mtu()) return;
    bool exists = false;
    if (!take_receive(arrival, exists) || !exists) return;
    const Transfer::Spec local{.memory = spec_.state.memory(),
                               .domain = receive_.srq != nullptr ? receive_.srq->spec().domain : spec_.domain,
                               .access = IBV_ACCESS_LOCAL_WRITE,
                               .remote = false,
                               .stripe = pair_.engine().worker()};
    // The place of the GRH: an IPv6 header as it came, an IPv4 header in the last 20 bytes.
    std::array<std::byte, grh_size> grh{};
    if (arrival.ipv4) {
        std::memcpy(grh.data() + 20, arrival.ip, 20);
    } else {
        std::memcpy(grh.data(), arrival.ip, grh_size);
    }
    ibv_wc_status status = IBV_WC_SUCCESS;
    if (transfer_.begin(local, {receive_.pieces.data(), receive_.length}) != Transfer::Fault::none) {
        status = IBV_WC_LOC_PROT_ERR;
    } else if (transfer_.size() < grh_size + arrival.payload_size) {
        status = IBV_WC_LOC_LEN_ERR;
    } else if (transfer_.scatter(0, grh) != Transfer::Fault::none ||
               transfer_.scatter(grh_size, {arrival.payload, arrival.payload_size}) != Transfer::Fault::none) {
        status = IBV_WC_LOC_PROT_ERR;
    }
    const unsigned flags = static_cast<unsigned>(IBV_WC_GRH) |
                           (arrival.operation.immediate ? static_cast<unsigned>(IBV_WC_WITH_IMM) : 0u);
    complete(arrival, status, status == IBV_WC_SUCCESS ? grh_size + arrival.payload_size : 0,
             status == IBV_WC_SUCCESS ? flags : 0);
    if (status != IBV_WC_SUCCESS) fail();
}

}  // namespace ovsdr::soft::roce
