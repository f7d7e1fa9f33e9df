// A limit on how fast bytes leave: a token bucket that may go into debt.
//
// Model. A packet may leave once those before it are paid for, whatever its size, and is paid for at the rate from then
// on. So the average is exact, and one packet is the least that goes at a time. Time in which nothing was sent is worth
// something for a millisecond: that much is caught up with at once.
//
// Units: kilobits per second (1000 bits), bytes, nanoseconds of the steady clock. Threads: one at a time.
#pragma once

#include <algorithm>
#include <cstdint>

namespace ovsdr::soft {

class RateLimit {
public:
    static constexpr std::uint64_t unlimited = ~std::uint64_t{0};
    static constexpr std::uint64_t savings = 1'000'000;

    /// 0: no limit. What was sent before is forgotten.
    void set(std::uint64_t kilobits) noexcept { *this = {}, kilobits_ = kilobits; }

    /// Bytes that may leave now, the last packet of them in whole; 0: none before free_at().
    [[nodiscard]] std::uint64_t allowance(std::uint64_t now) const noexcept {
        if (kilobits_ == 0) return unlimited;
        if (free_at_ > now) return 0;
        return 1 + std::min(now - free_at_, savings) * kilobits_ / time_factor;
    }
    [[nodiscard]] std::uint64_t free_at() const noexcept { return free_at_; }

    void sent(std::uint64_t bytes, std::uint64_t now) noexcept {
        if (kilobits_ == 0) return;
        if (now > savings && free_at_ < now - savings) {
            free_at_ = now - savings;
            fraction_ = 0;
        }
        const std::uint64_t price = bytes * time_factor + fraction_;
        free_at_ += price / kilobits_;
        fraction_ = price % kilobits_;
    }

private:
    static constexpr std::uint64_t time_factor = 8'000'000;  ///< bytes / (kilobits per second), in nanoseconds

    std::uint64_t kilobits_ = 0;
    std::uint64_t free_at_ = 0;
    std::uint64_t fraction_ = 0;  ///< of a nanosecond, in parts of kilobits_
};

}  // namespace ovsdr::soft
