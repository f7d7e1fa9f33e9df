#include "datapath/verbs/wqe/receive_poster.hpp"

#include <endian.h>
#include <infiniband/mlx5dv.h>

#include <cerrno>
#include <cstring>

namespace ovsdr::soft {

void ReceivePoster::open(const Shape& shape, std::byte* ring, std::atomic<__be32>* doorbell) {
    wr_ids_ = std::make_unique<std::uint64_t[]>(shape.length);
    shape_ = shape;
    ring_ = ring;
    doorbell_ = doorbell;
}

roce::ReceiveRing ReceivePoster::ring() noexcept {
    return {.base = ring_,
            .length = shape_.length,
            .stride = shape_.stride,
            .doorbell = doorbell_,
            .wr_ids = wr_ids_.get(),
            .freed = &freed_};
}

int ReceivePoster::post(ibv_recv_wr* first, ibv_recv_wr** bad) noexcept {
    std::lock_guard guard(mutex_);
    int error = 0;
    const std::uint64_t before = posted_;
    for (ibv_recv_wr* request = first; request; request = request->next) {
        if (posted_ - freed_.load(std::memory_order_acquire) >= shape_.length) error = ENOMEM;
        if (!error && (request->num_sge < 0 || static_cast<std::uint32_t>(request->num_sge) > shape_.max_sges)) {
            error = EINVAL;
        }
        if (error) {
            *bad = request;
            break;
        }
        write(*request);
    }
    if (posted_ != before) {
        doorbell_->store(htobe32(static_cast<std::uint32_t>(posted_ & 0xffff)), std::memory_order_release);
    }
    return error;
}

void ReceivePoster::write(const ibv_recv_wr& request) noexcept {
    const std::uint64_t index = posted_++ & (shape_.length - 1);
    std::byte* const entry = ring_ + index * shape_.stride;
    std::uint32_t count = 0;
    const auto put = [&](const mlx5_wqe_data_seg& segment) {
        std::memcpy(entry + count++ * sizeof segment, &segment, sizeof segment);
    };
    for (int i = 0; i < request.num_sge; ++i) {
        const ibv_sge& sge = request.sg_list[i];
        if (sge.length) put({htobe32(sge.length), htobe32(sge.lkey), htobe64(sge.addr)});
    }
    if (count < shape_.max_sges) put({0, htobe32(MLX5_INVALID_LKEY), 0});
    wr_ids_[index] = request.wr_id;
}

void ReceivePoster::reset() noexcept {
    std::lock_guard guard(mutex_);
    posted_ = 0;
    freed_.store(0, std::memory_order_relaxed);
    if (doorbell_) doorbell_->store(0, std::memory_order_release);
}

}  // namespace ovsdr::soft
