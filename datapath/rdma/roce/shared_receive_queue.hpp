// A shared receive queue: buffers that the queue pairs of one protection domain (or, XRC, one XRC domain) take from.
//
// Model. The application posts requests into free slots; a queue pair takes the oldest when a message begins and gives
// the slot back when the message is complete, in whatever order that is. The slots are the device's own memory, not a
// ring of the application's.
//
// Limit. Once armed, when a request is taken and fewer than `limit` are left, the limit event comes, once, and the
// limit is 0 again.
//
// XRC. The queue has a number by which requests from the wire name it, and a completion queue of its own.
//
// Threads: post(), modify(), query() from any application thread, take() and give_back() from any worker. One lock; per
// message, not per packet.
// Source: ibv_create_srq(3), ibv_modify_srq(3), ibv_post_srq_recv(3), IBTA volume 1, 10.2.9.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "datapath/rdma/completion/completion_queue.hpp"
#include "datapath/rdma/device_state.hpp"

namespace ovsdr::soft::roce {

class TagMatcher;

struct SharedReceiveQueueSpec {
    DeviceState& state;
    const void* domain;   ///< protection domain of the buffers
    std::uint32_t number;
    unsigned max_requests;
    unsigned max_sges;
    CompletionQueue* completions = nullptr;  ///< XRC, tag matching
    const void* xrc_domain = nullptr;        ///< XRC
    unsigned max_tags = 0, max_ops = 0;      ///< of a queue that matches tags (tag_matching.hpp)
    std::function<void()> limit_reached;     ///< called on a worker; must not wait
};

class SharedReceiveQueue {
public:
    static constexpr unsigned most_sges = 32;

    /// Throws std::bad_alloc. An XRC queue can be named from the wire from now on.
    explicit SharedReceiveQueue(const SharedReceiveQueueSpec& spec);
    /// No queue pair may use it any more.
    ~SharedReceiveQueue();
    SharedReceiveQueue(const SharedReceiveQueue&) = delete;
    SharedReceiveQueue& operator=(const SharedReceiveQueue&) = delete;

    [[nodiscard]] const SharedReceiveQueueSpec& spec() const noexcept { return spec_; }
    /// nullptr: the queue matches no tags.
    [[nodiscard]] TagMatcher* tags() const noexcept { return tags_.get(); }

    /// ENOMEM full, EINVAL too many pieces; `bad` is the first request that was not posted.
    [[nodiscard]] int post(ibv_recv_wr* first, ibv_recv_wr** bad);

    /// IBV_SRQ_LIMIT arms. EINVAL past the size, for IBV_SRQ_MAX_WR (as mlx5 has it) and unknown bits.
    [[nodiscard]] int modify(const ibv_srq_attr& attr, int mask);
    void query(ibv_srq_attr& attr) const;

    /// Queue pairs that use it: it cannot be destroyed while there are any.
    void hold() noexcept { holders_.fetch_add(1, std::memory_order_relaxed); }
    void release() noexcept { holders_.fetch_sub(1, std::memory_order_release); }
    [[nodiscard]] bool held() const noexcept { return holders_.load(std::memory_order_acquire) != 0; }

    struct Request {
        std::uint64_t wr_id;
        std::uint32_t slot;
        std::uint32_t length;  ///< pieces
        std::array<ibv_sge, most_sges> sges;
    };
    /// The oldest request, copied; false: none.
    [[nodiscard]] bool take(Request& request) noexcept;
    void give_back(std::uint32_t slot) noexcept;

private:
    struct Slot {
        std::uint64_t wr_id;
        std::uint32_t length;
    };

    const SharedReceiveQueueSpec spec_;
    const std::unique_ptr<TagMatcher> tags_;
    mutable std::mutex mutex_;
    std::vector<Slot> slots_;
    std::vector<ibv_sge> sges_;         ///< max_sges for each slot
    std::vector<std::uint32_t> free_;   ///< a stack of slots
    std::vector<std::uint32_t> order_;  ///< posted slots, a ring
    std::uint32_t first_ = 0, posted_ = 0;
    std::uint32_t limit_ = 0;
    std::atomic<unsigned> holders_{0};
};

}  // namespace ovsdr::soft::roce
