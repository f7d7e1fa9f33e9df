#include "offload/slowpath/attached_port.hpp"

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <new>
#include <utility>

#include "offload/dr/device/ib_port.hpp"

namespace ovsdr::slowpath {

namespace {

Error out_of_memory() noexcept { return {ENOMEM, "out of memory"}; }

}  // namespace

AttachedPort::AttachedPort(std::shared_ptr<dr::Eswitch> eswitch, const AttachedPortSpec& spec)
    : eswitch_(std::move(eswitch)), vport_(spec.vport), frame_size_(spec.frame_size), on_failure_(spec.on_failure) {}

Result<std::unique_ptr<AttachedPort>> AttachedPort::open(std::shared_ptr<dr::Eswitch> eswitch,
                                                         const AttachedPortSpec& spec) noexcept try {
    std::unique_ptr<AttachedPort> port(new AttachedPort(std::move(eswitch), spec));
    auto queue = port->make_queue(spec.frame_size);
    if (!queue) return tl::unexpected(std::move(queue.error()));
    port->queue_ = std::move(*queue);
    auto attached = port->eswitch_->attach_port({.odp_port = spec.odp_port,
                                                 .vport = spec.vport,
                                                 .name = spec.name,
                                                 .slow_path_qp = port->queue_->qp(),
                                                 .slow_path_sqn = port->queue_->sqn(),
                                                 .policed = spec.policed});
    if (!attached) return tl::unexpected(std::move(attached.error()));
    port->attached_ = true;
    return port;
} catch (const std::bad_alloc&) {
    return tl::unexpected(out_of_memory());
}

AttachedPort::~AttachedPort() {
    if (attached_) eswitch_->detach_port(vport_);
}

Result<std::unique_ptr<PortQueue>> AttachedPort::make_queue(unsigned frame_size) const noexcept {
    const auto port = dr::find_ib_port(eswitch_->context(), vport_);
    if (!port) return tl::unexpected(port.error());
    return PortQueue::create(
        {.context = eswitch_->context(), .pd = eswitch_->pd(), .ib_port = port->number, .frame_size = frame_size});
}

std::span<const Frame> AttachedPort::receive() noexcept {
    if (old_ != nullptr) {
        // What came first is given out first.
        if (const auto frames = old_->queue->receive(); !frames.empty()) return frames;
        const bool patient = std::chrono::steady_clock::now() < old_->give_up;
        if (old_->queue->sends_under_way() == 0 || !patient) end_old_queue();
    }
    const auto frames = queue_->receive();
    note_failure();
    return frames;
}

bool AttachedPort::arm() noexcept {
    // The old queue is looked after by receive().
    if (old_ != nullptr) return false;
    const bool armed = queue_->arm();
    note_failure();
    return armed;
}

unsigned AttachedPort::transmit(std::span<const std::span<const std::uint8_t>> frames) noexcept {
    const std::shared_lock guard(queue_lock_);
    const unsigned taken = queue_->transmit(frames);
    note_failure();
    return taken;
}

void AttachedPort::note_failure() const noexcept {
    if (queue_->failed() && !failed_.exchange(true, std::memory_order_relaxed) && on_failure_) on_failure_();
}

Result<void> AttachedPort::fit(unsigned frame_size) noexcept {
    if (frame_size <= frame_size_) return {};
    return replace_queue(frame_size);
}

std::string AttachedPort::failure() const {
    const std::shared_lock guard(queue_lock_);
    return queue_->failure();
}

Result<void> AttachedPort::restart() noexcept {
    auto replaced = replace_queue(frame_size_);
    if (replaced) {
        const std::unique_lock guard(queue_lock_);
        ++past_.restarts;
    }
    return replaced;
}

Result<void> AttachedPort::replace_queue(unsigned frame_size) noexcept try {
    // Twice without a receive() in between: what the first one still holds counts as missed.
    if (old_ != nullptr) end_old_queue();
    auto next = std::make_unique<OldQueue>();
    auto queue = make_queue(frame_size);
    if (!queue) return tl::unexpected(std::move(queue.error()));
    const auto led_up = eswitch_->switch_queue(vport_, (*queue)->qp(), (*queue)->sqn());
    if (!led_up) return tl::unexpected(led_up.error());
    next->led_up = *led_up;
    next->give_up = std::chrono::steady_clock::now() + patience;
    const std::unique_lock guard(queue_lock_);
    next->queue = std::exchange(queue_, std::move(*queue));
    old_ = std::move(next);
    frame_size_ = frame_size;
    failed_.store(false, std::memory_order_relaxed);
    return {};
} catch (const std::bad_alloc&) {
    return tl::unexpected(out_of_memory());
}

void AttachedPort::end_old_queue() noexcept {
    eswitch_->forget_old_queue(vport_);
    std::unique_ptr<OldQueue> gone;   // destroyed when senders may go on
    const std::unique_lock guard(queue_lock_);
    gone = std::move(old_);
    const std::size_t unsent = gone->queue->sends_under_way();
    QueueStats last = gone->queue->stats();
    last.send_errors += unsent;
    const std::uint64_t came_out = last.received + last.receive_errors;
    past_.receive_missed += gone->led_up - std::min(gone->led_up, came_out);
    past_.queue += last;
}

SlowPathStats AttachedPort::stats() const noexcept {
    const std::shared_lock guard(queue_lock_);
    SlowPathStats sum = past_;
    sum.queue += queue_->stats();
    note_failure();
    if (old_ != nullptr) sum.queue += old_->queue->stats();
    return sum;
}

}  // namespace ovsdr::slowpath
