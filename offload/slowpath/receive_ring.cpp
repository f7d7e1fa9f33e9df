#include "offload/slowpath/receive_ring.hpp"

#include <fcntl.h>

#include <cerrno>
#include <utility>

namespace ovsdr::slowpath {

ReceiveRing::ReceiveRing(unsigned length, Buffers buffers, QueueFailure& failure)
    : length_(length), buffers_(std::move(buffers)), failure_(&failure) {
    returned_.reserve(batch_length);
}

Result<ReceiveRing> ReceiveRing::create(const PortQueueSpec& spec, QueueFailure& failure) {
    auto buffers = Buffers::create(spec.pd, spec.receive_length, spec.frame_size);
    if (!buffers) return tl::unexpected(std::move(buffers.error()));
    ReceiveRing ring(spec.receive_length, std::move(*buffers), failure);
    ring.channel_.reset(ibv_create_comp_channel(spec.context));
    if (ring.channel_ == nullptr) return tl::unexpected(failure_of(errno, "ibv_create_comp_channel"));
    const int flags = fcntl(ring.channel_->fd, F_GETFL);
    if (flags < 0 || fcntl(ring.channel_->fd, F_SETFL, flags | O_NONBLOCK) < 0) {
        return tl::unexpected(failure_of(errno, "fcntl of the completion channel"));
    }
    ibv_cq_init_attr_ex attributes{};
    attributes.cqe = spec.receive_length;
    attributes.channel = ring.channel_.get();
    attributes.wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_FLOW_TAG;
    ring.cq_.reset(ibv_create_cq_ex(spec.context, &attributes));
    if (ring.cq_ == nullptr) return tl::unexpected(failure_of(errno, "ibv_create_cq_ex"));
    return ring;
}

Result<void> ReceiveRing::make_wq(const PortQueueSpec& spec) {
    ibv_wq_init_attr attributes{};
    attributes.wq_type = IBV_WQT_RQ;
    attributes.max_wr = length_;
    attributes.max_sge = 1;
    attributes.pd = spec.pd;
    attributes.cq = cq();
    wq_.reset(ibv_create_wq(spec.context, &attributes));
    if (wq_ == nullptr) return tl::unexpected(failure_of(errno, "ibv_create_wq"));
    ibv_wq_attr ready{};
    ready.attr_mask = IBV_WQ_ATTR_STATE;
    ready.wq_state = IBV_WQS_RDY;
    if (const int code = ibv_modify_wq(wq_.get(), &ready); code != 0) {
        return tl::unexpected(failure_of(code, "ibv_modify_wq"));
    }
    return {};
}

Result<void> ReceiveRing::start(ibv_qp* qp) {
    qp_ = qp;
    for (unsigned first = 0; first < length_; first += batch_length) {
        for (unsigned i = 0; i < batch_length; ++i) returned_.push_back(first + i);
        if (const int code = post_returned(); code != 0) return tl::unexpected(failure_of(code, "ibv_post_recv"));
    }
    return {};
}

std::span<const Frame> ReceiveRing::receive() noexcept {
    if (!looked_ahead_) poll();
    looked_ahead_ = false;
    return {frames_.data(), frame_length_};
}

bool ReceiveRing::arm() noexcept {
    if (looked_ahead_) return false;   // frames of the last arm() that nobody has seen
    if (ibv_req_notify_cq(cq(), 0) != 0) return false;
    // What came between the last look and the request gives no wake-up: look once more.
    poll();
    looked_ahead_ = frame_length_ != 0;
    return !looked_ahead_;
}

bool ReceiveRing::drain_wake_ups(ibv_cq* other) noexcept {
    // Each look is a system call. A request gives one wake-up, behind a frame; without frames there is one at most
    // where it was late or a send has failed: the descriptor stays readable, and who waits comes back at once.
    if (!std::exchange(frames_came_, false) && ++looks_without_frames_ < looks_for_nothing) return false;
    looks_without_frames_ = 0;
    ibv_cq* woken = nullptr;
    void* context = nullptr;
    unsigned ours = 0, others = 0;
    while (ours == 0 && ibv_get_cq_event(channel_.get(), &woken, &context) == 0) ++(woken == other ? others : ours);
    if (ours != 0) ibv_ack_cq_events(cq(), ours);
    if (others != 0) ibv_ack_cq_events(other, others);
    return others != 0;
}

/// Posts the buffers in `returned_`; errno of the call, with what could not be posted still in `returned_`.
int ReceiveRing::post_returned() noexcept {
    if (returned_.empty()) return 0;
    std::array<ibv_recv_wr, batch_length> requests;
    std::array<ibv_sge, batch_length> elements;
    for (std::size_t i = 0; i < returned_.size(); ++i) {
        elements[i] = buffers_.element(returned_[i], buffers_.frame_size());
        requests[i] = ibv_recv_wr{returned_[i], i + 1 < returned_.size() ? &requests[i + 1] : nullptr, &elements[i], 1};
    }
    ibv_recv_wr* refused = nullptr;
    const int code = qp_ != nullptr ? ibv_post_recv(qp_, requests.data(), &refused)
                                    : ibv_post_wq_recv(wq_.get(), requests.data(), &refused);
    if (code == 0) {
        returned_.clear();
    } else {
        const auto posted = refused != nullptr ? refused - requests.data() : 0;
        returned_.erase(returned_.begin(), returned_.begin() + posted);
    }
    return code;
}

/// Fills `frames_`; the buffers of the frames before go back to the device first, unless it would only flush them.
void ReceiveRing::poll() noexcept {
    frame_length_ = 0;
    found_empty_ = false;
    if (failure_->any()) {
        returned_.clear();
    } else {
        post_returned();
    }
    if (returned_.size() == batch_length) return;   // the device takes none back: nothing more can be held
    ibv_poll_cq_attr attributes{};
    const int code = ibv_start_poll(cq_.get(), &attributes);
    found_empty_ = code == ENOENT;
    if (code != 0) return;
    std::uint64_t errors = 0;
    do {
        if (cq_->status != IBV_WC_SUCCESS) {
            failure_->note(cq_->status, QueueFailure::Side::receiving);
            errors += cq_->status != IBV_WC_WR_FLUSH_ERR;   // a flushed buffer is no frame
            continue;
        }
        const auto buffer = static_cast<std::uint32_t>(cq_->wr_id);
        returned_.push_back(buffer);
        frames_[frame_length_++] = {buffers_.frame(buffer), ibv_wc_read_byte_len(cq_.get()),
                                    ibv_wc_read_flow_tag(cq_.get())};
    } while (returned_.size() < batch_length && ibv_next_poll(cq_.get()) == 0);
    ibv_end_poll(cq_.get());
    frames_came_ = true;
    __atomic_fetch_add(&received_, frame_length_, __ATOMIC_RELAXED);
    __atomic_fetch_add(&errors_, errors, __ATOMIC_RELAXED);
}

}  // namespace ovsdr::slowpath
