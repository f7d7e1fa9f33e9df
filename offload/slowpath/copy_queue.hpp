// A queue of a device for copies of one kind that software does something with (offload/dr/software.hpp): a raw packet
// QP that only receives, of all ports of the device, apart from their slow path.
//
// Model. Frames come up with the id of their work as tag; Eswitch::work_of() says what it is. The buffers are as many
// as there were in the beginning: what finds none is lost, and is a copy, not traffic. Who receives replaces the queue,
// by one with larger buffers when fit() has asked for them, by one that works when it has failed; what the queue before
// still holds is given out first. Where the device fails in between, the new queue may have got copies: those are given
// out, and the queue before stays.
//
// Life cycle. While the queue is open, megaflows that need such copies can be in the device. stop() takes them out; the
// owner calls it before the device goes, and what has come up until then can still be received.
//
// Threads: one receiver, who calls receive(), arm() and receive_fd(); all else from any thread. The last owner destroys
// it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>

#include "offload/dr/eswitch.hpp"
#include "offload/slowpath/port_queue.hpp"

namespace ovsdr::slowpath {

/// In frames.
struct CopyStats {
    std::uint64_t received = 0;   ///< given out
    std::uint64_t errors = 0;     ///< the device could not put them into a buffer
    std::uint64_t restarts = 0;   ///< queues that failed and were replaced
};

class CopyQueue {
public:
    static constexpr unsigned length = 1024;   ///< frames that can wait

    /// For frames of `frame_size` bytes.
    [[nodiscard]] static Result<std::shared_ptr<CopyQueue>> open(std::shared_ptr<dr::Eswitch> eswitch,
                                                                 dr::CopyKind kind, unsigned frame_size) noexcept;
    ~CopyQueue();
    CopyQueue(const CopyQueue&) = delete;
    CopyQueue& operator=(const CopyQueue&) = delete;

    /// Copies that the device has led to it, or has had no room for.
    [[nodiscard]] std::uint64_t led() const noexcept { return eswitch_->copies(kind_) - led_before_; }
    [[nodiscard]] dr::CopyKind kind() const noexcept { return kind_; }
    [[nodiscard]] const dr::Eswitch& eswitch() const noexcept { return *eswitch_; }
    /// When this returns no megaflow of the device needs such copies, and no more come.
    void stop() noexcept;
    /// Asks the receiver for room for frames of this size, if there is less.
    void fit(unsigned frame_size) noexcept;

    /// At most batch_length frames, valid until the next call.
    [[nodiscard]] std::span<const Frame> receive() noexcept;
    /// Asks for one wake-up of receive_fd(); false when there is something to do already.
    [[nodiscard]] bool arm() noexcept;
    [[nodiscard]] int receive_fd() const noexcept { return queue_->receive_fd(0); }
    /// In how many milliseconds a queue that cannot be replaced is tried again; -1: there is none.
    [[nodiscard]] int retry_in_ms() const noexcept;

    [[nodiscard]] CopyStats stats() const noexcept;

private:
    using Clock = std::chrono::steady_clock;
    /// A queue that fails again and again, or cannot be made, is tried no more often.
    static constexpr std::chrono::seconds between_attempts{1};

    CopyQueue(std::shared_ptr<dr::Eswitch> eswitch, dr::CopyKind kind, unsigned frame_size) noexcept
        : eswitch_(std::move(eswitch)), kind_(kind), led_before_(eswitch_->copies(kind)), wanted_size_(frame_size) {}
    [[nodiscard]] bool is_to_be_replaced() const noexcept {
        return queue_->failed() || wanted_size_.load(std::memory_order_relaxed) > frame_size_;
    }
    [[nodiscard]] Result<void> make_queue() noexcept;
    void replace_queue() noexcept;

    const std::shared_ptr<dr::Eswitch> eswitch_;
    const dr::CopyKind kind_;
    const std::uint64_t led_before_;   ///< to a queue of the same eSwitch, whose ports had gone
    std::atomic<unsigned> wanted_size_;
    std::mutex lead_mutex_;     ///< whoever leads copies to a queue, or none there any more
    bool stopped_ = false;

    // The receiver changes them, with the lock; others read them with it.
    mutable std::mutex queue_mutex_;
    std::unique_ptr<PortQueue> queue_;
    std::unique_ptr<PortQueue> old_;   ///< that gets nothing more and has not been emptied
    CopyStats past_;                   ///< of queues that are gone
    unsigned frame_size_ = 0;
    Clock::time_point next_attempt_{};
};

}  // namespace ovsdr::slowpath
