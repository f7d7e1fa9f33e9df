// The requester's answers: what completes entries, and what makes it send again.
#include <algorithm>
#include <array>
#include <cstring>

#include "datapath/rdma/roce/pair.hpp"
#include "datapath/rdma/roce/requester.hpp"

namespace ovsdr::soft::roce {

namespace {

/// Microseconds by the timer field of an RNR NAK (IBTA volume 1, table 45).
constexpr std::array<std::uint32_t, 32> rnr_microseconds{
    655360, 10,   20,   30,   40,   60,    80,    120,   160,   240,   320,   480,    640,    960,    1280,   1920,
    2560,   3840, 5120, 7680, 10240, 15360, 20480, 30720, 40960, 61440, 81920, 122880, 163840, 245760, 327680, 491520};

[[nodiscard]] ibv_wc_status status_of(Nak code) noexcept {
    switch (code) {
        case Nak::invalid_request: return IBV_WC_REM_INV_REQ_ERR;
        case Nak::access: return IBV_WC_REM_ACCESS_ERR;
        default: return IBV_WC_REM_OP_ERR;
    }
}

}  // namespace

void Requester::acknowledge(const Arrival& arrival, std::uint64_t now) noexcept {
    Aeth header;
    std::memcpy(&header, arrival.headers(), sizeof header);
    const auto syndrome = static_cast<std::uint8_t>(be32toh(header.syndrome_msn) >> 24);
    const std::uint32_t psn = arrival.psn;
    // What is acknowledged already, or was never sent, says nothing.
    if (psn_distance(una_, psn) < 0 || psn_distance(psn, highest_psn_) <= 0) return;
    const auto kind = static_cast<std::uint8_t>(syndrome & 0x60), detail = static_cast<std::uint8_t>(syndrome & 0x1f);
    if (kind == 0x00) return complete_until(psn_add(psn, 1), now);
    if (kind != aeth_rnr && kind != aeth_nak) return;
    complete_until(psn, now);
    if (una_ != psn) return;  // the answer to a read before it is missing, or the queue has failed meanwhile
    if (kind == aeth_rnr) return not_ready(psn, detail, now);
    const auto code = static_cast<Nak>(detail);
    code == Nak::sequence ? lost(psn, now) : fail_oldest(status_of(code));
}

/// Everything before `psn` has arrived, unless the answer to a read before it has not.
void Requester::complete_until(std::uint32_t psn, std::uint64_t now) noexcept {
    const std::uint32_t before = una_;
    bool skipped = false;
    for (; first_ != last_; ++first_) {
        const Entry& entry = at(first_);
        if (entry.failure != IBV_WC_SUCCESS || psn_distance(psn_add(entry.psn, entry.packets), psn) < 0) break;
        skipped = entry.unanswered();
        if (skipped) break;
        complete(entry, IBV_WC_SUCCESS);
    }
    std::uint32_t reached = psn;
    if (first_ != last_ && at(first_).answers) {
        const std::uint32_t answered = psn_add(at(first_).psn, at(first_).answered);
        if (psn_distance(answered, psn) > 0) reached = answered;
    }
    if (psn_distance(una_, reached) > 0) una_ = reached;
    if (cursor_ < first_) {
        cursor_ = first_;
        cursor_packet_ = 0;
    }
    if (psn_distance(next_psn_, una_) > 0) go_back(una_);
    if (const std::int32_t packets = psn_distance(before, una_); packets > 0) {
        progress(static_cast<std::uint32_t>(packets), now);
    }
    if (skipped) lost(una_, now);
    settle();
}

/// The oldest entry may have been waiting for its turn to fail.
void Requester::settle() noexcept {
    if (first_ == last_) {
        if (pair_.state() == IBV_QPS_SQD) pair_.drained();
        return;
    }
    if (at(first_).failure != IBV_WC_SUCCESS) fail_oldest(at(first_).failure);
}

void Requester::local_failure(Entry& entry, ibv_wc_status status) noexcept {
    entry.failure = status;
    settle();
}

void Requester::fail_oldest(ibv_wc_status status) noexcept {
    const Entry entry = at(first_++);
    cursor_ = std::max(cursor_, first_);
    complete(entry, status);
    pair_.send_queue_failed(*this);
}

void Requester::complete(const Entry& entry, ibv_wc_status status) noexcept {
    if (Rendezvous* const rendezvous = pair_.rendezvous()) return rendezvous->completed(entry.block, status);
    if (!entry.signaled && status == IBV_WC_SUCCESS) {
        if (pair_.has_streams()) pair_.initiator().finish(entry.block, entry.blocks, nullptr);
        return;
    }
    const std::uint64_t slot = entry.block & (length_ - 1);
    // What stands where a cancelled entry stood is a NOP; it completes as what it was.
    const std::uint32_t told = spec_.send.completes_as != nullptr ? spec_.send.completes_as[slot] : 0;
    const bool recorded = told != 0 || entry.opcode == MLX5_OPCODE_NOP;
    const ibv_wc_opcode opcode = recorded ? static_cast<ibv_wc_opcode>(told) : completion_opcode(entry.opcode);
    const Completion completion{.wr_id = spec_.send.wr_ids != nullptr ? spec_.send.wr_ids[slot] : 0,
                                .status = status,
                                .opcode = opcode,
                                .byte_len = entry.answers ? static_cast<std::uint32_t>(entry.size) : 0,
                                .qp_num = spec_.qpn,
                                .freed = spec_.send.freed,
                                .freed_up_to = entry.block + entry.blocks,
                                .wqe_counter = static_cast<std::uint16_t>(entry.block),
                                .user_index = spec_.user_index,
                                .entry_opcode = entry.opcode};
    if (pair_.has_streams()) return pair_.initiator().finish(entry.block, entry.blocks, &completion);
    spec_.send_queue->add({&completion, 1});
}

void Requester::flush() noexcept {
    copy_.cancel();
    flush_taken();
    const std::uint64_t end = posted();
    while (next_block_ < end) {
        WorkEntry& entry = entry_;
        (void)read_entry(spec_.send, next_block_, spec_.type, entry);
        complete({.block = next_block_,
                  .blocks = static_cast<std::uint16_t>(entry.blocks),
                  .opcode = entry.opcode,
                  .signaled = entry.signaled},
                 IBV_WC_WR_FLUSH_ERR);
        next_block_ += entry.blocks;
    }
}

void Requester::flush_taken() noexcept {
    for (; first_ != last_; ++first_) complete(at(first_), IBV_WC_WR_FLUSH_ERR);
    cursor_ = last_;
    cursor_packet_ = 0;
    opened_ = answering_ = ~std::uint64_t{0};
    una_ = next_psn_ = highest_psn_ = fetched_psn_;
    deadline_ = retry_at_ = Service::never;
    wait_until_ = 0;
    reads_ = 0;
}

/// Moves the cursor to the packet with that number.
void Requester::go_back(std::uint32_t psn) noexcept {
    cursor_ = first_;
    cursor_packet_ = 0;
    reads_ = 0;
    for (; cursor_ != last_; ++cursor_) {
        const Entry& entry = at(cursor_);
        const std::int32_t into = psn_distance(entry.psn, psn);
        if (into < static_cast<std::int32_t>(entry.packets)) {
            cursor_packet_ = into > 0 ? static_cast<std::uint32_t>(into) : 0;
            reads_ += entry.waiting(cursor_packet_);
            break;
        }
        reads_ += entry.waiting(entry.packets);
    }
    next_psn_ = psn;
    ready_ = true;
}

void Requester::lost(std::uint32_t psn, std::uint64_t now) noexcept {
    // What was on its way when we went back is answered as if it were lost; it is not lost again.
    if (recovering_) return;
    if (retries_ == 0) return fail_oldest(IBV_WC_RETRY_EXC_ERR);
    --retries_;
    recovering_ = true;
    pace_.lost();
    go_back(psn);
    restart_timer(now);
}

void Requester::progress(std::uint32_t packets, std::uint64_t now) noexcept {
    pace_.arrived(una_, packets, now);
    retries_ = pair_.attr().retry_cnt;
    rnr_retries_ = pair_.attr().rnr_retry;
    recovering_ = false;
    ready_ = true;
    if (dc_) dc_->last_used = now;
    restart_timer(now);
}

void Requester::restart_timer(std::uint64_t now) noexcept {
    constexpr std::uint64_t unit = 4096;  // ns
    const unsigned exponent = pair_.attr().timeout & 0x1f;
    if (wait_until_ != 0) {
        deadline_ = retry_at_ = wait_until_;
    } else if (una_ == highest_psn_ || exponent == 0 || !pair_.is_reliable()) {
        deadline_ = retry_at_ = Service::never;
    } else {
        retry_at_ = now + (unit << exponent);
        deadline_ = std::min(retry_at_, now + pace_.patience());
    }
    if (deadline_ != Service::never) pair_.engine().arm(pair_, deadline_);
}

void Requester::not_ready(std::uint32_t psn, std::uint8_t timer, std::uint64_t now) noexcept {
    constexpr unsigned for_ever = 7;
    if (wait_until_ != 0) return;
    if (pair_.attr().rnr_retry != for_ever) {
        if (rnr_retries_ == 0) return fail_oldest(IBV_WC_RNR_RETRY_EXC_ERR);
        --rnr_retries_;
    }
    go_back(psn);
    wait_until_ = now + std::uint64_t{rnr_microseconds[timer]} * 1000;
    restart_timer(now);
}

void Requester::timer(std::uint64_t now) noexcept {
    if (now < deadline_) return;
    if (wait_until_ != 0) {
        wait_until_ = 0;
        ready_ = true;
        restart_timer(now);
        return;
    }
    const bool retry = now >= retry_at_;
    if (retry && retries_ == 0) return fail_oldest(IBV_WC_RETRY_EXC_ERR);
    recovering_ = true;
    pace_.silence();
    go_back(una_);
    if (retry) {
        --retries_;
        return restart_timer(now);
    }
    deadline_ = std::min(retry_at_, now + pace_.patience());
    pair_.engine().arm(pair_, deadline_);
}

/// The entry that an answer with this number belongs to, if it is the next answer that we wait for.
Requester::Entry* Requester::answer_expected(std::uint32_t psn, std::uint64_t now) noexcept {
    if (psn_distance(una_, psn) < 0 || psn_distance(psn, highest_psn_) <= 0) return nullptr;
    for (std::uint64_t index = first_; index != last_; ++index) {
        const Entry& entry = at(index);
        if (psn_distance(entry.psn, psn) >= static_cast<std::int32_t>(entry.packets)) continue;
        if (!entry.answers) return nullptr;
        complete_until(entry.psn, now);
        if (first_ != index) return nullptr;
        if (psn == una_) return &at(index);
        lost(una_, now);
        return nullptr;
    }
    return nullptr;
}

bool Requester::receive_answer(Entry& entry, std::uint64_t offset, std::span<const std::byte> bytes) noexcept {
    if (answering_ != first_) {
        WorkEntry again;
        if (!read_entry(spec_.send, entry.block, spec_.type, again) || again.opcode != entry.opcode) {
            fail_oldest(IBV_WC_LOC_QP_OP_ERR);
            return false;
        }
        const Transfer::Spec spec{.memory = spec_.state.memory(),
                                  .domain = spec_.domain,
                                  .access = IBV_ACCESS_LOCAL_WRITE,
                                  .remote = false,
                                  .stripe = pair_.engine().worker()};
        if (answer_.begin(spec, again.sges()) != Transfer::Fault::none || answer_.size() != entry.size) {
            fail_oldest(IBV_WC_LOC_PROT_ERR);
            return false;
        }
        answering_ = first_;
    }
    const Transfer::Fault fault = answer_.scatter(offset, bytes);
    signature_failed_ |= spec_.stops_at_signature_errors && answer_.signature_failed();
    if (fault == Transfer::Fault::none) return true;
    fail_oldest(IBV_WC_LOC_PROT_ERR);
    return false;
}

void Requester::read_response(const Arrival& arrival, std::uint64_t now) noexcept {
    Entry* const entry = answer_expected(arrival.psn, now);
    if (entry == nullptr) return;
    const std::uint64_t offset = std::uint64_t{entry->answered} * pair_.mtu();
    const std::uint64_t size = std::min<std::uint64_t>(entry->size - offset, pair_.mtu());
    const bool last = entry->answered + 1 == entry->packets;
    const bool ends_piece = last || (entry->answered + 1) % read_piece == 0;
    if (entry->opcode != MLX5_OPCODE_RDMA_READ || arrival.payload_size != size ||
        arrival.operation.last != ends_piece) {
        return fail_oldest(IBV_WC_BAD_RESP_ERR);
    }
    if (!receive_answer(*entry, offset, {arrival.payload, arrival.payload_size})) return;
    answered(*entry, arrival.psn, ends_piece, last, now);
}

/// The oldest entry has had its next answer.
void Requester::answered(Entry& entry, std::uint32_t psn, bool ends_request, bool last, std::uint64_t now) noexcept {
    ++entry.answered;
    una_ = psn_add(psn, 1);
    if (psn_distance(next_psn_, una_) > 0) {
        go_back(una_);  // the answer was on its way when we went back: it need not be asked for again
    } else if (ends_request) {
        --reads_;
    }
    if (last) complete_until(una_, now);
    progress(1, now);
}

void Requester::atomic_acknowledge(const Arrival& arrival, std::uint64_t now) noexcept {
    Entry* const entry = answer_expected(arrival.psn, now);
    if (entry == nullptr) return;
    if (entry->opcode == MLX5_OPCODE_RDMA_READ) return fail_oldest(IBV_WC_BAD_RESP_ERR);
    __be64 wire = 0;
    std::memcpy(&wire, arrival.headers() + sizeof(Aeth), sizeof wire);
    const std::uint64_t value = be64toh(wire);
    if (!receive_answer(*entry, 0, std::as_bytes(std::span{&value, 1}))) return;
    answered(*entry, arrival.psn, true, true, now);
}

}  // namespace ovsdr::soft::roce
