// The receiving half of a queue pair: executes requests and answers them.
//
// Model. Requests of reliable types are taken in the order of their sequence numbers. One that comes too early is
// answered by one NAK and dropped; one that came before is acknowledged again, and a read or an atomic that came before
// is answered again (atomics out of a memory of their last results). Answers wait in a list and leave in order, a
// batch in each turn; acknowledgements that wait at its end are one.
//
// A message takes a receive entry (of the ring, or of the SRQ) with its first packet, or with its last one if it is a
// write with immediate.
//
// Sends to a queue that matches tags (tag_matching.hpp) go where their first packet's header says: responder_tags.cpp.
//
// Errors that are the requester's are told to it and fail the queue pair: QP_ACCESS_ERR, QP_REQ_ERR. Errors of our own
// receive entry complete it with the error. Unreliable types drop what they cannot take. A DC target has a responder
// for each session; what fails there is the session, and nobody but the initiator is told.
//
// Source: IBTA volume 1, 9.7.4, 9.7.5.2, 9.8.2 (UC), 9.8.3 (UD), 9.9.3.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "datapath/rdma/memory/transfer.hpp"
#include "datapath/rdma/roce/burst.hpp"
#include "datapath/rdma/roce/frame.hpp"
#include "datapath/rdma/roce/peer.hpp"
#include "datapath/rdma/roce/queue_pair.hpp"
#include "datapath/rdma/roce/rendezvous.hpp"
#include "datapath/rdma/roce/shared_receive_queue.hpp"
#include "datapath/rdma/roce/work_entry.hpp"

namespace ovsdr::soft::roce {

class Pair;

class Responder {
public:
    static constexpr unsigned most_reads = 16;  ///< max_dest_rd_atomic

    /// Answers go to `peer`, which outlives the responder.
    Responder(Pair& pair, const Peer& peer) noexcept;

    void reset() noexcept;
    void start(std::uint32_t psn) noexcept;

    void request(const Arrival& arrival) noexcept;
    void unreliable_request(const Arrival& arrival) noexcept;
    void datagram(const Arrival& arrival) noexcept;

    [[nodiscard]] bool ready() const noexcept { return answers_ != 0; }
    void send(Burst& burst) noexcept;

    /// Completes everything posted as flushed. Entries of an SRQ stay, but for the one of a message under way.
    void flush() noexcept;
    /// The session has failed: it takes no request any more.
    [[nodiscard]] bool failed() const noexcept { return failed_; }
    [[nodiscard]] bool has_posts() const noexcept;
    [[nodiscard]] std::uint32_t expected_psn() const noexcept { return expected_; }

private:
    struct Answer {
        enum class Type : std::uint8_t { acknowledge, refuse, read, atomic } type;
        bool again;             ///< to a request that was answered before
        std::uint8_t syndrome;
        std::uint32_t psn;      ///< of a read: the first response's
        std::uint32_t packets;  ///< of a read
        std::uint32_t sent;
        std::uint64_t address;
        std::uint32_t rkey;
        std::uint32_t size;
        std::uint64_t value;    ///< of an atomic
        const void* domain;     ///< of a read
    };
    static constexpr unsigned most_answers = 64;

    struct Receive {
        std::uint64_t wr_id;
        std::uint64_t index;  ///< of the ring
        std::uint32_t slot;   ///< of the SRQ
        SharedReceiveQueue* srq = nullptr;
        /// Of a queue that matches tags: a message without one, or without an entry for it, or of the entry `match`.
        enum class Tag : std::uint8_t { off, none_sent, unexpected, matched } tag = Tag::off;
        TagMatch match;
        std::uint32_t length;
        std::array<ibv_sge, most_pieces> pieces;
    };
    struct Result {
        std::uint32_t psn;
        std::uint64_t value;
    };

    [[nodiscard]] Answer& answer_at(unsigned index) noexcept { return list_[(first_answer_ + index) % most_answers]; }
    void push(const Answer& answer) noexcept;
    void acknowledge(std::uint32_t psn) noexcept;
    void refuse(std::uint32_t psn, Nak code) noexcept;
    void refuse_and_fail(std::uint32_t psn, Nak code) noexcept;
    void fail() noexcept;
    void event(ibv_event_type type) noexcept;
    void not_ready(const Arrival& arrival) noexcept;
    void answer_again(const Arrival& arrival) noexcept;
    void read_again(const Answer& answer) noexcept;

    [[nodiscard]] bool begin_answer(Burst& burst, std::uint8_t low, std::uint32_t psn, unsigned payload,
                                    Burst::Packet& packet) noexcept;
    [[nodiscard]] bool send_answer(Burst& burst, Answer& answer) noexcept;
    [[nodiscard]] bool send_read_response(Burst& burst, Answer& answer) noexcept;

    [[nodiscard]] bool fits_sequence(const Arrival& arrival) const noexcept;
    void execute(const Arrival& arrival) noexcept;
    void read(const Arrival& arrival, bool again) noexcept;
    void atomic(const Arrival& arrival) noexcept;
    [[nodiscard]] std::optional<Nak> message(const Arrival& arrival, bool& ready) noexcept;
    [[nodiscard]] std::optional<Nak> begin_message(const Arrival& arrival) noexcept;
    [[nodiscard]] std::optional<Nak> end_message(const Arrival& arrival) noexcept;
    [[nodiscard]] bool take_receive(const Arrival& arrival, bool& exists) noexcept;
    void take_own() noexcept;
    void complete(const Arrival& arrival, ibv_wc_status status, std::uint32_t size, unsigned flags) noexcept;
    void hold(const SharedReceiveQueue::Request& request, SharedReceiveQueue& queue) noexcept;
    [[nodiscard]] std::optional<Nak> take_tagged(const Arrival& arrival, bool& ready) noexcept;
    [[nodiscard]] std::optional<Nak> fetch(const Arrival& arrival, const RendezvousHeader& header) noexcept;
    void report_match(const ibv_tmh& header) noexcept;
    void complete_tagged(const Arrival& arrival, Completion& completion) noexcept;
    [[nodiscard]] unsigned granted() const noexcept;
    /// Whose memory a request may touch: the queue's protection domain; XRC: that of the SRQ which it names.
    [[nodiscard]] const void* domain_of(const Arrival& arrival) const noexcept;
    [[nodiscard]] Transfer::Spec remote_spec(const void* domain, unsigned access) const noexcept;

    Pair& pair_;
    const Peer& peer_;
    const QueuePairSpec& spec_;
    bool failed_;             ///< of a session
    std::uint32_t expected_;  ///< sequence number of the next request
    std::uint32_t messages_;  ///< MSN
    bool refused_;            ///< a NAK for this gap is out
    bool dropping_;           ///< UC: until the next message

    Kind kind_;                ///< of the message under way
    std::uint64_t offset_;     ///< bytes of it that have come
    std::uint64_t announced_;  ///< of a write
    bool has_receive_ = false;
    Receive receive_;
    Transfer transfer_;

    std::uint64_t next_receive_ = 0;  ///< of the ring
    std::array<Answer, most_answers> list_;
    unsigned first_answer_ = 0, answers_ = 0;
    Transfer reading_;
    bool reading_open_;
    std::array<Result, most_reads> results_;
    unsigned results_length_, next_result_;
};

}  // namespace ovsdr::soft::roce
