// A queue of a device for copies of one kind that software does something with (offload/dr/software.hpp): a raw packet
// QP that only receives, of all ports of the device, apart from their slow path.
//
// Model. Frames come up with the id of their work as tag; Eswitch::work_of() says what it is. The buffers are as many
// as there were in the beginning: what finds none is lost, and is a copy, not traffic. tend() replaces the queue, by
// one with larger buffers when fit() has asked for them, by one that works when it has failed. The receiver takes the
// new one over, and gives out first what the queue before still holds. Where the device fails in between, the new queue
// may have got copies: those are given out, and the queue before stays.
//
// Making and destroying queues are commands to the firmware, which take long: the receiver, who may serve many devices,
// never does either.
//
// Life cycle. While the queue is open, megaflows that need such copies can be in the device. stop() takes them out; the
// owner calls it before the device goes, and what has come up until then can still be received.
//
// Threads: one receiver, who calls receive(), arm(), receive_fd() and asks_for_tending(); one at a time calls tend(),
// another one than the receiver; all else from any thread. The last owner destroys it.
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
    /// Frames that can wait. A storage mirror's are all of a port's, and its thread may wait for a core: 8,192 are a
    /// tenth of a second of 1,500 bytes at a gigabit a second. Larger frames are fewer: a queue has 32 MB at most.
    [[nodiscard]] static constexpr unsigned length_of(dr::CopyKind kind, unsigned frame_size) noexcept {
        unsigned length = most_of(kind);
        while (length > least_length && std::uint64_t{length} * frame_size > most_bytes) length /= 2;
        return length;
    }
    /// However small frames are.
    [[nodiscard]] static constexpr unsigned most_of(dr::CopyKind kind) noexcept {
        return is_mirror(kind) ? 8 * least_length : least_length;
    }

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
    /// Asks for room for frames of this size, if there is less: tend() makes it.
    void fit(unsigned frame_size) noexcept;

    struct Tended {
        bool for_receiver;   ///< there is something for receive() to take over
        int again_in_ms;     ///< tend() has to try again then; -1: not before somebody asks
    };
    /// Does what takes long. Whoever calls fit(), and a receiver whose queue asks for it, sees that it is called.
    Tended tend() noexcept;

    /// At most batch_length frames, valid until the next call.
    [[nodiscard]] std::span<const Frame> receive() noexcept;
    /// Asks for one wake-up of receive_fd(); false when there is something to do already.
    [[nodiscard]] bool arm() noexcept;
    [[nodiscard]] int receive_fd() const noexcept { return queue_->receive_fd(0); }
    /// A queue has failed, or has been emptied and may go: tend() is needed. True once for each such need.
    [[nodiscard]] bool asks_for_tending() noexcept;

    [[nodiscard]] CopyStats stats() const noexcept;

    using Clock = std::chrono::steady_clock;
    struct Emptied {
        Clock::time_point at{};    ///< what had come until then and was not lost was taken; 0: never found empty
        std::uint64_t taken = 0;   ///< given out, or told as errors
    };
    /// When receive() last began to look and found nothing.
    [[nodiscard]] Emptied emptied() const noexcept;

private:
    static constexpr unsigned least_length = 1024;
    static constexpr std::uint64_t most_bytes = 32U << 20;
    /// A queue that fails again and again, or cannot be made, is tried no more often.
    static constexpr std::chrono::seconds between_attempts{1};

    CopyQueue(std::shared_ptr<dr::Eswitch> eswitch, dr::CopyKind kind, unsigned frame_size) noexcept
        : eswitch_(std::move(eswitch)),
          kind_(kind),
          led_before_(dr::is_mirror(kind) ? 0 : eswitch_->copies(kind)),
          wanted_size_(frame_size) {}
    /// A queue that the receiver is to take over.
    struct Made {
        std::unique_ptr<PortQueue> queue;
        bool leads = false;   ///< copies go there now; else it has perhaps got some, and gets no more
    };
    /// Copies go to a new queue when this succeeds. `made` is to be taken over even when it does not.
    [[nodiscard]] Result<void> make_queue(Made& made) noexcept;
    [[nodiscard]] int later() noexcept;
    void take_over() noexcept;
    void note_emptied(Clock::time_point when) noexcept;

    const std::shared_ptr<dr::Eswitch> eswitch_;
    const dr::CopyKind kind_;
    /// To a queue of the same eSwitch, whose ports had gone. A mirror's kind is another mirror's later: the eSwitch
    /// counts it anew from when a queue is led to (Eswitch::lead_copies()).
    const std::uint64_t led_before_;
    std::atomic<unsigned> wanted_size_;
    std::mutex lead_mutex_;     ///< whoever leads copies to a queue, or none there any more
    bool stopped_ = false;

    std::atomic<bool> asked_{false};          ///< for tend(), or it will come anyway
    std::atomic<bool> has_gone_{false};       ///< gone_ is there
    std::atomic<bool> is_made_{false};        ///< made_ is there
    std::atomic<bool> is_hidden_{false};      ///< copies may be in a queue that the receiver does not know yet
    std::atomic<std::uint64_t> emptied_taken_{0};
    std::atomic<Clock::rep> emptied_at_{0};   ///< written after emptied_taken_

    // The receiver changes the first two, with the lock, and reads them without; all else is changed and read with it.
    mutable std::mutex queue_mutex_;
    std::unique_ptr<PortQueue> queue_;
    std::unique_ptr<PortQueue> old_;   ///< that gets nothing more and has not been emptied
    std::unique_ptr<PortQueue> gone_;  ///< emptied; tend() destroys it
    Made made_;
    CopyStats past_;                   ///< of queues that are gone
    // Of who calls tend().
    unsigned frame_size_ = 0;
    Clock::time_point next_attempt_{};
};

}  // namespace ovsdr::slowpath
