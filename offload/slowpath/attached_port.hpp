// A vport that is attached to its eSwitch, with the queue of its slow path, which may be replaced while packets move.
//
// Model. There is one queue that sends, and receives into one or several receive queues. fit() replaces it by one with
// larger buffers, restart() by one that works, set_receive_queues() by one with more or less of them: the new queue is
// filled, its rules go in, the old one's rules for misses go out, and the old queue then waits beside the new one until
// receive() has given out all that it still held and its sends are done. Megaflows never notice. Where the device fails
// in between, the new queue is the one that goes, with what it was led by then.
//
// The owner's thread may receive itself, or leave that to a thread for each receive queue. In the second case it calls
// tend() when `on_event` was called, since an old queue may only go while nobody has its frames.
//
// Life cycle. open() commits last and leaves nothing behind when a step fails. The destructor detaches the vport, which
// waits for packets that are under way, and destroys the queues after that.
//
// Losses. What a queue was led and did not give out (no buffer, or it had failed) is known exactly once it is replaced:
// the rule that leads to it counts. Until then stats() does not have them.
//
// Threads: receive(), arm() and receive_fd() of a receive queue by one thread at a time; fit(), restart(),
// set_receive_queues(), tend() and the destructor by the owner's; the rest from any. Nobody receives during
// set_receive_queues().
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "common/writer_first_mutex.hpp"
#include "offload/dr/eswitch.hpp"
#include "offload/slowpath/port_queue.hpp"

namespace ovsdr::slowpath {

struct AttachedPortSpec {
    dr::OdpPort odp_port;   ///< as PortSpec's
    dr::VportId vport;
    std::string name;       ///< the interface's, for messages
    unsigned frame_size;    ///< bytes that a buffer holds
    /// Once for each queue that fails, and when tend() has something to do; from any thread, which it must not keep
    /// waiting.
    std::function<void()> on_event{};
    bool policed = false;   ///< as PortSpec's
    unsigned receive_queues = 1;
    std::uint16_t vlan = 0;   ///< as PortSpec's
    bool segments = false;    ///< a batch to be sent may be packets of 64 KB, each as many frames
};

struct SlowPathStats {
    QueueStats queue;                   ///< of all queues since open()
    std::uint64_t receive_missed = 0;   ///< frames led to queues that are gone, which did not come out of them
    std::uint64_t restarts = 0;
};

class AttachedPort {
public:
    /// Errors: those of Eswitch::attach_port() and PortQueue::create().
    [[nodiscard]] static Result<std::unique_ptr<AttachedPort>> open(std::shared_ptr<dr::Eswitch> eswitch,
                                                                    const AttachedPortSpec& spec) noexcept;
    ~AttachedPort();
    AttachedPort(const AttachedPort&) = delete;
    AttachedPort& operator=(const AttachedPort&) = delete;

    /// As PortQueue's: at most batch_length frames, valid until the next receive() or arm().
    [[nodiscard]] std::span<const Frame> receive(unsigned queue = 0) noexcept;
    [[nodiscard]] bool arm(unsigned queue = 0) noexcept;
    [[nodiscard]] int receive_fd(unsigned queue = 0) const noexcept { return queue_->receive_fd(queue); }
    [[nodiscard]] unsigned transmit(std::span<const std::span<const std::uint8_t>> frames) noexcept;

    /// As many receive queues from now on. An error: all goes on with those there are.
    [[nodiscard]] Result<void> set_receive_queues(unsigned length) noexcept;
    [[nodiscard]] unsigned receive_queues() const noexcept { return queue_->receive_queues(); }

    /// Lets go of an old queue of which all has been given out.
    void tend() noexcept;

    /// Makes room for frames of this size. An error: all goes on with the buffers there are; EBUSY: until a queue that
    /// was replaced before has been emptied, which `on_event` tells of.
    [[nodiscard]] Result<void> fit(unsigned frame_size) noexcept;
    [[nodiscard]] unsigned frame_size() const noexcept { return frame_size_; }

    /// The queue does not work any more; restart() makes one that does, or fails and may be tried again.
    [[nodiscard]] bool failed() const noexcept { return failed_.load(std::memory_order_relaxed); }
    [[nodiscard]] std::string failure() const;
    [[nodiscard]] Result<void> restart() noexcept;

    [[nodiscard]] SlowPathStats stats() const noexcept;

private:
    /// A queue that nothing is led to any more.
    struct OldQueue {
        std::unique_ptr<PortQueue> queue;
        std::uint64_t led_up;   ///< frames it was led in all
        std::chrono::steady_clock::time_point give_up;
        /// Receive queues that have nothing left, and whose receiver has no frame of theirs any more.
        /// Each is its receiver's.
        std::array<bool, max_receive_queues> emptied{};
        std::atomic<unsigned> to_empty;
    };
    /// For sends whose completions do not come.
    static constexpr std::chrono::milliseconds patience{100};

    AttachedPort(std::shared_ptr<dr::Eswitch> eswitch, const AttachedPortSpec& spec);
    [[nodiscard]] Result<std::unique_ptr<PortQueue>> make_queue(unsigned frame_size,
                                                                unsigned receive_queues) const noexcept;
    [[nodiscard]] Result<void> replace_queue(unsigned frame_size, unsigned receive_queues) noexcept;
    [[nodiscard]] std::span<const Frame> receive_old(unsigned queue) noexcept;
    void end_old_queue() noexcept;
    [[nodiscard]] bool owner_receives() const noexcept { return queue_->receive_queues() == 1; }
    /// With queue_lock_ shared, or by the receiver.
    void note_failure() const noexcept;

    std::shared_ptr<dr::Eswitch> eswitch_;
    dr::VportId vport_;
    const bool segments_;
    unsigned frame_size_;
    std::function<void()> on_event_;
    bool attached_ = false;
    mutable std::atomic<bool> failed_{false};

    // Senders, receivers and readers of figures share the lock, some of them without a pause; whoever replaces a queue
    // owns it for the moment.
    mutable WriterFirstMutex queue_lock_;
    std::unique_ptr<PortQueue> queue_;
    std::unique_ptr<OldQueue> old_;
    SlowPathStats past_;   ///< of queues that are gone
};

}  // namespace ovsdr::slowpath
