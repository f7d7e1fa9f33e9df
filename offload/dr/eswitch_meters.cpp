// EswitchImpl: OpenFlow meters, and the megaflows that they meter.
#include <fmt/format.h>

#include <map>
#include <set>
#include <utility>

#include "offload/dr/eswitch_impl.hpp"

namespace ovsdr::dr {

namespace {

void add_meters(const Path& path, std::set<std::uint32_t>& numbers) {
    if (path.meter) numbers.insert(path.meter->number);
    for (const Path& branch : path.branches) add_meters(branch, numbers);
}

}  // namespace

/// Where rules use the meter, the device changes it beneath them. Else, and where the device does not, it is another
/// meter from now on, and its megaflows get new rules: those come before the old ones go.
void EswitchImpl::set_meter(std::uint32_t number, const meter::Spec& spec) noexcept {
    std::lock_guard changes(port_changes_);
    const auto counts = caps_.meters_end_rules ? meter::Counts::bytes : meter::Counts::bytes_or_packets;
    const auto parameters = meter::parameters_of(spec, counts);
    const PortMap::Meter* known = port_map_.find_meter(number);
    const bool goes_on = parameters && known != nullptr && !known->refusal;
    if (goes_on && pipeline_->meters().change(number, spec, *parameters)) return;
    replace_meter(number, spec, parameters);
}

void EswitchImpl::replace_meter(std::uint32_t number, const meter::Spec& spec,
                                const tl::expected<meter::Parameters, meter::Refusal>& parameters) noexcept {
    {
        const auto lock = change_ports();
        const std::uint32_t serial = ++meter_serial_;
        if (parameters) {
            pipeline_->meters().set({number, serial}, spec, *parameters);
            port_map_.set_meter(number, {serial});
        } else {
            port_map_.set_meter(number, {serial, parameters.error()});
        }
    }
    recompile_metered(number);
    if (!parameters) pipeline_->meters().remove(number);
}

MeterStats EswitchImpl::remove_meter(std::uint32_t number) noexcept {
    std::lock_guard changes(port_changes_);
    {
        const auto lock = change_ports();
        port_map_.erase_meter(number);
    }
    recompile_metered(number);
    const MeterStats last = pipeline_->meters().stats(number);
    pipeline_->meters().remove(number);
    return last;
}

Result<void> EswitchImpl::lower_meter(std::uint32_t number, std::uint32_t rate) noexcept {
    return pipeline_->meters().lower(number, rate);
}

MeterStats EswitchImpl::meter_stats(std::uint32_t number) noexcept { return pipeline_->meters().stats(number); }

/// Of a meter in front of copies (ovsdr_software) it may be software that meters: the plan says.
std::set<std::uint32_t> EswitchImpl::metered_in_device(const Flow& flow) const {
    if (!flow.megaflow.has_software()) return flow.megaflow.meters();
    std::set<std::uint32_t> numbers;
    if (const auto plan = compiled(flow.megaflow.restore())) add_meters(plan->path, numbers);
    return numbers;
}

std::string EswitchImpl::text_of_meters() const {
    const auto rows = pipeline_->meters().rows();
    std::map<std::uint32_t, std::size_t> users;
    for (const FlowShard& shard : shards_) {
        if (rows.empty()) break;
        std::lock_guard lock(shard.mutex);
        shard.flows.for_each([&](const Flow& flow) {
            if (!flow.now.rule || !flow.megaflow.has_meter()) return;
            for (const std::uint32_t number : metered_in_device(flow)) ++users[number];
        });
    }
    std::string text;
    for (const MeterSet::Row& row : rows) {
        text += fmt::format("meter {}: {}; {} megaflows\n", row.number, text_of(row), users[row.number]);
    }
    for (const auto& [number, meter] : port_map_.meters()) {
        if (!meter.refusal) continue;
        text += fmt::format("meter {}: in software: {}{}\n", number, meter.refusal->name.text(), meter.refusal->value);
    }
    return text;
}

void EswitchImpl::recompile_metered(std::uint32_t number) noexcept {
    const auto map_lock = read_ports();
    for (FlowShard& shard : shards_) {
        std::lock_guard lock(shard.mutex);
        recompile(shard.metered_by(number));
    }
}

}  // namespace ovsdr::dr
