// Rendezvous of tag matching: the message stays with its sender, and the matched buffer's owner fetches it.
//
// Model. The send queue of a queue pair with a tag matching SRQ is the SRQ's. For each matched request two entries are
// put into a ring of the device's own: a read of what the request names into the entry's buffer, and, fenced behind it,
// a send of the request's headers with the opcode FIN, which tells the peer that it is done. The read's end is the
// second completion of the match; a read that fails, or that the queue does not come to, ends it as incomplete.
//
// Threads: the queue pair's engine, under its lock.
// Source: rdma-core's tag_matching.md; PRM work queue entries.
#pragma once

#include <infiniband/tm_types.h>
#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "datapath/rdma/roce/queue_pair.hpp"
#include "datapath/rdma/roce/tag_matching.hpp"

namespace ovsdr::soft::roce {

/// What a rendezvous request begins with, and what FIN brings back.
struct RendezvousHeader {
    ibv_tmh tag;
    ibv_rvh where;
};
static_assert(sizeof(RendezvousHeader) == 32);

class Rendezvous {
public:
    /// Of a queue pair whose SRQ matches tags. Throws std::bad_alloc.
    explicit Rendezvous(const QueuePairSpec& spec);
    Rendezvous(const Rendezvous&) = delete;
    Rendezvous& operator=(const Rendezvous&) = delete;

    /// The queue pair's, with the ring and the SRQ's domain.
    [[nodiscard]] const QueuePairSpec& spec() const noexcept { return spec_; }

    [[nodiscard]] bool has_room() const noexcept { return posted_ + 2 - freed_ <= ring_length; }
    /// The buffer holds what the request names.
    void begin(const TagMatch& match, const RendezvousHeader& header) noexcept;
    /// The requester is done with the entry at `block`.
    void completed(std::uint64_t block, ibv_wc_status status) noexcept;
    /// The queue pair goes to RESET: what was under way ends untold.
    void reset() noexcept;

private:
    static constexpr unsigned ring_length = 2 * 128;  ///< blocks: an entry each

    [[nodiscard]] std::byte* next_block() noexcept;

    QueuePairSpec spec_;
    TagMatcher& tags_;
    struct Job {
        TagMatch match;
        std::uint32_t size;
    };
    std::array<Job, ring_length / 2> jobs_{};  ///< by a read's block
    std::vector<std::byte> ring_;
    std::atomic<__be32> doorbell_{0};
    std::uint64_t posted_ = 0, freed_ = 0;  ///< blocks
    std::uint64_t next_read_ = 0;           ///< block of the oldest read that has not ended
};

}  // namespace ovsdr::soft::roce
