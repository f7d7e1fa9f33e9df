// A DC initiator's streams: requesters that are fed from one send ring.
//
// Model. An entry's control segment names a stream; streams that are equal modulo 1 << log_streams are one, and entries
// of one are executed in their order. Each has its own sequence numbers and its own session, so that one that waits for
// its target does not keep the others waiting. Whichever meets the ring's next entry gives it to the requester that it
// is for. Completions are given in the ring's order all the same, as blocks are freed in that order.
//
// Errors. A stream that fails flushes its entries, also later ones, until reset_stream(); the others go on. When
// 1 << log_errored streams have failed, the queue pair fails. A DCI made without streams has one, and fails with it.
//
// Threads: as Pair.
// Source: mlx5dv_create_qp(3), mlx5dv_dci_stream_id_reset(3).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "datapath/rdma/completion/completion_queue.hpp"
#include "datapath/rdma/roce/requester.hpp"

namespace ovsdr::soft::roce {

class DcInitiator {
public:
    /// `first` is stream 0, the pair's own requester.
    DcInitiator(Pair& pair, Requester& first);

    [[nodiscard]] bool has_streams() const noexcept { return streams_.size() > 1; }
    /// nullptr: no such stream.
    [[nodiscard]] Requester* stream(std::uint32_t number) noexcept {
        return number < streams_.size() ? streams_[number] : nullptr;
    }
    /// Whom the ring's next entry is for; there is one.
    [[nodiscard]] Requester& owner_of_head() noexcept;

    void reset() noexcept;
    void start(std::uint32_t psn) noexcept;
    void wake() noexcept;
    [[nodiscard]] bool ready() const noexcept;
    void send(Burst& burst, std::uint64_t now) noexcept;
    void timer(std::uint64_t now) noexcept;
    [[nodiscard]] std::uint64_t deadline() const noexcept;
    void flush() noexcept;

    /// The entry at `block` is complete; nullptr: silently.
    void finish(std::uint64_t block, std::uint32_t blocks, const Completion* completion) noexcept;

    void stream_failed(Requester& stream) noexcept;
    [[nodiscard]] int reset_stream(std::uint16_t stream) noexcept;

private:
    struct Finished {
        std::uint32_t blocks = 0;  ///< 0: it is not
        bool is_told = false;      ///< there is a completion
        Completion completion;
    };

    Pair& pair_;
    std::vector<std::unique_ptr<Requester>> others_;
    std::vector<Requester*> streams_;
    std::size_t turn_ = 0;        ///< whose it is to send
    unsigned failed_ = 0;         ///< streams
    // Of several streams: entries by their first block.
    std::vector<Finished> finished_;
    std::uint64_t oldest_ = 0;    ///< block of the first entry that has not completed
};

}  // namespace ovsdr::soft::roce
