// When the next frames of a stream are due.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

namespace ovsdr::drgen {

/// A constant rate without drift: frame n is due n / rate after the start, however late the one before it went out.
/// What was missed is made up for. Times are cycles since the start.
class Pacer {
public:
    /// `rate` in frames per second, 0 for as fast as possible; `cycles_per_second` of the clock.
    Pacer(double rate, std::uint64_t cycles_per_second) noexcept
        : frames_per_cycle_(rate / static_cast<double>(cycles_per_second)) {}

    /// How many frames are due by `now` beyond the `sent` ones.
    [[nodiscard]] std::uint64_t due(std::uint64_t now, std::uint64_t sent) noexcept {
        if (frames_per_cycle_ <= 0) return std::numeric_limits<std::uint64_t>::max();
        const auto total = static_cast<std::uint64_t>(static_cast<double>(now) * frames_per_cycle_) + 1;
        const std::uint64_t due = total > sent ? total - sent : 0;
        largest_backlog_ = std::max(largest_backlog_, due);
        return due;
    }

    /// The most frames that were due at once: how far behind the generator fell.
    [[nodiscard]] std::uint64_t largest_backlog() const noexcept { return largest_backlog_; }

private:
    double frames_per_cycle_;
    std::uint64_t largest_backlog_ = 0;
};

}  // namespace ovsdr::drgen
