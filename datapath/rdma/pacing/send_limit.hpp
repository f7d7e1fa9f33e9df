// What bounds one send queue: a rate of its own, and its place under a leaf of the device's scheduler.
//
// Use. A queue with something to send calls begin(), sends as much as that says, and calls end(). Where begin() says 0
// the queue is held: held_until() is when to try again.
//
// Threads: one at a time, under the queue's own lock. Times: nanoseconds of the steady clock.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "datapath/rdma/pacing/rate_limit.hpp"
#include "datapath/rdma/pacing/scheduler.hpp"

namespace ovsdr::soft {

class SendLimit {
public:
    SendLimit() = default;
    ~SendLimit() { leave(); }
    SendLimit(const SendLimit&) = delete;
    SendLimit& operator=(const SendLimit&) = delete;

    /// 0: no rate of its own.
    void set_rate(std::uint32_t kilobits) noexcept {
        rate_.set(kilobits);
        has_rate_ = kilobits != 0;
        held_until_ = 0;
    }
    /// Under `leaf` from now on.
    void hang_on(Scheduler& scheduler, Scheduler::Element& leaf) {
        leave();
        scheduler_ = &scheduler;
        (void)scheduler.add(&leaf, Scheduler::Kind::queue, {}, place_);  // without attributes it cannot fail
    }
    /// Its place.
    void leave() noexcept {
        if (place_) (void)scheduler_->remove(*place_);  // nothing hangs on a queue
        place_.reset();
        held_until_ = 0;
    }
    [[nodiscard]] bool limits() const noexcept { return has_rate_ || place_; }

    /// Bytes that may go now, the last packet of them in whole.
    [[nodiscard]] std::uint64_t begin(std::uint64_t now) noexcept {
        release(now);
        if (held_until_ != 0) return 0;
        Scheduler::Grant grant{.bytes = rate_.allowance(now), .at = rate_.free_at()};
        if (grant.bytes != 0 && place_) {
            const std::uint64_t own = grant.bytes;
            grant = scheduler_->ask(*place_, now);
            grant.bytes = std::min(grant.bytes, own);
        }
        if (grant.bytes == 0) held_until_ = grant.at;
        return grant.bytes;
    }
    /// After begin() let something go: `more` says whether there is more to send.
    void end(std::uint64_t bytes, std::uint64_t now, bool more) noexcept {
        rate_.sent(bytes, now);
        if (place_) scheduler_->sent(*place_, bytes, now, more && rate_.allowance(now) != 0);
    }
    /// It may try again, if it is time.
    void release(std::uint64_t now) noexcept {
        if (held_until_ <= now) held_until_ = 0;
    }
    /// 0: not held.
    [[nodiscard]] std::uint64_t held_until() const noexcept { return held_until_; }

private:
    RateLimit rate_;
    bool has_rate_ = false;
    Scheduler* scheduler_ = nullptr;
    std::unique_ptr<Scheduler::Element> place_;
    std::uint64_t held_until_ = 0;
};

}  // namespace ovsdr::soft
