#include "offload/slowpath/copy_queue.hpp"

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

#include "offload/dr/device/device.hpp"
#include "offload/dr/device/ib_port.hpp"

namespace ovsdr::slowpath {
namespace {

/// The queue belongs to no vport, and needs an IB port that is there: the uplink's, or the manager's own where the
/// device has no uplink.
Result<std::uint32_t> any_ib_port(ibv_context* context) noexcept {
    auto port = dr::find_ib_port(context, dr::uplink_vport);
    if (!port) port = dr::find_ib_port(context, dr::VportId{0});
    if (!port) return tl::unexpected(std::move(port.error()));
    return port->number;
}

Error out_of_memory() noexcept { return {ENOMEM, "out of memory"}; }

void add(CopyStats& sum, const PortQueue& queue) noexcept {
    const QueueStats stats = queue.stats();
    sum.received += stats.received;
    sum.errors += stats.receive_errors;
}

}  // namespace

Result<std::shared_ptr<CopyQueue>> CopyQueue::open(std::shared_ptr<dr::Eswitch> eswitch, dr::CopyKind kind,
                                                   unsigned frame_size) noexcept try {
    std::shared_ptr<CopyQueue> copies(new CopyQueue(std::move(eswitch), kind, frame_size));
    if (auto made = copies->make_queue(); !made) return tl::unexpected(std::move(made.error()));
    return copies;
} catch (const std::bad_alloc&) {
    return tl::unexpected(out_of_memory());
}

CopyQueue::~CopyQueue() { stop(); }

void CopyQueue::stop() noexcept {
    const std::lock_guard guard(lead_mutex_);
    if (queue_ != nullptr && !std::exchange(stopped_, true)) eswitch_->stop_copies(kind_);
}

void CopyQueue::fit(unsigned frame_size) noexcept {
    unsigned wanted = wanted_size_.load(std::memory_order_relaxed);
    while (wanted < frame_size && !wanted_size_.compare_exchange_weak(wanted, frame_size, std::memory_order_relaxed)) {
    }
}

/// The queue that there was becomes the old one. So does the new one when the device has failed with it: it may have
/// got copies, and gets no more.
Result<void> CopyQueue::make_queue() noexcept try {
    const unsigned frame_size = wanted_size_.load(std::memory_order_relaxed);
    const auto ib_port = any_ib_port(eswitch_->context());
    if (!ib_port) return tl::unexpected(ib_port.error());
    auto queue = PortQueue::create({.context = eswitch_->context(),
                                    .pd = eswitch_->pd(),
                                    .ib_port = *ib_port,
                                    .receive_length = length,
                                    .transmit_length = 2 * batch_length,
                                    .frame_size = frame_size});
    if (!queue) return tl::unexpected(std::move(queue.error()));
    const std::lock_guard lead_guard(lead_mutex_);
    if (stopped_) return tl::unexpected(Error{ECANCELED, "the queue for copies has been stopped"});
    const auto led = eswitch_->lead_copies(kind_, (*queue)->qp());
    const std::lock_guard guard(queue_mutex_);
    if (!led) {
        if (queue_ != nullptr) old_ = std::move(*queue);
        return led;
    }
    old_ = std::exchange(queue_, std::move(*queue));
    frame_size_ = frame_size;
    return {};
} catch (const std::bad_alloc&) {
    return tl::unexpected(out_of_memory());
}

void CopyQueue::replace_queue() noexcept {
    const auto now = Clock::now();
    if (now < next_attempt_) return;
    next_attempt_ = now + between_attempts;
    const bool failed = queue_->failed();
    // What cannot be made now is tried again later; dr/copies tells that the queue has failed.
    if (!make_queue()) return;
    if (failed) {
        const std::lock_guard guard(queue_mutex_);
        ++past_.restarts;
    } else {
        next_attempt_ = {};   // it has grown, and may have to at once again
    }
}

std::span<const Frame> CopyQueue::receive() noexcept {
    if (old_ == nullptr && is_to_be_replaced()) replace_queue();
    if (old_ != nullptr) {
        if (const auto frames = old_->receive(0); !frames.empty()) return frames;
        std::unique_ptr<PortQueue> gone;   // destroyed without the lock
        const std::lock_guard guard(queue_mutex_);
        gone = std::move(old_);
        add(past_, *gone);
    }
    return queue_->receive(0);
}

bool CopyQueue::arm() noexcept {
    if (old_ != nullptr) return false;
    if (is_to_be_replaced() && Clock::now() >= next_attempt_) return false;
    return queue_->arm(0);
}

int CopyQueue::retry_in_ms() const noexcept {
    if (!is_to_be_replaced()) return -1;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(next_attempt_ - Clock::now()).count();
    return static_cast<int>(std::max<std::int64_t>(0, left));
}

CopyStats CopyQueue::stats() const noexcept {
    const std::lock_guard guard(queue_mutex_);
    CopyStats sum = past_;
    add(sum, *queue_);
    if (old_ != nullptr) add(sum, *old_);
    return sum;
}

}  // namespace ovsdr::slowpath
