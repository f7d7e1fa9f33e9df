// How much of a meter's rate is left for one device, when software and other devices let packets of the same meter pass
// as well.
//
// Model. A meter stands in software and in each device, and each would give the whole rate. What software lets pass is
// a debt of each device, which it pays in the time that follows, by a lower rate: all of it in one interval, as far as
// the rate goes. So each bit that software lets pass is one that the device does not, an interval later; over any
// time, both together pass no more than the rate, a burst each, and what comes within two intervals. An interval that
// took longer has paid more: what was too much is credited.
//
// What software let pass before the device had the meter is no debt. More than a second's debt, or an interval's that
// took longer, is forgiven: it comes of software that let more pass than the rate, and the device would stand still.
//
// Threads: a value.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <span>

namespace ovsdr::ctrl {

class MeterShare {
public:
    /// Software has let `software` pass in all, of what the rate counts a second, `elapsed_ms` after the call before;
    /// what is left for devices in the next `interval_ms`, `rate` at most.
    std::uint32_t next(std::uint64_t software, std::uint32_t rate, std::int64_t elapsed_ms,
                       unsigned interval_ms) noexcept {
        const std::int64_t longest = rate * std::max(second, elapsed_ms);
        const auto passed = static_cast<std::int64_t>(software - std::min(software, told_.value_or(software)));
        const std::int64_t paid = lower_ * elapsed_ms;
        debt_ = std::clamp(debt_ - paid + passed * second, -longest, longest);
        told_ = software;
        before_ = lower_;
        lower_ = std::clamp<std::int64_t>((debt_ + interval_ms - 1) / interval_ms, 0, rate);
        return rate - static_cast<std::uint32_t>(lower_);
    }

    /// next() was not called yet.
    [[nodiscard]] bool is_new() const noexcept { return !told_; }

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

/// What several devices may give of what is left for them.
///
/// Model. In OVS all packets of a meter take from one bucket: while it is empty each packet has the same chance,
/// wherever it comes in. So where devices are offered more than there is, each has a part of it by what it was offered
/// in the interval before, and at least an eighth of an equal part, so that one that counts no drops can grow. Where
/// they are offered less, each may give what the others leave. What they give too much before that is known (a burst
/// each, and what was not to be expected) they pay by a quarter in each interval, and half of the rate at most, so that
/// nobody stands still.
class MeterSplit {
public:
    struct Device {
        bool is_new = false;                     ///< it has no part yet, and begins with all that is left
        std::uint64_t passed = 0, offered = 0;   ///< since the call before
    };
    /// `left`: of the rate, for all of them in the next `interval_ms`.
    void next(std::span<const Device> devices, std::uint32_t left, std::int64_t elapsed_ms,
              unsigned interval_ms) noexcept {
        Device all;
        for (const Device& device : devices) {
            all.passed += device.passed;
            all.offered += device.offered;
        }
        const std::int64_t longest = left * std::max(second, elapsed_ms);
        const std::int64_t given =
            static_cast<std::int64_t>(all.passed) * second - left_before_.value_or(left) * elapsed_ms;
        debt_ = std::clamp<std::int64_t>(debt_ + given, 0, longest);
        const std::int64_t quarter = (debt_ + 4 * interval_ms - 1) / (4 * interval_ms);
        total_ = left - static_cast<double>(std::min<std::int64_t>(quarter, left / 2));
        offered_ = per_second(all.offered, elapsed_ms);
        n_devices_ = static_cast<double>(devices.size());
        elapsed_ms_ = elapsed_ms;
        left_before_ = left;
    }
    /// What one of them is to give, according to next(). Rates are whole: `carry`, 0 at first, is what is left of its
    /// part for the next interval.
    [[nodiscard]] std::uint32_t rate_of(const Device& device, double& carry) const noexcept {
        const double own = per_second(device.offered, elapsed_ms_);
        if (device.is_new) return static_cast<std::uint32_t>(left_before_.value_or(0));
        if (offered_ <= total_) return static_cast<std::uint32_t>(total_ - (offered_ - own));
        constexpr double least = 1.0 / 8;
        const double part = (own + least * offered_ / n_devices_) / (offered_ * (1 + least));
        const double rate = total_ * part + carry;
        carry = rate - std::floor(rate);
        return static_cast<std::uint32_t>(rate);
    }

private:
    static double per_second(std::uint64_t units, std::int64_t elapsed_ms) noexcept {
        return static_cast<double>(units) * second / static_cast<double>(std::max<std::int64_t>(elapsed_ms, 1));
    }
    static constexpr std::int64_t second = 1000;
    std::int64_t debt_ = 0;         ///< in units of 1 / 1,000
    std::optional<std::int64_t> left_before_;
    double total_ = 0, offered_ = 0, n_devices_ = 1;   ///< a second
    std::int64_t elapsed_ms_ = 1;
};

}  // namespace ovsdr::ctrl
