// The application's side of a receive ring: requests written as entries of mlx5_wqe_data_seg.
//
// Model. An entry has room for max_sges pieces; shorter lists, and pieces of no bytes, end with the invalid lkey. An
// entry is free again when its completion is taken (Completion::freed).
//
// Threads: post() from any, one lock for a list of requests.
// Source: ibv_post_recv(3); mlx5dv.h.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include "datapath/rdma/roce/queue_pair.hpp"

namespace ovsdr::soft {

class ReceivePoster {
public:
    struct Shape {
        std::uint32_t length = 0;    ///< entries, a power of two; 0: no receive queue
        std::uint32_t stride = 0;    ///< bytes of an entry
        std::uint32_t max_sges = 0;
    };

    ReceivePoster() = default;
    ReceivePoster(const ReceivePoster&) = delete;
    ReceivePoster& operator=(const ReceivePoster&) = delete;

    /// `ring` (length * stride bytes) and `doorbell` outlive the poster. Throws std::bad_alloc.
    void open(const Shape& shape, std::byte* ring, std::atomic<__be32>* doorbell);

    [[nodiscard]] const Shape& shape() const noexcept { return shape_; }

    /// ENOMEM full, EINVAL too many pieces; `bad` is the first request that was not posted, those before it are.
    [[nodiscard]] int post(ibv_recv_wr* first, ibv_recv_wr** bad) noexcept;

    /// After the queue went to RESET.
    void reset() noexcept;

    [[nodiscard]] roce::ReceiveRing ring() noexcept;

private:
    void write(const ibv_recv_wr& request) noexcept;

    Shape shape_;
    std::byte* ring_ = nullptr;
    std::atomic<__be32>* doorbell_ = nullptr;
    std::unique_ptr<std::uint64_t[]> wr_ids_;
    alignas(64) std::atomic<std::uint64_t> freed_{0};
    alignas(64) std::mutex mutex_;
    std::uint64_t posted_ = 0;
};

}  // namespace ovsdr::soft
