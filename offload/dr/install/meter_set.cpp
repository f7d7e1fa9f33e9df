#include "offload/dr/install/meter_set.hpp"

#include <cerrno>
#include <utility>

#include "offload/dr/install/make.hpp"

namespace ovsdr::dr {

namespace {

FlowStats difference(const FlowStats& now, const FlowStats& before) noexcept {
    return {now.packets - before.packets, now.bytes - before.bytes, now.used_ms};
}

}  // namespace

MeterSet::MeterSet(std::shared_ptr<Device> device, std::shared_ptr<Domain> fdb, CounterPool& counters) noexcept
    : fdb_(std::move(fdb)), counters_(counters), pool_(std::make_shared<meter::MeterPool>(std::move(device))) {}

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
        if (auto changed = known.meter->slot_->change(parameters); !changed) return changed;
        known.meter->before_ = counted(*known.meter);
    }
    known.spec = spec;
    known.parameters = parameters;
    known.rate = spec.rate;
    return {};
}

Result<void> MeterSet::lower(std::uint32_t number, std::uint32_t rate) noexcept {
    std::lock_guard lock(mutex_);
    const auto found = meters_.find(number);
    if (found == meters_.end() || found->second.meter == nullptr || found->second.rate == rate) return {};
    Known& known = found->second;
    meter::Spec lowered = known.spec;
    lowered.rate = rate;
    auto changed = known.meter->slot_->change_rate(meter::rate_of(lowered.bytes_a_second()));
    if (changed) known.rate = rate;
    return changed;
}

bool MeterSet::is_in_device(std::uint32_t number) noexcept {
    std::lock_guard lock(mutex_);
    const auto found = meters_.find(number);
    return found != meters_.end() && found->second.meter != nullptr;
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
    return known.meter;
}

Result<std::shared_ptr<DeviceMeter>> MeterSet::make(const meter::Parameters& parameters) {
    auto made = std::make_shared<DeviceMeter>();
    Result<void> done = take(made->passed_, counters_.acquire(0, false));
    if (done) done = take(made->dropped_, counters_.acquire(0, false));
    meter::Meter slot;
    if (done) done = take(slot, pool_->acquire(parameters));
    if (done) {
        // The pool goes behind the last meter.
        struct Slot {
            std::shared_ptr<meter::MeterPool> pool;
            meter::Meter meter;
        };
        auto held = std::make_shared<Slot>(Slot{pool_, std::move(slot)});
        made->slot_ = std::shared_ptr<meter::Meter>(held, &held->meter);
        done = take(made->colour_, Action::colour(fdb_, made->slot_, DeviceMeter::colour_register));
    }
    if (!done) return tl::unexpected(std::move(done.error()));
    return made;
}

MeterStats MeterSet::counted(DeviceMeter& meter) noexcept {
    return {counters_.settle(meter.passed_), counters_.settle(meter.dropped_)};
}

MeterStats MeterSet::stats(std::uint32_t number) noexcept {
    std::lock_guard lock(mutex_);
    const auto found = meters_.find(number);
    if (found == meters_.end() || found->second.meter == nullptr) return {};
    DeviceMeter& meter = *found->second.meter;
    const MeterStats now = counted(meter);
    return {difference(now.passed, meter.before_.passed), difference(now.dropped, meter.before_.dropped)};
}

}  // namespace ovsdr::dr
