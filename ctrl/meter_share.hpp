// How much of a meter's rate is left for one device, when others let packets of the same meter pass as well.
//
// Model. A meter stands in software and in each device, and each would give the whole rate. What the others let pass is
// a debt of the device, which it pays in the intervals that follow, by a lower rate: all of it in the next one, as far
// as the rate goes. So each bit that software lets pass is one that the device does not, an interval later; over any
// time, all together pass no more than the rate, a burst each, and what comes within two intervals.
//
// Threads: a value.
#pragma once

#include <algorithm>
#include <cstdint>

namespace ovsdr::ctrl {

class MeterShare {
public:
    /// The others have let `others` pass in all, of what the rate counts a second; what the device's rate is to be for
    /// the next `interval_ms`, `rate` at most.
    std::uint32_t next(std::uint64_t others, std::uint32_t rate, unsigned interval_ms) noexcept {
        constexpr std::uint64_t second = 1000;
        debt_ += others > told_ ? (others - told_) * second : 0;   // in units of 1 / 1,000
        told_ = others;
        const std::uint64_t lower = std::min<std::uint64_t>(rate, (debt_ + interval_ms - 1) / interval_ms);
        debt_ -= std::min(debt_, lower * interval_ms);
        return rate - static_cast<std::uint32_t>(lower);
    }

private:
    std::uint64_t told_ = 0, debt_ = 0;
};

}  // namespace ovsdr::ctrl
