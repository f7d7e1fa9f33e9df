// Tag matching: buffers that wait for a message of their tag, in front of a shared receive queue.
//
// Model. A message that comes to a queue pair of such an SRQ begins with a TagHeader. EAGER and RNDV are matched
// against the list, oldest entry first: tag & mask == the entry's tag. What is matched goes to the entry's buffer; what
// is not is unexpected, and goes with its header to a buffer of the SRQ, as do NO_TAG, FIN, and what is too short for a
// header.
//
// Phases. An unexpected message may belong to an entry that the application is just adding. So while it has not said
// that it knows all unexpected messages (IBV_OPS_TM_SYNC with their count, modulo 2^16), new entries wait; once the
// counts agree they are live, in their order. Entries that are live stay so.
//
// Handles. An entry's handle is taken until the application has polled what tells it so: the completion that ends the
// entry's use, and those of signaled operations that name it. Operations likewise: at most max_ops that no polled
// completion stands behind.
//
// Threads: post() from any application thread, claim() and release() from any worker. One lock; taken once a message.
// Source: ibv_post_srq_ops(3), ibv_create_srq_ex(3), rdma-core's tag_matching.md and tm_types.h.
#pragma once

#include <infiniband/tm_types.h>
#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "datapath/rdma/completion/completion_queue.hpp"
#include "datapath/rdma/roce/shared_receive_queue.hpp"

namespace ovsdr::soft::roce {

/// A matched entry, taken off the list.
struct TagMatch {
    std::uint32_t handle;
    std::uint64_t recv_wr_id;
    ibv_sge buffer;  ///< length 0: none
};

class TagMatcher {
public:
    static constexpr unsigned most_tags = 127;
    static constexpr unsigned most_ops = 1u << 15;
    static constexpr unsigned most_pieces = 1;
    static constexpr unsigned most_rendezvous_size = 64;  ///< bytes of a rendezvous request
    /// Unexpected messages that the application may have left unreported before completions ask it to.
    static constexpr unsigned most_unreported = 0x3fff;

    /// Throws std::bad_alloc. `completions` outlives the matcher.
    TagMatcher(unsigned max_tags, unsigned max_ops, std::uint32_t number, CompletionQueue& completions);

    /// ENOMEM: no operation or no entry is free; EINVAL: an unknown operation, more than one piece, no such handle.
    /// `bad` is the first request that was not posted. A handle is written into each TAG_ADD.
    [[nodiscard]] int post(ibv_ops_wr* first, ibv_ops_wr** bad);

    enum class Claim : std::uint8_t { matched, unexpected, not_ready };
    /// What becomes of a tagged message: its entry, or a request of `queue`, or neither.
    [[nodiscard]] Claim claim(std::uint64_t tag, TagMatch& match, SharedReceiveQueue& queue,
                              SharedReceiveQueue::Request& request) noexcept;

    /// The completion that ends the entry's use frees its handle when it is polled.
    void ends_use(const TagMatch& match, Completion& completion) noexcept;
    /// The entry's use ends without a completion.
    void forget(const TagMatch& match) noexcept;
    /// IBV_WC_TM_SYNC_REQ, where the application has not reported unexpected messages for long.
    [[nodiscard]] unsigned sync_flag() noexcept;

private:
    struct Entry {
        std::uint64_t tag, mask, recv_wr_id;
        ibv_sge buffer;
        bool used = false, live = false, listed = false, deleted = false;
        std::uint64_t generation = 0;       ///< how often the handle was given out
        std::uint64_t last_operation = 0;   ///< the last signaled operation that names it
        std::atomic<std::uint64_t> polled{0};  ///< the generation whose last completion was polled
    };

    [[nodiscard]] int add(ibv_ops_wr& request);
    [[nodiscard]] int check(const ibv_ops_wr& request) const noexcept;
    [[nodiscard]] bool remove(std::uint32_t handle) noexcept;
    void complete(const ibv_ops_wr& request, ibv_wc_opcode opcode, bool done, unsigned flags);
    void collect() noexcept;
    void report(std::uint32_t count) noexcept;

    const std::uint32_t number_;
    const unsigned max_ops_;
    CompletionQueue& completions_;
    std::mutex mutex_;
    const unsigned length_;
    std::unique_ptr<Entry[]> entries_;
    std::vector<std::uint32_t> free_;   ///< handles, the next one first
    std::vector<std::uint32_t> order_;  ///< handles of the list, oldest first
    std::uint64_t operations_ = 0;
    std::atomic<std::uint64_t> operations_polled_{0};
    std::uint16_t unexpected_ = 0;  ///< messages that there were
    std::uint16_t reported_ = 0;    ///< of which the application knows
};

}  // namespace ovsdr::soft::roce
