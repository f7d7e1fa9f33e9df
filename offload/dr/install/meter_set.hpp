// OpenFlow meters in a device: what colours packets, and what counts those of each colour.
//
// Model. A meter gets its object when the first rule needs it, and keeps it until it goes. Its rules colour packets
// into a register; in a private table behind them one rule counts and leads on what is green, another counts and drops
// the rest (action_cache.hpp). All such rules of a meter share its two counters, so that what it has counted is the sum
// over its megaflows, those that are gone included.
//
// Where a rule ends in a meter (ConnectX-5), the meter leads to a table of its own, next to the table that packets
// enter. Its megaflows' rules write into reg_c_1 which path their packets are to take from there: a rule of that table
// for each path counts and leads on what is green, and the last one counts and drops.
//
// A meter that goes and comes again is another one: MeterUse::serial tells them apart, and so does one whose parameters
// the device would not change.
//
// Threads: any. Errors: the device's; ENOENT: the meter has gone.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "offload/dr/compile/plan.hpp"
#include "offload/dr/device/action.hpp"
#include "offload/dr/device/rule.hpp"
#include "offload/dr/install/counter.hpp"
#include "offload/meter/meter_pool.hpp"

namespace ovsdr::dr {

/// A meter in the device. Rules hold it; their actions hold its parts.
class DeviceMeter {
public:
    /// In the low byte of metadata_reg_c_5.
    enum Colour : std::uint8_t { red = 0, yellow = 1, green = 2 };
    static constexpr std::uint8_t colour_register = 5;
    /// Of rules behind the meter, which look for green, and for all else.
    static constexpr std::uint16_t passing_priority = 0, exceeding_priority = 1;

    [[nodiscard]] const ActionRef& colour() const noexcept { return colour_; }
    /// Of a meter that rules end in: the table that it leads to. Else NULL.
    [[nodiscard]] MatcherSet* behind() const noexcept { return behind_.get(); }
    /// A number for a path from there, for metadata_reg_c_1.
    [[nodiscard]] std::uint32_t new_path() noexcept { return ++paths_; }
    [[nodiscard]] mlx5dv_dr_action* count_passed() const noexcept { return passed_.action(); }
    [[nodiscard]] mlx5dv_dr_action* count_dropped() const noexcept { return dropped_.action(); }

private:
    friend class MeterSet;
    [[nodiscard]] Result<void> change(const meter::Parameters& parameters) noexcept;
    [[nodiscard]] Result<void> change_rate(meter::Float rate) noexcept;

    Counter passed_, dropped_;
    std::shared_ptr<meter::Meter> slot_;    ///< NULL: rules end in the meter
    std::shared_ptr<MatcherSet> behind_;
    Rule exceeding_;
    std::atomic<std::uint32_t> paths_{0};
    ActionRef colour_;
    MeterStats before_{};   ///< what it had counted when its parameters changed last
};

class MeterSet {
public:
    /// The counters outlive the set and its meters.
    MeterSet(std::shared_ptr<Device> device, std::shared_ptr<Domain> fdb, CounterPool& counters,
             bool rules_end_in_meters) noexcept;
    [[nodiscard]] bool rules_end_in_meters() const noexcept { return rules_end_in_meters_; }

    /// Rules may ask for it from now on. The meter before it of this number stays with its rules, and counts no more.
    void set(MeterUse use, const meter::Spec& spec, const meter::Parameters& parameters);
    /// Packets are coloured all the time. Statistics begin anew. An error: it has the old parameters or the new ones.
    [[nodiscard]] Result<void> change(std::uint32_t number, const meter::Spec& spec,
                                      const meter::Parameters& parameters) noexcept;
    /// Until the next call, or change().
    [[nodiscard]] Result<void> lower(std::uint32_t number, std::uint32_t rate) noexcept;
    /// By a rule.
    [[nodiscard]] bool is_used(std::uint32_t number) noexcept;
    /// `used` is called when a meter that no rule uses is about to be, with locks held.
    void on_use(std::function<void()> used) noexcept;
    void remove(std::uint32_t number) noexcept;

    [[nodiscard]] Result<std::shared_ptr<DeviceMeter>> use(MeterUse use) noexcept;

    /// Asks the device. Since set() or change().
    [[nodiscard]] MeterStats stats(std::uint32_t number) noexcept;

    struct Row {
        std::uint32_t number;
        meter::Spec spec;
        std::uint32_t rate;     ///< of the device now, at most the meter's own
        std::string object;     ///< what the device has for it
        MeterStats stats;
        bool used;              ///< by a rule
    };
    /// As stats(), of all.
    [[nodiscard]] std::vector<Row> rows() noexcept;

private:
    struct Known {
        std::uint32_t serial;
        meter::Spec spec;
        meter::Parameters parameters;
        std::shared_ptr<DeviceMeter> meter{};   ///< NULL: no rule has needed it
        std::uint32_t rate = spec.rate;         ///< of the device now
        bool rate_is_known = true;              ///< or the device failed when it was to be lowered

        [[nodiscard]] bool is_used() const noexcept { return meter.use_count() > 1; }
    };
    [[nodiscard]] Result<std::shared_ptr<DeviceMeter>> make(const meter::Parameters& parameters);
    [[nodiscard]] Result<void> take_slot(DeviceMeter& meter, const meter::Parameters& parameters);
    [[nodiscard]] Result<void> make_table_behind(DeviceMeter& meter, const meter::Parameters& parameters);
    [[nodiscard]] MeterStats counted(DeviceMeter& meter) noexcept;
    [[nodiscard]] MeterStats stats_of(const Known& known) noexcept;

    std::shared_ptr<Domain> fdb_;
    CounterPool& counters_;
    const bool rules_end_in_meters_;
    std::shared_ptr<meter::MeterPool> pool_;
    std::mutex mutex_;
    std::map<std::uint32_t, Known> meters_;
    std::function<void()> used_;
};

/// "500 packets a second, burst 100; passed 7 packets, 700 bytes; dropped 0 packets, 0 bytes; a legacy meter".
[[nodiscard]] std::string text_of(const MeterSet::Row& row);

}  // namespace ovsdr::dr
