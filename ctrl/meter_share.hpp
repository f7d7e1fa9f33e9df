// How much of a meter's rate is left for one device, when others let packets of the same meter pass as well.
//
// Model. A meter stands in software and in each device, and each would give the whole rate. What the others let pass is
// a debt of the device, which it pays in the time that follows, by a lower rate: all of it in one interval, as far as
// the rate goes. So each bit that software lets pass is one that the device does not, an interval later; over any
// time, all together pass no more than the rate, a burst each, and what comes within two intervals. An interval that
// took longer has paid more: what was too much is credited.
//
// What others let pass before the device had the meter is no debt. More than a second's debt, or an interval's that
// took longer, is forgiven: it comes of others that let more pass than the rate, and the device would stand still.
//
// Threads: a value.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

namespace ovsdr::ctrl {

class MeterShare {
public:
    /// The others have let `others` pass in all, of what the rate counts a second, `elapsed_ms` after the call before;
    /// what the device's rate is to be for the next `interval_ms`, `rate` at most.
    std::uint32_t next(std::uint64_t others, std::uint32_t rate, std::int64_t elapsed_ms,
                       unsigned interval_ms) noexcept {
        const std::int64_t longest = rate * std::max(second, elapsed_ms);
        const auto passed = static_cast<std::int64_t>(others - std::min(others, told_.value_or(others)));
        const std::int64_t paid = lower_ * elapsed_ms;
        debt_ = std::clamp(debt_ - paid + passed * second, -longest, longest);
        told_ = others;
        before_ = lower_;
        lower_ = std::clamp<std::int64_t>((debt_ + interval_ms - 1) / interval_ms, 0, rate);
        return rate - static_cast<std::uint32_t>(lower_);
    }

    /// The device did what next() said last.
    void accepted() noexcept { refusals_ = 0; }
    /// It did not, and goes on as before. True: nor did it the time before.
    [[nodiscard]] bool refused() noexcept {
        lower_ = before_;
        return ++refusals_ > 1;
    }

private:
    static constexpr std::int64_t second = 1000;
    std::optional<std::uint64_t> told_;
    std::int64_t debt_ = 0;                 ///< in units of 1 / 1,000; less than 0: paid in advance
    std::int64_t lower_ = 0, before_ = 0;   ///< than the rate, now and before the last change
    unsigned refusals_ = 0;                 ///< in a row
};

}  // namespace ovsdr::ctrl
