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

int milliseconds_until(CopyQueue::Clock::time_point time) noexcept {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(time - CopyQueue::Clock::now()).count();
    return static_cast<int>(std::max<std::int64_t>(1, left));
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
    Made made;
    if (auto led = copies->make_queue(made); !led) return tl::unexpected(std::move(led.error()));
    copies->queue_ = std::move(made.queue);
    return copies;
} catch (const std::bad_alloc&) {
    return tl::unexpected(out_of_memory());
}

CopyQueue::~CopyQueue() { stop(); }

void CopyQueue::stop() noexcept {
    const std::lock_guard guard(lead_mutex_);
    const bool is_open = [this] {
        const std::lock_guard queue_guard(queue_mutex_);
        return queue_ != nullptr;
    }();
    if (is_open && !std::exchange(stopped_, true)) eswitch_->stop_copies(kind_);
}

void CopyQueue::fit(unsigned frame_size) noexcept {
    unsigned wanted = wanted_size_.load(std::memory_order_relaxed);
    while (wanted < frame_size && !wanted_size_.compare_exchange_weak(wanted, frame_size, std::memory_order_relaxed)) {
    }
}

Result<void> CopyQueue::make_queue(Made& made) noexcept try {
    const unsigned frame_size = wanted_size_.load(std::memory_order_relaxed);
    const auto ib_port = any_ib_port(eswitch_->context());
    if (!ib_port) return tl::unexpected(ib_port.error());
    auto queue = PortQueue::create({.context = eswitch_->context(),
                                    .pd = eswitch_->pd(),
                                    .ib_port = *ib_port,
                                    .receive_length = length_of(kind_, frame_size),
                                    .transmit_length = 2 * batch_length,
                                    .frame_size = frame_size});
    if (!queue) return tl::unexpected(std::move(queue.error()));
    const std::lock_guard lead_guard(lead_mutex_);
    if (stopped_) return tl::unexpected(Error{ECANCELED, "the queue for copies has been stopped"});
    auto led = eswitch_->lead_copies(kind_, (*queue)->qp());
    made = {std::move(*queue), led.has_value()};
    if (led) frame_size_ = frame_size;
    return led;
} catch (const std::bad_alloc&) {
    return tl::unexpected(out_of_memory());
}

CopyQueue::Tended CopyQueue::tend() noexcept {
    asked_.store(false, std::memory_order_seq_cst);   // who asks from now on asks for another call
    std::unique_ptr<PortQueue> gone;   // destroyed without the lock
    bool failed = false;
    {
        const std::lock_guard guard(queue_mutex_);
        gone = std::move(gone_);
        has_gone_.store(false, std::memory_order_relaxed);
        // What is being taken over shows then whether it works; the receiver asks again when that is done.
        if (made_.queue != nullptr || old_ != nullptr) return {false, -1};
        failed = queue_->failed();
    }
    gone.reset();
    if (!failed && wanted_size_.load(std::memory_order_relaxed) <= frame_size_) return {false, -1};
    const auto now = Clock::now();
    if (now < next_attempt_) return {false, later()};
    next_attempt_ = now + between_attempts;
    Made made;
    is_hidden_.store(true, std::memory_order_seq_cst);
    const auto led = make_queue(made);
    if (made.queue == nullptr) is_hidden_.store(false, std::memory_order_relaxed);
    if (led && !failed) next_attempt_ = {};   // it has grown, and may have to at once again
    // What cannot be made now is tried again later; dr/copies tells that the queue has failed.
    const int again = led || led.error().code == ECANCELED ? -1 : later();
    if (made.queue == nullptr) return {false, again};
    const std::lock_guard guard(queue_mutex_);
    if (led && failed) ++past_.restarts;
    made_ = std::move(made);
    is_made_.store(true, std::memory_order_release);
    return {true, again};
}

/// Nobody need ask until then.
int CopyQueue::later() noexcept {
    asked_.store(true, std::memory_order_seq_cst);
    return milliseconds_until(next_attempt_);
}

/// The queue that there was becomes the old one. So does the new one when the device has failed with it.
void CopyQueue::take_over() noexcept {
    const std::lock_guard guard(queue_mutex_);
    is_made_.store(false, std::memory_order_relaxed);
    old_ = made_.leads ? std::exchange(queue_, std::move(made_.queue)) : std::move(made_.queue);
    is_hidden_.store(false, std::memory_order_relaxed);
}

std::span<const Frame> CopyQueue::receive() noexcept {
    if (old_ == nullptr && is_made_.load(std::memory_order_acquire)) take_over();
    if (old_ != nullptr) {
        if (const auto frames = old_->receive(0); !frames.empty()) return frames;
        const std::lock_guard guard(queue_mutex_);
        add(past_, *old_);
        gone_ = std::move(old_);
        has_gone_.store(true, std::memory_order_relaxed);
    }
    const auto now = Clock::now();
    const auto frames = queue_->receive(0);
    const bool sees_all = !is_hidden_.load(std::memory_order_seq_cst);
    if (frames.empty() && sees_all && queue_->found_empty(0)) note_emptied(now);
    return frames;
}

void CopyQueue::note_emptied(Clock::time_point when) noexcept {
    const CopyStats taken = stats();
    // Whoever sees the time sees this count or a later one, which is of a later time: right as well.
    emptied_taken_.store(taken.received + taken.errors, std::memory_order_relaxed);
    emptied_at_.store(when.time_since_epoch().count(), std::memory_order_release);
}

CopyQueue::Emptied CopyQueue::emptied() const noexcept {
    const Clock::time_point at{Clock::duration(emptied_at_.load(std::memory_order_acquire))};
    return {at, emptied_taken_.load(std::memory_order_relaxed)};
}

bool CopyQueue::arm() noexcept {
    if (old_ != nullptr || is_made_.load(std::memory_order_acquire)) return false;
    // What has failed by now wakes nobody.
    return queue_->arm(0) && !(queue_->failed() && !asked_.load(std::memory_order_relaxed));
}

bool CopyQueue::asks_for_tending() noexcept {
    const bool needed = has_gone_.load(std::memory_order_relaxed) || queue_->failed();
    return needed && !asked_.load(std::memory_order_relaxed) && !asked_.exchange(true, std::memory_order_seq_cst);
}

CopyStats CopyQueue::stats() const noexcept {
    const std::lock_guard guard(queue_mutex_);
    CopyStats sum = past_;
    add(sum, *queue_);
    for (const PortQueue* each : {old_.get(), made_.queue.get()}) {
        if (each != nullptr) add(sum, *each);
    }
    return sum;
}

}  // namespace ovsdr::slowpath
