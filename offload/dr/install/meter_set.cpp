#include "offload/dr/install/meter_set.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <utility>

#include "offload/dr/compile/levels.hpp"
#include "offload/dr/install/make.hpp"

namespace ovsdr::dr {

namespace {

FlowStats difference(const FlowStats& now, const FlowStats& before) noexcept {
    return {now.packets - before.packets, now.bytes - before.bytes, now.used_ms};
}

}  // namespace

Result<void> DeviceMeter::change(const meter::Parameters& parameters) noexcept {
    if (slot_ != nullptr) return slot_->change(parameters);
    return colour_->change_meter(parameters, Action::MeterChange::rate_and_burst);
}

Result<void> DeviceMeter::change_rate(meter::Float rate) noexcept {
    if (slot_ != nullptr) return slot_->change_rate(rate);
    meter::Parameters parameters{};
    meter::put_rate(parameters, rate);
    return colour_->change_meter(parameters, Action::MeterChange::rate);
}

MeterSet::MeterSet(std::shared_ptr<Device> device, std::shared_ptr<Domain> fdb, CounterPool& counters,
                   bool rules_end_in_meters) noexcept
    : fdb_(std::move(fdb)), counters_(counters), rules_end_in_meters_(rules_end_in_meters),
      pool_(std::make_shared<meter::MeterPool>(std::move(device))) {}

void MeterSet::set(MeterUse use, const meter::Spec& spec, const meter::Parameters& parameters) {
    std::lock_guard lock(mutex_);
    meters_.insert_or_assign(use.number, Known{use.serial, spec, parameters});
}

Result<void> MeterSet::change(std::uint32_t number, const meter::Spec& spec,
                              const meter::Parameters& parameters) noexcept {
    std::lock_guard lock(mutex_);
    const auto found = meters_.find(number);
    if (found == meters_.end()) return tl::unexpected(Error{ENOENT, "the meter has gone", "meter"});
    Known& known = found->second;
    if (known.meter != nullptr) {
        if (auto changed = known.meter->change(parameters); !changed) return changed;
        known.meter->before_ = counted(*known.meter);
    }
    known.spec = spec;
    known.parameters = parameters;
    known.rate = spec.rate;
    known.rate_is_known = true;
    return {};
}

Result<void> MeterSet::lower(std::uint32_t number, std::uint32_t rate) noexcept {
    std::lock_guard lock(mutex_);
    const auto found = meters_.find(number);
    if (found == meters_.end() || found->second.meter == nullptr) return {};
    Known& known = found->second;
    if (known.rate_is_known && known.rate == rate) return {};
    meter::Spec lowered = known.spec;
    lowered.rate = rate;
    auto changed = known.meter->change_rate(meter::rate_of(lowered.bytes_a_second()));
    known.rate_is_known = changed.has_value();
    if (changed) known.rate = rate;
    return changed;
}

bool MeterSet::is_used(std::uint32_t number) noexcept {
    std::lock_guard lock(mutex_);
    const auto found = meters_.find(number);
    return found != meters_.end() && found->second.is_used();
}

void MeterSet::on_use(std::function<void()> used) noexcept {
    std::lock_guard lock(mutex_);
    used_ = std::move(used);
}

void MeterSet::remove(std::uint32_t number) noexcept {
    std::lock_guard lock(mutex_);
    meters_.erase(number);
}

Result<std::shared_ptr<DeviceMeter>> MeterSet::use(MeterUse use) noexcept {
    std::lock_guard lock(mutex_);
    const auto found = meters_.find(use.number);
    if (found == meters_.end() || found->second.serial != use.serial) {
        return tl::unexpected(Error{ENOENT, "the meter has gone", "meter"});
    }
    Known& known = found->second;
    if (known.meter == nullptr) {
        auto made = make(known.parameters);
        if (!made) return made;
        known.meter = std::move(*made);
    }
    if (used_ && !known.is_used()) used_();
    return known.meter;
}

Result<std::shared_ptr<DeviceMeter>> MeterSet::make(const meter::Parameters& parameters) {
    auto made = std::make_shared<DeviceMeter>();
    Result<void> done = take(made->passed_, counters_.acquire(0, false));
    if (done) done = take(made->dropped_, counters_.acquire(0, false));
    if (done) done = rules_end_in_meters_ ? make_table_behind(*made, parameters) : take_slot(*made, parameters);
    if (!done) return tl::unexpected(std::move(done.error()));
    return made;
}

Result<void> MeterSet::take_slot(DeviceMeter& meter, const meter::Parameters& parameters) {
    meter::Meter slot;
    if (auto taken = take(slot, pool_->acquire(parameters)); !taken) return taken;
    // The pool goes behind the last meter.
    struct Slot {
        std::shared_ptr<meter::MeterPool> pool;
        meter::Meter meter;
    };
    auto held = std::make_shared<Slot>(Slot{pool_, std::move(slot)});
    meter.slot_ = std::shared_ptr<meter::Meter>(held, &held->meter);
    return take(meter.colour_, Action::colour(fdb_, meter.slot_, DeviceMeter::colour_register));
}

Result<void> MeterSet::make_table_behind(DeviceMeter& meter, const meter::Parameters& parameters) {
    ActionRef drop;
    Result<void> done = take_table(meter.behind_, fdb_, Levels::entry + 1);
    if (done) done = take(drop, Action::drop());
    if (done) {
        done = take(meter.exceeding_, make_rule(*meter.behind_, {{}, DeviceMeter::exceeding_priority}, {}, {drop},
                                                meter.count_dropped()));
    }
    if (!done) return done;
    return take(meter.colour_, Action::police(meter.behind_->shared_table(), parameters, DeviceMeter::colour_register));
}

MeterStats MeterSet::counted(DeviceMeter& meter) noexcept {
    return {counters_.read_now(meter.passed_), counters_.read_now(meter.dropped_)};
}

MeterStats MeterSet::stats(std::uint32_t number) noexcept {
    std::lock_guard lock(mutex_);
    const auto found = meters_.find(number);
    return found == meters_.end() ? MeterStats{} : stats_of(found->second);
}

MeterStats MeterSet::stats_of(const Known& known) noexcept {
    if (known.meter == nullptr) return {};
    DeviceMeter& meter = *known.meter;
    const MeterStats now = counted(meter);
    return {difference(now.passed, meter.before_.passed), difference(now.dropped, meter.before_.dropped)};
}

std::vector<MeterSet::Row> MeterSet::rows() noexcept {
    std::lock_guard lock(mutex_);
    std::vector<Row> rows;
    for (const auto& [number, known] : meters_) {
        const char* const none = known.meter == nullptr ? "no object yet" : "a legacy meter";
        const auto slot = known.meter == nullptr ? nullptr : known.meter->slot_;
        rows.push_back({number, known.spec, known.rate,
                        slot == nullptr ? none
                                        : fmt::format("half {} of ASO object {:#x}",
                                                      slot->offset() % meter::MeterPool::meters_of_object,
                                                      slot->object_number()),
                        stats_of(known), known.is_used()});
    }
    return rows;
}

std::string text_of(const MeterSet::Row& row) {
    const auto& [passed, dropped] = row.stats;
    const std::string lowered = row.rate == row.spec.rate ? "" : fmt::format(" (now {})", row.rate);
    return fmt::format("{}{} {} a second, burst {}; passed {} packets, {} bytes; dropped {} packets, {} bytes; {}",
                       row.spec.rate, lowered, row.spec.by_packets ? "packets" : "kilobits", row.spec.burst,
                       passed.packets, passed.bytes, dropped.packets, dropped.bytes, row.object);
}

}  // namespace ovsdr::dr
