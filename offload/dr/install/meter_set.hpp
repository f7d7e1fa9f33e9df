// OpenFlow meters in a device: what colours packets, and what counts those of each colour.
//
// Model. A meter gets its object when the first rule needs it, and keeps it until it goes. Its rules colour packets
// into a register; in a private table behind them one rule counts and leads on what is green, another counts and drops
// the rest (action_cache.hpp). All such rules of a meter share its two counters, so that what it has counted is the sum
// over its megaflows, those that are gone included.
//
// A meter that goes and comes again is another one: MeterUse::serial tells them apart, and so does one whose parameters
// the device would not change.
//
// Threads: any. Errors: the device's; ENOENT: the meter has gone.
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "offload/dr/compile/plan.hpp"
#include "offload/dr/device/action.hpp"
#include "offload/dr/install/counter.hpp"
#include "offload/meter/meter_pool.hpp"

namespace ovsdr::dr {

/// A meter in the device. Rules hold it; their actions hold its parts.
class DeviceMeter {
public:
    /// In the low byte of metadata_reg_c_5.
    enum Colour : std::uint8_t { red = 0, yellow = 1, green = 2 };
    static constexpr std::uint8_t colour_register = 5;

    [[nodiscard]] const ActionRef& colour() const noexcept { return colour_; }
    [[nodiscard]] mlx5dv_dr_action* count_passed() const noexcept { return passed_.action(); }
    [[nodiscard]] mlx5dv_dr_action* count_dropped() const noexcept { return dropped_.action(); }

private:
    friend class MeterSet;
    Counter passed_, dropped_;
    std::shared_ptr<meter::Meter> slot_;
    ActionRef colour_;
    MeterStats before_{};   ///< what it had counted when its parameters changed last
};

class MeterSet {
public:
    /// The counters outlive the set and its meters.
    MeterSet(std::shared_ptr<Device> device, std::shared_ptr<Domain> fdb, CounterPool& counters) noexcept;

    /// Rules may ask for it from now on. The meter before it of this number stays with its rules, and counts no more.
    void set(MeterUse use, const meter::Spec& spec, const meter::Parameters& parameters);
    /// Packets are coloured all the time. Statistics begin anew. An error: it has the old parameters or the new ones.
    [[nodiscard]] Result<void> change(std::uint32_t number, const meter::Spec& spec,
                                      const meter::Parameters& parameters) noexcept;
    /// Until the next call, or change().
    [[nodiscard]] Result<void> lower(std::uint32_t number, std::uint32_t rate) noexcept;
    [[nodiscard]] bool is_in_device(std::uint32_t number) noexcept;
    void remove(std::uint32_t number) noexcept;

    [[nodiscard]] Result<std::shared_ptr<DeviceMeter>> use(MeterUse use) noexcept;

    /// Asks the device. Since set() or change().
    [[nodiscard]] MeterStats stats(std::uint32_t number) noexcept;

private:
    struct Known {
        std::uint32_t serial;
        meter::Spec spec;
        meter::Parameters parameters;
        std::shared_ptr<DeviceMeter> meter{};   ///< NULL: no rule has needed it
        std::uint32_t rate = spec.rate;         ///< of the device now
    };
    [[nodiscard]] Result<std::shared_ptr<DeviceMeter>> make(const meter::Parameters& parameters);
    [[nodiscard]] MeterStats counted(DeviceMeter& meter) noexcept;

    std::shared_ptr<Domain> fdb_;
    CounterPool& counters_;
    std::shared_ptr<meter::MeterPool> pool_;
    std::mutex mutex_;
    std::map<std::uint32_t, Known> meters_;
};

}  // namespace ovsdr::dr
