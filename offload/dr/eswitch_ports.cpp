#include <fmt/format.h>

#include <algorithm>
#include <cerrno>

#include "offload/dr/eswitch_impl.hpp"

namespace ovsdr::dr {

namespace {
constexpr OdpPort unknown_odp_port{UINT32_MAX};
}

EswitchImpl::Port* EswitchImpl::port_of(VportId vport) const noexcept {
    const auto found = std::ranges::find_if(ports_, [vport](const auto& port) { return port->spec.vport == vport; });
    return found == ports_.end() ? nullptr : found->get();
}

void EswitchImpl::map_port(const PortSpec& spec) noexcept {
    if (spec.odp_port != unknown_odp_port) port_map_.set(spec.odp_port, {spec.vport, spec.name});
}

/// Leaves the number alone when another port has taken it over meanwhile.
void EswitchImpl::unmap_port(const PortSpec& spec) noexcept {
    const PortMap::Port* known = port_map_.find(spec.odp_port);
    if (known != nullptr && known->vport == spec.vport) port_map_.erase(spec.odp_port);
}

Result<void> EswitchImpl::attach_port(const PortSpec& spec) noexcept {
    std::lock_guard changes(port_changes_);
    if (spec.vport == caps_.manager_vport) {
        return tl::unexpected(
            Error{EINVAL, fmt::format("vport {} of {} is the eSwitch manager, whose queues are the slow path of all ports",
                                      spec.vport.value, device())});
    }
    if (const Port* taken = port_of(spec.vport)) {
        return tl::unexpected(
            Error{EBUSY, fmt::format("vport {} of {} is taken by {}", spec.vport.value, device(), taken->spec.name)});
    }
    auto bits = device_->vport_register(spec.vport);
    if (!bits) return tl::unexpected(std::move(bits.error()));
    auto rules = pipeline_->lead_in({spec.vport, *bits, spec.slow_path_qp, spec.slow_path_sqn});
    if (!rules) return tl::unexpected(std::move(rules.error()));
    {
        const auto lock = change_ports();
        ports_.push_back(std::make_unique<Port>(Port{spec, std::move(*rules)}));
        map_port(spec);
    }
    recompile(std::array{spec.odp_port});
    return {};
}

void EswitchImpl::detach_port(VportId vport) noexcept {
    std::lock_guard changes(port_changes_);
    std::unique_ptr<Port> gone;
    {
        const auto lock = change_ports();
        const auto found = std::ranges::find_if(ports_, [vport](const auto& port) { return port->spec.vport == vport; });
        if (found == ports_.end()) return;
        gone = std::move(*found);
        ports_.erase(found);
        unmap_port(gone->spec);
    }
    gone->rules.enter = Rule();   // nothing comes in any more
    recompile(std::array{gone->spec.odp_port});
    gone->rules = PortRules();
    // The caller destroys the QP next: no packet may be under way to it. A device that fails here has said so before.
    (void)pipeline_->fdb().drain();
    (void)pipeline_->nic_rx().drain();
}

Result<void> EswitchImpl::set_odp_port(VportId vport, OdpPort odp_port) noexcept {
    std::lock_guard changes(port_changes_);
    Port* const port = port_of(vport);
    if (port == nullptr) return {};
    if (const OdpPort old = port->spec.odp_port; old != odp_port) {
        {
            const auto lock = change_ports();
            unmap_port(port->spec);
            port->spec.odp_port = odp_port;
            map_port(port->spec);
        }
        recompile(std::array{old, odp_port});
    }
    if (port->rules.enter || odp_port == unknown_odp_port) return {};
    auto enter = pipeline_->let_in(vport);
    if (!enter) return tl::unexpected(std::move(enter.error()));
    port->rules.enter = std::move(*enter);
    return {};
}

void EswitchImpl::close_entrance(VportId vport) noexcept {
    std::lock_guard changes(port_changes_);
    Port* const port = port_of(vport);
    if (port == nullptr) return;
    port->rules.enter = Rule();
    (void)pipeline_->fdb().drain();
}

void EswitchImpl::recompile(std::span<const OdpPort> ports) noexcept {
    std::vector<OdpPort> known(ports.begin(), ports.end());
    std::erase(known, unknown_odp_port);
    const auto map_lock = read_ports();
    for (FlowShard& shard : shards_) {
        std::lock_guard lock(shard.mutex);
        std::vector<Update> updates;
        for (FlowEntry* entry : shard.mentioning(known)) updates.push_back({entry});
        // The outcome is in the flow's mark; who put the megaflow is not waiting for it any more.
        bring_up_to_date(updates);
    }
}

}  // namespace ovsdr::dr
