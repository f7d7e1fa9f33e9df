#include "datapath/rdma/roce/shared_receive_queue.hpp"

#include <algorithm>
#include <cerrno>
#include <numeric>

#include "datapath/rdma/roce/tag_matching.hpp"
#include "datapath/rdma/roce/transport.hpp"

namespace ovsdr::soft::roce {

SharedReceiveQueue::SharedReceiveQueue(const SharedReceiveQueueSpec& spec)
    : spec_(spec),
      tags_(spec.max_tags != 0
                ? std::make_unique<TagMatcher>(spec.max_tags, spec.max_ops, spec.number, *spec.completions)
                : nullptr),
      slots_(spec.max_requests),
      sges_(std::size_t{spec.max_requests} * spec.max_sges),
      free_(spec.max_requests),
      order_(spec.max_requests) {
    std::iota(free_.rbegin(), free_.rend(), 0U);
    if (spec_.xrc_domain != nullptr) spec_.state.transport().add_shared_queue(spec_.number, *this);
}

SharedReceiveQueue::~SharedReceiveQueue() {
    if (spec_.xrc_domain != nullptr) spec_.state.transport().remove_shared_queue(spec_.number);
}

int SharedReceiveQueue::post(ibv_recv_wr* first, ibv_recv_wr** bad) {
    const std::lock_guard guard(mutex_);
    for (ibv_recv_wr* request = first; request != nullptr; request = request->next) {
        int error = 0;
        if (request->num_sge < 0 || static_cast<unsigned>(request->num_sge) > spec_.max_sges) error = EINVAL;
        if (free_.empty()) error = ENOMEM;
        if (error) {
            *bad = request;
            return error;
        }
        const std::uint32_t slot = free_.back();
        free_.pop_back();
        slots_[slot] = {request->wr_id, static_cast<std::uint32_t>(request->num_sge)};
        std::copy_n(request->sg_list, request->num_sge, sges_.begin() + std::ptrdiff_t{slot} * spec_.max_sges);
        order_[(first_ + posted_++) % order_.size()] = slot;
    }
    return 0;
}

int SharedReceiveQueue::modify(const ibv_srq_attr& attr, int mask) {
    if (mask & ~IBV_SRQ_LIMIT) return EINVAL;  // mlx5 resizes none
    if (!(mask & IBV_SRQ_LIMIT)) return 0;
    const std::lock_guard guard(mutex_);
    if (attr.srq_limit > spec_.max_requests) return EINVAL;
    limit_ = attr.srq_limit;
    return 0;
}

void SharedReceiveQueue::query(ibv_srq_attr& attr) const {
    const std::lock_guard guard(mutex_);
    attr = {.max_wr = spec_.max_requests, .max_sge = spec_.max_sges, .srq_limit = limit_};
}

bool SharedReceiveQueue::take(Request& request) noexcept {
    bool limit_reached = false;
    {
        const std::lock_guard guard(mutex_);
        if (posted_ == 0) return false;
        const std::uint32_t slot = order_[first_];
        first_ = (first_ + 1) % static_cast<std::uint32_t>(order_.size());
        --posted_;
        request.wr_id = slots_[slot].wr_id;
        request.slot = slot;
        request.length = slots_[slot].length;
        std::copy_n(sges_.begin() + std::ptrdiff_t{slot} * spec_.max_sges, request.length, request.sges.begin());
        if (posted_ < limit_) {
            limit_ = 0;
            limit_reached = true;
        }
    }
    if (limit_reached && spec_.limit_reached) spec_.limit_reached();
    return true;
}

void SharedReceiveQueue::give_back(std::uint32_t slot) noexcept {
    const std::lock_guard guard(mutex_);
    free_.push_back(slot);  // room for every slot from the start
}

}  // namespace ovsdr::soft::roce
