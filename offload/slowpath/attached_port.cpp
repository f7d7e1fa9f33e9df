#include "offload/slowpath/attached_port.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <mutex>
#include <new>
#include <shared_mutex>
#include <utility>

#include "offload/dr/device/ib_port.hpp"

namespace ovsdr::slowpath {

namespace {

Error out_of_memory() noexcept { return {ENOMEM, "out of memory"}; }

/// With segments: for a batch of packets of 64 KB, in frames that fill half a buffer at least.
unsigned transmit_length(unsigned frame_size, bool segments) noexcept {
    if (!segments) return PortQueueSpec::usual_transmit_length;
    constexpr unsigned batch = batch_length * 65536;
    return std::max(PortQueueSpec::usual_transmit_length, std::bit_ceil(batch / (frame_size / 2)));
}

}  // namespace

AttachedPort::AttachedPort(std::shared_ptr<dr::Eswitch> eswitch, const AttachedPortSpec& spec)
    : eswitch_(std::move(eswitch)), vport_(spec.vport), segments_(spec.segments), frame_size_(spec.frame_size),
      on_event_(spec.on_event) {}

Result<std::unique_ptr<AttachedPort>> AttachedPort::open(std::shared_ptr<dr::Eswitch> eswitch,
                                                         const AttachedPortSpec& spec) noexcept try {
    std::unique_ptr<AttachedPort> port(new AttachedPort(std::move(eswitch), spec));
    auto queue = port->make_queue(spec.frame_size, spec.receive_queues);
    if (!queue) return tl::unexpected(std::move(queue.error()));
    port->queue_ = std::move(*queue);
    auto attached = port->eswitch_->attach_port({.odp_port = spec.odp_port,
                                                 .vport = spec.vport,
                                                 .name = spec.name,
                                                 .slow_path_qp = port->queue_->qp(),
                                                 .slow_path_sqn = port->queue_->sqn(),
                                                 .by_kind = port->queue_->by_kind(),
                                                 .policed = spec.policed,
                                                 .vlan = spec.vlan});
    if (!attached) return tl::unexpected(std::move(attached.error()));
    port->attached_ = true;
    return port;
} catch (const std::bad_alloc&) {
    return tl::unexpected(out_of_memory());
}

AttachedPort::~AttachedPort() {
    if (attached_) eswitch_->detach_port(vport_);
}

Result<std::unique_ptr<PortQueue>> AttachedPort::make_queue(unsigned frame_size,
                                                            unsigned receive_queues) const noexcept {
    const auto port = dr::find_ib_port(eswitch_->context(), vport_);
    if (!port) return tl::unexpected(port.error());
    return PortQueue::create({.context = eswitch_->context(),
                              .pd = eswitch_->pd(),
                              .ib_port = port->number,
                              .transmit_length = transmit_length(frame_size, segments_),
                              .frame_size = frame_size,
                              .receive_queues = receive_queues});
}

std::span<const Frame> AttachedPort::receive(unsigned queue) noexcept {
    {
        const std::shared_lock guard(queue_lock_);
        // What came first is given out first.
        if (const auto frames = receive_old(queue); !frames.empty()) return frames;
        if (old_ == nullptr || !owner_receives()) {
            const auto frames = queue_->receive(queue);
            note_failure();
            return frames;
        }
    }
    tend();
    const auto frames = queue_->receive(queue);
    note_failure();
    return frames;
}

/// What the old queue still holds, and the receiver of this receive queue is to get.
std::span<const Frame> AttachedPort::receive_old(unsigned queue) noexcept {
    if (old_ == nullptr) return {};
    // Where there were more receive queues than now, some receivers look at several.
    for (unsigned old = queue; old < old_->queue->receive_queues(); old += queue_->receive_queues()) {
        if (old_->emptied[old]) continue;
        const auto frames = old_->queue->receive(old);
        if (!frames.empty()) return frames;
        old_->emptied[old] = true;
        // Release: whoever finds that the last one is empty destroys what this thread has read from.
        const bool last = old_->to_empty.fetch_sub(1, std::memory_order_release) == 1;
        if (last && !owner_receives() && on_event_) on_event_();
    }
    return {};
}

void AttachedPort::tend() noexcept {
    if (old_ == nullptr || old_->to_empty.load(std::memory_order_acquire) != 0) return;
    const bool patient = std::chrono::steady_clock::now() < old_->give_up;
    if (old_->queue->sends_under_way() == 0 || !patient) end_old_queue();
}

bool AttachedPort::arm(unsigned queue) noexcept {
    // The old queue is looked after by receive().
    if (old_ != nullptr) return false;
    const bool armed = queue_->arm(queue);
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
    if (queue_->failed() && !failed_.exchange(true, std::memory_order_relaxed) && on_event_) on_event_();
}

Result<void> AttachedPort::fit(unsigned frame_size) noexcept {
    if (frame_size <= frame_size_) return {};
    return replace_queue(frame_size, queue_->receive_queues());
}

Result<void> AttachedPort::set_receive_queues(unsigned length) noexcept {
    if (length == queue_->receive_queues()) return {};
    // Nobody receives: what the queue before still holds counts as missed.
    if (old_ != nullptr) end_old_queue();
    return replace_queue(frame_size_, length);
}

std::string AttachedPort::failure() const {
    const std::shared_lock guard(queue_lock_);
    return queue_->failure();
}

Result<void> AttachedPort::restart() noexcept {
    auto replaced = replace_queue(frame_size_, queue_->receive_queues());
    if (replaced) {
        const std::lock_guard guard(queue_lock_);
        ++past_.restarts;
    }
    return replaced;
}

Result<void> AttachedPort::replace_queue(unsigned frame_size, unsigned receive_queues) noexcept try {
    if (!owner_receives()) tend();
    if (!owner_receives() && old_ != nullptr) {
        return tl::unexpected(Error{EBUSY, "the queue before has not been emptied yet"});
    }
    // Twice without a receive() in between: what the first one still holds counts as missed.
    if (old_ != nullptr) end_old_queue();
    auto next = std::make_unique<OldQueue>();
    auto queue = make_queue(frame_size, receive_queues);
    if (!queue) return tl::unexpected(std::move(queue.error()));
    auto [made, led_up] = eswitch_->switch_queue(vport_, (*queue)->qp(), (*queue)->sqn(), (*queue)->by_kind());
    if (!made && led_up == 0) return made;
    next->led_up = led_up;
    next->give_up = std::chrono::steady_clock::now() + patience;
    const std::lock_guard guard(queue_lock_);
    // A new queue that the device has failed with may have got packets already: it is as an old one.
    next->queue = made ? std::exchange(queue_, std::move(*queue)) : std::move(*queue);
    next->to_empty = next->queue->receive_queues();
    old_ = std::move(next);
    if (!made) return made;
    frame_size_ = frame_size;
    failed_.store(false, std::memory_order_relaxed);
    return {};
} catch (const std::bad_alloc&) {
    return tl::unexpected(out_of_memory());
}

void AttachedPort::end_old_queue() noexcept {
    eswitch_->forget_old_queue(vport_);
    std::unique_ptr<OldQueue> gone;   // destroyed when senders may go on
    const std::lock_guard guard(queue_lock_);
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
