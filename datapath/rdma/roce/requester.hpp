// The sending half of a queue pair: takes entries off the send ring, makes packets of them, and completes them.
//
// Model. Entries that were begun and are not complete stand in a list, oldest first, each with the packet sequence
// numbers that it has taken. The cursor is where sending goes on; una is the oldest number that is not acknowledged.
// To send something again the cursor goes back, and packets are made anew from the ring and the memory that it names.
//
// Reliable types (RC, XRC) keep as many packets on their way as Pace says. Reads and atomics are answered in order; up
// to max_rd_atomic of them may wait. A long read is asked for in pieces, one request each, so that its answers keep to
// the window too. Loss shows as a NAK, as an answer that skips something, or as time that passes: Pace tells when to
// ask what has arrived, and after 4.096 µs * 2^timeout without progress a retry is used up, of which there are
// retry_cnt. A receiver that is not ready names the time to wait, up to rnr_retry times (7: for ever).
//
// Unreliable types complete an entry when its last packet is sent.
//
// Local entries (UMR, invalidate, ACCESS_ASO, copies) are executed when all before them is complete.
//
// A DC initiator has a requester for each stream, all fed from one ring (dc_initiator.hpp). Entries name their targets;
// one with another target than the one before it waits until all before it is complete, then begins a session: a
// disconnect packet to the old target, which nobody answers, and a connect packet to the new one, which goes with the
// sequence number of the request behind it, and again whenever that one does.
//
// Source: IBTA volume 1, 9.7.3, 9.7.5, 9.9.2.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstdint>
#include <memory>

#include "datapath/ports/nic.hpp"
#include "datapath/rdma/memory/transfer.hpp"
#include "datapath/rdma/roce/burst.hpp"
#include "datapath/rdma/roce/frame.hpp"
#include "datapath/rdma/roce/memory_copy.hpp"
#include "datapath/rdma/roce/pace.hpp"
#include "datapath/rdma/roce/peer.hpp"
#include "datapath/rdma/roce/queue_pair.hpp"
#include "datapath/rdma/roce/work_entry.hpp"

namespace ovsdr::soft::roce {

class Pair;

class Requester {
public:
    /// Packets of a read that one request asks for at most, counted from the message's beginning.
    static constexpr std::uint32_t read_piece = Pace::widest / 2;

    /// `spec` is the pair's, or that of its rendezvous; of `stream`, for a DC initiator.
    Requester(Pair& pair, const QueuePairSpec& spec, std::uint32_t stream = 0);

    void reset() noexcept;
    /// Numbers begin anew (RTS).
    void start(std::uint32_t psn) noexcept;

    [[nodiscard]] bool has_posts() const noexcept;
    /// Basic blocks posted so far.
    [[nodiscard]] std::uint64_t posted() const noexcept;
    void send(Burst& burst, std::uint64_t now) noexcept;
    /// Whether send() would send something.
    [[nodiscard]] bool ready() const noexcept { return ready_; }
    void wake() noexcept { ready_ = true; }

    void acknowledge(const Arrival& arrival, std::uint64_t now) noexcept;
    void read_response(const Arrival& arrival, std::uint64_t now) noexcept;
    void atomic_acknowledge(const Arrival& arrival, std::uint64_t now) noexcept;
    void timer(std::uint64_t now) noexcept;
    [[nodiscard]] std::uint64_t deadline() const noexcept { return deadline_; }
    /// The time of silence begins anew.
    void restart_timer(std::uint64_t now) noexcept;

    /// Completes everything posted as flushed.
    void flush() noexcept;
    /// Completes what was taken off the ring as flushed.
    void flush_taken() noexcept;

    // DC.
    enum class Step : std::uint8_t { sent, again, stop, blocked };
    /// Takes the ring's next entry into the list. `again`: done; `stop`: it has to wait.
    [[nodiscard]] Step take(std::uint64_t now) noexcept;
    [[nodiscard]] const Peer& peer() const noexcept { return peer_; }
    [[nodiscard]] bool failed() const noexcept { return dc_ != nullptr && dc_->failed; }
    /// All that was taken is flushed, and so is what will be taken, until recover().
    void fail_stream() noexcept;
    void recover() noexcept;

    /// Basic blocks taken off the ring so far.
    [[nodiscard]] std::uint64_t taken() const noexcept { return next_block_; }
    /// Nothing is under way.
    [[nodiscard]] bool idle() const noexcept { return first_ == last_ && !copy_.under_way(); }
    [[nodiscard]] std::uint32_t next_psn() const noexcept { return fetched_psn_; }

private:
    struct Entry {
        std::uint64_t block;
        std::uint32_t psn;
        std::uint32_t packets;   ///< sequence numbers that it takes
        std::uint64_t size;      ///< bytes of the message
        std::uint32_t answered;  ///< of a read or an atomic: response packets that have come
        std::uint16_t blocks;
        std::uint8_t opcode;
        bool signaled;
        bool answers;            ///< a read or an atomic
        bool begins_session;     ///< DC: and has not done so yet
        ibv_wc_status failure;   ///< what it completes with once its turn comes

        [[nodiscard]] bool unanswered() const noexcept { return answers && answered < packets; }
        /// Requests that have been sent and not answered, if `sent` packets have been asked for.
        [[nodiscard]] std::uint32_t waiting(std::uint32_t sent) const noexcept {
            return answers && sent > answered ? (sent + read_piece - 1) / read_piece - answered / read_piece : 0;
        }
    };

    [[nodiscard]] Entry& at(std::uint64_t index) noexcept { return entries_[index & (length_ - 1)]; }
    // Sending.
    [[nodiscard]] Step step(Burst& burst, std::uint64_t now) noexcept;
    [[nodiscard]] Step fetch(std::uint64_t now) noexcept;
    [[nodiscard]] Step execute_locally() noexcept;
    [[nodiscard]] Step copy_memory() noexcept;
    [[nodiscard]] Step finish_locally(ibv_wc_status status) noexcept;
    [[nodiscard]] ibv_wc_status measure(Entry& entry) noexcept;
    [[nodiscard]] bool open(std::uint64_t index) noexcept;
    [[nodiscard]] bool may_send(const Entry& entry) const noexcept;
    [[nodiscard]] Step send_packet(Burst& burst, Entry& entry, std::uint64_t now) noexcept;
    [[nodiscard]] Step send_request(Burst& burst, Entry& entry, std::uint64_t now) noexcept;
    [[nodiscard]] Step send_datagram(Burst& burst, Entry& entry) noexcept;
    [[nodiscard]] bool set_path(Path& path) noexcept;
    // DC.
    [[nodiscard]] bool is_new_target(std::uint64_t now) noexcept;
    [[nodiscard]] Step begin_session(Burst& burst, Entry& entry, std::uint64_t now) noexcept;
    [[nodiscard]] bool send_session_packet(Burst& burst, Kind kind) noexcept;
    [[nodiscard]] DcEth dc_header() const noexcept;
    [[nodiscard]] bool fill(std::uint64_t offset, std::span<std::byte> to) noexcept;
    void advance(const Entry& entry, std::uint32_t packets) noexcept;

    // Completing.
    void complete(const Entry& entry, ibv_wc_status status) noexcept;
    void complete_until(std::uint32_t psn, std::uint64_t now) noexcept;
    void settle() noexcept;
    void local_failure(Entry& entry, ibv_wc_status status) noexcept;
    void fail_oldest(ibv_wc_status status) noexcept;

    // Recovering.
    void go_back(std::uint32_t psn) noexcept;
    void lost(std::uint32_t psn, std::uint64_t now) noexcept;
    void progress(std::uint32_t packets, std::uint64_t now) noexcept;
    void not_ready(std::uint32_t psn, std::uint8_t timer, std::uint64_t now) noexcept;
    void answered(Entry& entry, std::uint32_t psn, bool ends_request, bool last, std::uint64_t now) noexcept;
    [[nodiscard]] Entry* answer_expected(std::uint32_t psn, std::uint64_t now) noexcept;
    [[nodiscard]] bool receive_answer(Entry& entry, std::uint64_t offset, std::span<const std::byte> bytes) noexcept;

    /// What a DC stream knows besides.
    struct Dc {
        Peer peer;
        __be64 access_key = 0;          ///< of the session
        mlx5_wqe_av target{};           ///< of the last entry that was taken
        bool has_target = false;
        bool connected = false;         ///< there is a session
        bool failed = false;
        std::uint32_t first_psn = 0;    ///< of the session
        std::uint64_t last_used = 0;    ///< ns
    };

    Pair& pair_;
    const QueuePairSpec& spec_;
    const std::unique_ptr<Dc> dc_;  ///< of an initiator
    const Peer& peer_;
    const std::uint32_t length_;  ///< of entries_
    std::unique_ptr<Entry[]> entries_;
    std::uint64_t& next_block_;     ///< of the ring, not yet fetched; all streams' own
    // From here on: what reset() sets.
    // Indices of entries: first_ <= cursor_ <= last_.
    std::uint64_t first_, last_, cursor_;
    std::uint32_t cursor_packet_;
    std::uint32_t una_;          ///< oldest sequence number that is not acknowledged
    std::uint32_t next_psn_;     ///< of the packet at the cursor
    std::uint32_t highest_psn_;  ///< one past the highest that was ever sent
    std::uint32_t fetched_psn_;  ///< of the next entry to be fetched
    unsigned reads_;             ///< requests for reads and atomics before the cursor that wait for their answer
    bool ready_;
    bool signature_failed_;      ///< and the queue is to stop for it
    bool recovering_;            ///< gone back and no progress yet
    unsigned retries_, rnr_retries_;
    std::uint64_t wait_until_;   ///< the receiver is not ready
    Pace pace_;
    std::uint64_t deadline_;
    std::uint64_t retry_at_;         ///< when the timeout attribute's time has passed
    std::uint64_t opened_;           ///< which entry `entry_` and `transfer_` are of
    std::uint64_t answering_;        ///< which entry `answer_` is of
    WorkEntry entry_;
    Transfer transfer_;
    Transfer answer_;
    MemoryCopy copy_{transfer_, answer_};
    Path datagram_path_{};
};

}  // namespace ovsdr::soft::roce
