// See all_devices.hpp.
#include "ctrl/all_devices.hpp"

#include <utility>

namespace ovsdr::ctrl {
namespace {

/// The better news of two devices.
dr::PutOutcome better(dr::PutOutcome left, dr::PutOutcome right) {
    const auto rank = [](const dr::PutOutcome& outcome) {
        if (std::holds_alternative<std::monostate>(outcome)) return 2;
        return std::holds_alternative<Error>(outcome) ? 1 : 0;
    };
    return rank(right) > rank(left) ? std::move(right) : std::move(left);
}

}  // namespace

AllDevices::Refused AllDevices::add(dr::Eswitch& eswitch) {
    const std::lock_guard changes(changes_);
    eswitch.choose(choices_);
    for (const auto& [number, port] : tunnel_ports_) eswitch.set_tunnel_port(port);
    for (const dr::OdpPort port : host_ports_) eswitch.set_host_port(port, true);
    for (const dr::OdpPort port : gone_ports_) eswitch.set_gone_port(port, true);
    Refused refused;
    for (const auto& [number, port] : mirror_ports_) {
        if (auto told = tell(eswitch, number, port); !told) refused.emplace_back(number, std::move(told.error()));
    }
    for (const auto& [number, meter] : meters_) eswitch.set_meter(number, meter.spec);
    eswitch.on_meter_use(meter_used_);
    const std::lock_guard guard(eswitches_lock_);
    eswitches_.push_back(&eswitch);
    added_ = true;
    return refused;
}

void AllDevices::remove(dr::Eswitch& eswitch) noexcept {
    const std::lock_guard changes(changes_);
    for (auto& [number, meter] : meters_) {
        meter.shares.erase(&eswitch);
        meter.counted_in.erase(&eswitch);
        add_to(meter.carried, eswitch.meter_stats(number));
    }
    {
        // From here on nobody puts a megaflow into it or tells it of a deletion.
        const std::lock_guard guard(eswitches_lock_);
        std::erase(eswitches_, &eswitch);
    }
    // It may be opened again before its last owner has let go of it, and knows what it knew then.
    for (const dr::OdpPort port : gone_ports_) eswitch.set_gone_port(port, false);
    for (const dr::OdpPort port : host_ports_) eswitch.set_host_port(port, false);
    for (const auto& [number, port] : mirror_ports_) eswitch.remove_mirror_port(number);
    for (const auto& [number, port] : tunnel_ports_) {
        eswitch.remove_tunnel_port(number);
        eswitch.flush(number);
    }
}

bool AllDevices::take_added() noexcept { return added_.exchange(false); }

void AllDevices::set_tunnel_port(const dr::TunnelPort& port) {
    const std::lock_guard changes(changes_);
    {
        const std::lock_guard guard(ports_lock_);
        tunnel_ports_.insert_or_assign(port.odp_port, port);
    }
    for (dr::Eswitch* eswitch : eswitches_) eswitch->set_tunnel_port(port);
}

void AllDevices::remove_tunnel_port(dr::OdpPort port) noexcept {
    const std::lock_guard changes(changes_);
    {
        const std::lock_guard guard(ports_lock_);
        if (tunnel_ports_.erase(port) == 0) return;
    }
    {
        // Until megaflows have been put by all who found the port there.
        const std::lock_guard guard(eswitches_lock_);
    }
    for (dr::Eswitch* eswitch : eswitches_) {
        eswitch->remove_tunnel_port(port);
        eswitch->flush(port);
    }
}

std::optional<dr::TunnelPort> AllDevices::tunnel_port(dr::OdpPort port) const {
    const std::shared_lock guard(ports_lock_);
    const auto found = tunnel_ports_.find(port);
    if (found == tunnel_ports_.end()) return std::nullopt;
    return found->second;
}

std::optional<dr::TunnelPort> AllDevices::tunnel_port(std::string_view name) const {
    const std::shared_lock guard(ports_lock_);
    const auto found = std::ranges::find(tunnel_ports_, name, [](const auto& entry) { return entry.second.name; });
    if (found == tunnel_ports_.end()) return std::nullopt;
    return found->second;
}

std::vector<dr::TunnelPort> AllDevices::tunnel_ports() const {
    const std::shared_lock guard(ports_lock_);
    std::vector<dr::TunnelPort> ports;
    for (const auto& [number, port] : tunnel_ports_) ports.push_back(port);
    return ports;
}

void AllDevices::add_port(dr::OdpPort port, bool is_host) noexcept {
    const std::lock_guard changes(changes_);
    const bool was_gone = gone_ports_.erase(port) != 0;
    if (is_host) host_ports_.insert(port);
    for (dr::Eswitch* eswitch : eswitches_) {
        if (is_host) eswitch->set_host_port(port, true);
        if (was_gone) eswitch->set_gone_port(port, false);
    }
}

void AllDevices::remove_port(dr::OdpPort port) noexcept {
    const std::lock_guard changes(changes_);
    const bool was_host = host_ports_.erase(port) != 0;
    gone_ports_.insert(port);
    for (dr::Eswitch* eswitch : eswitches_) {
        if (was_host) eswitch->set_host_port(port, false);
        eswitch->set_gone_port(port, true);
    }
}

/// A device that cannot steer as it is told must not go on as it was told before.
Result<void> AllDevices::tell(dr::Eswitch& eswitch, dr::OdpPort number, const MirrorPort& port) {
    auto set = eswitch.set_mirror_port(number, port.kind, port.steering);
    if (!set) eswitch.remove_mirror_port(number);
    return set;
}

Result<void> AllDevices::set_mirror_port(dr::OdpPort port, dr::CopyKind kind, const dr::MirrorSteering& steering) {
    const std::lock_guard changes(changes_);
    const MirrorPort& known = mirror_ports_.insert_or_assign(port, MirrorPort{kind, steering}).first->second;
    Result<void> all;
    for (dr::Eswitch* eswitch : eswitches_) {
        auto told = tell(*eswitch, port, known);
        if (!told && all) all = std::move(told);
    }
    return all;
}

void AllDevices::remove_mirror_port(dr::OdpPort port) noexcept {
    const std::lock_guard changes(changes_);
    if (mirror_ports_.erase(port) == 0) return;
    for (dr::Eswitch* eswitch : eswitches_) eswitch->remove_mirror_port(port);
}

void AllDevices::choose(const dr::Eswitch::Choices& choices) {
    const std::lock_guard changes(changes_);
    if (choices == choices_) return;
    choices_ = choices;
    for (dr::Eswitch* eswitch : eswitches_) eswitch->choose(choices);
}

void AllDevices::set_meter(std::uint32_t number, const meter::Spec& spec) {
    const std::lock_guard changes(changes_);
    meters_.insert_or_assign(number, KnownMeter{spec});
    for (dr::Eswitch* eswitch : eswitches_) eswitch->set_meter(number, spec);
}

dr::MeterStats AllDevices::remove_meter(std::uint32_t number) noexcept {
    const std::lock_guard changes(changes_);
    const auto known = meters_.extract(number);
    dr::MeterStats sum = known ? known.mapped().carried : dr::MeterStats{};
    for (dr::Eswitch* eswitch : eswitches_) add_to(sum, eswitch->remove_meter(number));
    return sum;
}

dr::MeterStats AllDevices::meter_stats(std::uint32_t number) const {
    const std::lock_guard changes(changes_);
    const auto known = meters_.find(number);
    dr::MeterStats sum = known != meters_.end() ? known->second.carried : dr::MeterStats{};
    for (dr::Eswitch* eswitch : eswitches_) add_to(sum, eswitch->meter_stats(number));
    return sum;
}

std::vector<std::uint32_t> AllDevices::meters_in_devices() {
    const std::lock_guard changes(changes_);
    std::vector<std::uint32_t> numbers;
    for (auto& [number, meter] : meters_) {
        for (dr::Eswitch* eswitch : eswitches_) {
            if (eswitch->has_meter(number)) {
                meter.shares.try_emplace(eswitch);
            } else if (meter.shares.erase(eswitch) != 0) {
                (void)eswitch->lower_meter(number, meter.spec.rate);   // else the next charge asks for it
            }
        }
        if (!meter.shares.empty()) numbers.push_back(number);
    }
    return numbers;
}

void AllDevices::on_meter_use(std::function<void()> used) {
    const std::lock_guard changes(changes_);
    meter_used_ = std::move(used);
    for (dr::Eswitch* eswitch : eswitches_) eswitch->on_meter_use(meter_used_);
}

bool AllDevices::has_meters() const {
    const std::lock_guard changes(changes_);
    return !meters_.empty();
}

std::vector<std::uint32_t> AllDevices::meters() const {
    const std::lock_guard changes(changes_);
    std::vector<std::uint32_t> numbers;
    for (const auto& [number, meter] : meters_) numbers.push_back(number);
    return numbers;
}

void AllDevices::charge_meter(std::uint32_t number, const dr::FlowStats& in_software, std::int64_t elapsed_ms,
                              unsigned interval_ms) {
    const std::lock_guard changes(changes_);
    const auto found = meters_.find(number);
    if (found == meters_.end()) return;
    KnownMeter& known = found->second;
    const meter::Spec& spec = known.spec;
    const auto units = [&spec](const dr::FlowStats& stats) {
        constexpr std::uint64_t bytes_of_kilobit = 125;
        return spec.by_packets ? stats.packets : stats.bytes / bytes_of_kilobit;
    };
    const bool several = known.shares.size() > 1;
    std::vector<MeterSplit::Device> offered;   // in the order of the shares
    for (const auto& [eswitch, share] : known.shares) {
        // One that has just come begins with the whole rate.
        offered.push_back({.is_new = share.is_new()});
        if (!several) break;
        const dr::MeterStats now = eswitch->meter_stats(number);
        KnownMeter::Counted& before = known.counted_in[eswitch];
        const KnownMeter::Counted counted{units(now.passed), units(now.dropped), before.carry};
        const auto more = [](std::uint64_t after, std::uint64_t then) { return after - std::min(after, then); };
        offered.back().passed = more(counted.passed, before.passed);   // it may have begun anew
        offered.back().offered = offered.back().passed + more(counted.dropped, before.dropped);
        before = counted;
    }
    std::vector<std::uint32_t> left;
    for (auto& [eswitch, share] : known.shares) {
        left.push_back(share.next(units(in_software), spec.rate, elapsed_ms, interval_ms));
    }
    if (several) {
        known.split.next(offered, std::ranges::min(left), elapsed_ms, interval_ms);
    } else {
        known.split = {};
    }
    std::size_t place = 0;
    for (auto& [eswitch, share] : known.shares) {
        std::uint32_t rate = left[place];
        if (several) rate = std::min(rate, known.split.rate_of(offered[place], known.counted_in[eswitch].carry));
        ++place;
        if (eswitch->lower_meter(number, rate)) {
            share.accepted();
        } else if (share.refused()) {
            // Another object, or none: a device must not go on giving the rate that software gives.
            add_to(known.carried, eswitch->meter_stats(number));
            eswitch->set_meter(number, spec);
        }
    }
}

std::optional<dr::PutOutcome> AllDevices::put(const dr::Ufid& ufid, const ovsdr_megaflow& megaflow,
                                              std::uint16_t neighbourhood) {
    const std::shared_lock guard(eswitches_lock_);
    if (!tunnel_port(dr::OdpPort{megaflow.key.in_port})) return std::nullopt;
    std::optional<dr::PutOutcome> best;
    for (dr::Eswitch* eswitch : eswitches_) {
        auto outcome = eswitch->put(ufid, megaflow, neighbourhood);
        best = best ? better(std::move(*best), std::move(outcome)) : std::move(outcome);
    }
    return best;
}

bool AllDevices::knows(const dr::Ufid& ufid) const {
    const std::shared_lock guard(eswitches_lock_);
    return std::ranges::any_of(eswitches_, [&](dr::Eswitch* eswitch) { return eswitch->knows(ufid); });
}

std::optional<dr::Eswitch::Status> AllDevices::status(const dr::Ufid& ufid) const {
    const std::shared_lock guard(eswitches_lock_);
    std::optional<dr::Eswitch::Status> sum;
    for (dr::Eswitch* eswitch : eswitches_) {
        const auto status = eswitch->status(ufid);
        if (!status) continue;
        if (!sum) sum = dr::Eswitch::Status{{}, false};
        add_to(sum->stats, status->stats);
        sum->offloaded = sum->offloaded || status->offloaded;
    }
    return sum;
}

AllDevices& all_devices() {
    static auto* instance = new AllDevices;
    return *instance;
}

void add_to(dr::FlowStats& sum, const dr::FlowStats& stats) noexcept {
    sum.packets += stats.packets;
    sum.bytes += stats.bytes;
    sum.used_ms = std::max(sum.used_ms, stats.used_ms);
}

void add_to(dr::MeterStats& sum, const dr::MeterStats& stats) noexcept {
    add_to(sum.passed, stats.passed);
    add_to(sum.dropped, stats.dropped);
}

}  // namespace ovsdr::ctrl
