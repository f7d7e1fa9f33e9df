#include "offload/slowpath/send_ring.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace ovsdr::slowpath {

Result<std::unique_ptr<SendRing>> SendRing::create(const PortQueueSpec& spec, ibv_comp_channel* channel,
                                                   QueueFailure& failure) {
    auto buffers = Buffers::create(spec.pd, spec.transmit_length, spec.frame_size);
    if (!buffers) return tl::unexpected(std::move(buffers.error()));
    std::unique_ptr<SendRing> ring(new SendRing(spec.transmit_length, std::move(*buffers), failure));
    ring->cq_.reset(ibv_create_cq(spec.context, static_cast<int>(spec.transmit_length), nullptr, channel, 0));
    if (ring->cq_ == nullptr) return tl::unexpected(failure_of(errno, "ibv_create_cq"));
    return ring;
}

Result<void> SendRing::start(ibv_qp* qp) {
    qp_ = qp;
    if (cq_->channel == nullptr) return {};
    if (const int code = ibv_req_notify_cq(cq_.get(), 1); code != 0) {
        return tl::unexpected(failure_of(code, "ibv_req_notify_cq"));
    }
    return {};
}

unsigned SendRing::transmit(std::span<const std::span<const std::uint8_t>> frames) noexcept {
    std::lock_guard lock(mutex_);
    std::array<std::span<const std::uint8_t>, batch_length> batch;
    unsigned taken = 0;
    for (std::size_t next = 0; next < frames.size() && !failure_.any();) {
        std::size_t length = 0;
        for (; next < frames.size() && length < batch.size(); ++next) {
            if (frames[next].size() <= buffers_.frame_size()) batch[length++] = frames[next];
        }
        const unsigned done = send_batch({batch.data(), length});
        taken += done;
        if (done < length) break;   // no room: the rest would find none either
    }
    (failure_.any() ? stats_.send_errors : stats_.send_drops) += frames.size() - taken;
    return taken;
}

std::size_t SendRing::under_way() noexcept {
    std::lock_guard lock(mutex_);
    take_completions();
    return in_flight();
}

void SendRing::reap() noexcept {
    std::lock_guard lock(mutex_);
    take_completions();
}

QueueStats SendRing::stats() noexcept {
    std::lock_guard lock(mutex_);
    take_completions();
    return stats_;
}

/// At most batch_length frames that fit a buffer, as far as there is room; one completion for all of them.
unsigned SendRing::send_batch(std::span<const std::span<const std::uint8_t>> frames) noexcept {
    if (length_ - in_flight() < frames.size()) take_completions();
    const std::size_t length = std::min<std::size_t>(frames.size(), length_ - in_flight());
    if (length == 0) return 0;
    std::array<ibv_send_wr, batch_length> requests{};
    std::array<ibv_sge, batch_length> elements;
    for (std::size_t i = 0; i < length; ++i) {
        const std::size_t buffer = (posted_ + i) % length_;
        std::memcpy(buffers_.frame(buffer), frames[i].data(), frames[i].size());
        elements[i] = buffers_.element(buffer, frames[i].size());
        requests[i].sg_list = &elements[i];
        requests[i].num_sge = 1;
        requests[i].opcode = IBV_WR_SEND;
        requests[i].wr_id = posted_ + i + 1;
        requests[i].next = i + 1 < length ? &requests[i + 1] : nullptr;
        // By number too: batches that were taken in part have no last one, and a ring full of those would never empty.
        if (requests[i].wr_id % batch_length == 0) requests[i].send_flags = IBV_SEND_SIGNALED;
    }
    requests[length - 1].send_flags = IBV_SEND_SIGNALED;
    ibv_send_wr* refused = nullptr;
    const int code = ibv_post_send(qp_, requests.data(), &refused);
    const std::size_t taken = code == 0            ? length
                              : refused == nullptr ? 0
                                                   : static_cast<std::size_t>(refused - requests.data());
    posted_ += taken;
    return static_cast<unsigned>(taken);
}

void SendRing::take_completions() noexcept {
    std::array<ibv_wc, batch_length> completions;
    int length;
    while ((length = ibv_poll_cq(cq_.get(), batch_length, completions.data())) > 0) {
        for (int i = 0; i < length; ++i) credit(completions[i]);
    }
}

void SendRing::credit(const ibv_wc& completion) noexcept {
    if (completion.status != IBV_WC_SUCCESS) failure_.note(completion.status, QueueFailure::Side::sending);
    const std::uint64_t covered = completion.wr_id - completed_;
    if (covered == 0 || covered > in_flight()) return;   // of nothing that is under way
    const std::uint64_t lost = completion.status == IBV_WC_SUCCESS        ? 0
                               : completion.status == IBV_WC_WR_FLUSH_ERR ? covered
                                                                          : 1;
    stats_.sent += covered - lost;
    stats_.send_errors += lost;
    completed_ = completion.wr_id;
}

}  // namespace ovsdr::slowpath
