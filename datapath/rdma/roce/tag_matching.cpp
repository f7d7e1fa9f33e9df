#include "datapath/rdma/roce/tag_matching.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <numeric>

namespace ovsdr::soft::roce {

TagMatcher::TagMatcher(unsigned max_tags, unsigned max_ops, std::uint32_t number, CompletionQueue& completions)
    : number_(number),
      max_ops_(max_ops == 0 ? 0 : std::bit_ceil(max_ops)),  // as libmlx5 sizes the queue of operations
      completions_(completions),
      length_(max_tags),
      entries_(std::make_unique<Entry[]>(max_tags)),
      free_(max_tags) {
    std::iota(free_.begin(), free_.end(), 0U);
    order_.reserve(max_tags);
}

int TagMatcher::check(const ibv_ops_wr& request) const noexcept {
    if (operations_ - operations_polled_.load(std::memory_order_acquire) >= max_ops_) return ENOMEM;
    switch (request.opcode) {
        case IBV_WR_TAG_ADD:
            if (request.tm.add.num_sge < 0 || request.tm.add.num_sge > static_cast<int>(most_pieces)) return EINVAL;
            break;
        case IBV_WR_TAG_DEL:
            if (request.tm.handle >= length_) return EINVAL;
            break;
        case IBV_WR_TAG_SYNC: break;
        default: return EINVAL;
    }
    return request.flags & ~(IBV_OPS_SIGNALED | IBV_OPS_TM_SYNC) ? EINVAL : 0;
}

int TagMatcher::post(ibv_ops_wr* first, ibv_ops_wr** bad) {
    const std::lock_guard guard(mutex_);
    for (ibv_ops_wr* request = first; request != nullptr; request = request->next) {
        int error = check(*request);
        if (!error && (request->flags & IBV_OPS_TM_SYNC)) report(request->tm.unexpected_cnt);
        if (!error && request->opcode == IBV_WR_TAG_ADD) error = add(*request);
        if (error) {
            *bad = request;
            return error;
        }
        ++operations_;
        const unsigned out_of_phase = unexpected_ != reported_ ? unsigned{IBV_WC_TM_SYNC_REQ} : 0U;
        switch (request->opcode) {
            case IBV_WR_TAG_ADD: complete(*request, IBV_WC_TM_ADD, true, out_of_phase); break;
            case IBV_WR_TAG_DEL: {
                const bool done = remove(request->tm.handle);
                complete(*request, IBV_WC_TM_DEL, done, out_of_phase);
                break;
            }
            default: complete(*request, IBV_WC_TM_SYNC, true, 0); break;
        }
    }
    return 0;
}

/// The application knows of `count` unexpected messages: if these are all, what waits is live.
void TagMatcher::report(std::uint32_t count) noexcept {
    reported_ = static_cast<std::uint16_t>(count);
    if (reported_ != unexpected_) return;
    for (const std::uint32_t handle : order_) entries_[handle].live = true;
}

int TagMatcher::add(ibv_ops_wr& request) {
    if (free_.empty()) collect();
    if (free_.empty()) return ENOMEM;
    const std::uint32_t handle = free_.front();
    free_.erase(free_.begin());
    Entry& entry = entries_[handle];
    entry.tag = request.tm.add.tag;
    entry.mask = request.tm.add.mask;
    entry.recv_wr_id = request.tm.add.recv_wr_id;
    entry.buffer = request.tm.add.num_sge != 0 ? *request.tm.add.sg_list : ibv_sge{};
    entry.used = entry.listed = true;
    entry.live = unexpected_ == reported_;
    entry.deleted = false;
    ++entry.generation;
    order_.push_back(handle);
    request.tm.handle = handle;
    return 0;
}

/// false: the entry is not in the list, or no more.
bool TagMatcher::remove(std::uint32_t handle) noexcept {
    Entry& entry = entries_[handle];
    if (!entry.listed) return false;
    entry.listed = false;
    entry.deleted = true;
    std::erase(order_, handle);
    return true;
}

void TagMatcher::complete(const ibv_ops_wr& request, ibv_wc_opcode opcode, bool done, unsigned flags) {
    if (!(request.flags & IBV_OPS_SIGNALED)) return;
    if (opcode != IBV_WC_TM_SYNC) entries_[request.tm.handle].last_operation = operations_;
    const Completion completion{.wr_id = request.wr_id,
                                .status = done ? IBV_WC_SUCCESS : IBV_WC_TM_ERR,
                                .opcode = opcode,
                                .qp_num = number_,
                                .wc_flags = flags,
                                .freed = &operations_polled_,
                                .freed_up_to = operations_};
    completions_.add({&completion, 1});
}

/// Gives handles back whose last completion has been polled.
void TagMatcher::collect() noexcept {
    const std::uint64_t polled = operations_polled_.load(std::memory_order_acquire);
    for (std::uint32_t handle = 0; handle < length_; ++handle) {
        Entry& entry = entries_[handle];
        if (!entry.used || entry.listed || entry.last_operation > polled) continue;
        if (!entry.deleted && entry.polled.load(std::memory_order_acquire) != entry.generation) continue;
        entry.used = false;
        free_.push_back(handle);  // room for every handle from the start
    }
}

TagMatcher::Claim TagMatcher::claim(std::uint64_t tag, TagMatch& match, SharedReceiveQueue& queue,
                                    SharedReceiveQueue::Request& request) noexcept {
    const std::lock_guard guard(mutex_);
    for (auto at = order_.begin(); at != order_.end(); ++at) {
        Entry& entry = entries_[*at];
        if (!entry.live) break;  // nor are those behind it
        if ((tag & entry.mask) != entry.tag) continue;
        match = {.handle = *at, .recv_wr_id = entry.recv_wr_id, .buffer = entry.buffer};
        entry.listed = false;
        order_.erase(at);
        return Claim::matched;
    }
    if (!queue.take(request)) return Claim::not_ready;
    ++unexpected_;
    return Claim::unexpected;
}

void TagMatcher::ends_use(const TagMatch& match, Completion& completion) noexcept {
    Entry& entry = entries_[match.handle];  // its generation stays as long as it is used
    completion.freed = &entry.polled;
    completion.freed_up_to = entry.generation;
}

void TagMatcher::forget(const TagMatch& match) noexcept {
    Entry& entry = entries_[match.handle];
    entry.polled.store(entry.generation, std::memory_order_release);
}

unsigned TagMatcher::sync_flag() noexcept {
    const std::lock_guard guard(mutex_);
    return static_cast<std::uint16_t>(unexpected_ - reported_) > most_unreported ? unsigned{IBV_WC_TM_SYNC_REQ} : 0U;
}

}  // namespace ovsdr::soft::roce
