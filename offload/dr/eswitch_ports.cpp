#include <fmt/format.h>

#include <algorithm>
#include <cerrno>

#include "offload/dr/eswitch_impl.hpp"

namespace ovsdr::dr {

namespace {

constexpr OdpPort unknown_odp_port{UINT32_MAX};

}  // namespace

EswitchImpl::Port* EswitchImpl::port_of(VportId vport) const noexcept {
    const auto found = std::ranges::find_if(ports_, [vport](const auto& port) { return port->spec.vport == vport; });
    return found == ports_.end() ? nullptr : found->get();
}

void EswitchImpl::map_port(const PortSpec& spec) {
    if (spec.odp_port != unknown_odp_port) port_map_.set(spec.odp_port, {spec.vport, spec.name, spec.policed});
}

/// Leaves the number alone when another port has taken it over meanwhile.
void EswitchImpl::unmap_port(const PortSpec& spec) noexcept {
    const PortMap::Port* known = port_map_.find(spec.odp_port);
    if (known != nullptr && known->vport == spec.vport) port_map_.erase(spec.odp_port);
}

Result<void> EswitchImpl::attach_port(const PortSpec& spec) noexcept {
    std::lock_guard changes(port_changes_);
    if (spec.vport == caps_.manager_vport) {
        return tl::unexpected(Error{
            EINVAL, fmt::format("vport {} of {} is the eSwitch manager, whose queues are the slow path of all ports",
                                spec.vport.value, device())});
    }
    if (const Port* taken = port_of(spec.vport)) {
        return tl::unexpected(
            Error{EBUSY, fmt::format("vport {} of {} is taken by {}", spec.vport.value, device(), taken->spec.name)});
    }
    return with_memory([&]() -> Result<void> {
        auto bits = device_->vport_register(spec.vport);
        if (!bits) return tl::unexpected(std::move(bits.error()));
        QueueRules queue;
        auto served = pipeline_->serve({spec.vport, *bits, spec.slow_path_qp, spec.slow_path_sqn, spec.by_kind}, queue);
        if (!served) return served;
        auto down = pipeline_->let_down(*bits);
        if (!down) return tl::unexpected(std::move(down.error()));
        auto port = std::make_unique<Port>(Port{spec, PortRules{std::move(queue), {}, std::move(*down), {}, {}}});
        {
            const auto lock = change_ports();
            ports_.reserve(ports_.size() + 1);
            map_port(spec);
            ports_.push_back(std::move(port));
        }
        // Last what can fail and lets packets in.
        if (auto opened = open_entrance(*ports_.back()); !opened) {
            detach_locked(spec.vport);
            return opened;
        }
        recompile(std::array{spec.odp_port});
        return {};
    });
}

Result<void> EswitchImpl::open_entrance(Port& port) noexcept {
    return with_memory([&]() -> Result<void> {
        std::map<RoceAddress, RoceEntrance::Rules> roce;   // before the uplink's entrance, lest that takes any of it
        for (const auto& known : roce_) {
            if (port.spec.vport != uplink_vport) break;
            // A port that carries a switch's traffic does not wait for a mirror's address: retry_roce() says why.
            auto rules = with_memory([&] { return pipeline_->let_roce_in(known.first); });
            if (rules) roce[known.first] = std::move(*rules);
        }
        auto enter = pipeline_->let_in(port.spec.vport);
        if (!enter) return tl::unexpected(std::move(enter.error()));
        port.rules.roce = std::move(roce);
        port.rules.enter = std::move(*enter);
        return {};
    });
}

void EswitchImpl::shut_entrance(Port& port) noexcept {
    port.rules.enter = Rule();
    port.rules.roce.clear();
    // First the FDB and then NIC_RX, as packets go. A device that fails here has been asked twice.
    (void)pipeline_->fdb().drain();
    (void)pipeline_->nic_rx().drain();
}

void EswitchImpl::detach_port(VportId vport) noexcept {
    std::lock_guard changes(port_changes_);
    detach_locked(vport);
}

/// Packets that have passed the entrance reach the queue: its rules stay until none of them is under way. The rules of
/// those that the queue has sent go last, and the caller destroys the QP after that.
void EswitchImpl::detach_locked(VportId vport) noexcept {
    std::unique_ptr<Port> gone;
    {
        const auto lock = change_ports();
        const auto found =
            std::ranges::find_if(ports_, [vport](const auto& port) { return port->spec.vport == vport; });
        if (found == ports_.end()) return;
        gone = std::move(*found);
        ports_.erase(found);
        unmap_port(gone->spec);
    }
    shut_entrance(*gone);
    recompile(std::array{gone->spec.odp_port});
    gone.reset();
    (void)pipeline_->fdb().drain();
}

QueueSwitch EswitchImpl::switch_queue(VportId vport, ibv_qp* qp, std::uint32_t sqn,
                                      std::span<const QueuePairFor> by_kind) noexcept {
    std::lock_guard changes(port_changes_);
    Port* const port = port_of(vport);
    if (port == nullptr) return {tl::unexpected(Error{ENODEV, "not attached"})};
    if (port->rules.old_queue) return {tl::unexpected(Error{EBUSY, "being switched"})};
    QueueRules next;
    auto served = with_memory([&]() -> Result<void> {
        auto bits = device_->vport_register(vport);
        if (!bits) return tl::unexpected(std::move(bits.error()));
        const auto priority = static_cast<std::uint16_t>(1 - port->rules.queue.priority);
        return pipeline_->serve({vport, *bits, qp, sqn, by_kind, priority}, next);
    });
    if (!served) return {std::move(served), pipeline_->stop_leading_up(next)};
    port->rules.old_queue = std::exchange(port->rules.queue, std::move(next));
    {
        const auto lock = change_ports();
        port->spec.slow_path_qp = qp;
        port->spec.slow_path_sqn = sqn;
    }
    return {{}, pipeline_->stop_leading_up(*port->rules.old_queue)};
}

void EswitchImpl::forget_old_queue(VportId vport) noexcept {
    std::lock_guard changes(port_changes_);
    Port* const port = port_of(vport);
    if (port == nullptr || !port->rules.old_queue) return;
    port->rules.old_queue.reset();
    (void)pipeline_->fdb().drain();
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
    return open_entrance(*port);
}

void EswitchImpl::set_policed(VportId vport, bool policed) noexcept {
    std::lock_guard changes(port_changes_);
    Port* const port = port_of(vport);
    if (port == nullptr || port->spec.policed == policed) return;
    {
        const auto lock = change_ports();
        port->spec.policed = policed;
        map_port(port->spec);
    }
    recompile(std::array{port->spec.odp_port});
}

void EswitchImpl::close_entrance(VportId vport) noexcept {
    std::lock_guard changes(port_changes_);
    Port* const port = port_of(vport);
    if (port == nullptr) return;
    port->rules.enter = Rule();
    port->rules.roce.clear();
    (void)pipeline_->fdb().drain();
}

/// What is in already stays. May throw std::bad_alloc; nothing has changed then.
Result<void> EswitchImpl::let_in_by_uplink(const RoceAddress& address) {
    Port* const uplink = port_of(uplink_vport);
    const bool is_open = uplink != nullptr && uplink->rules.enter;
    if (!is_open || uplink->rules.roce.contains(address)) return {};
    auto rules = pipeline_->let_roce_in(address);
    if (!rules) return tl::unexpected(std::move(rules.error()));
    uplink->rules.roce.emplace(address, std::move(*rules));
    return {};
}

Result<void> EswitchImpl::let_roce_in(const RoceAddress& address) noexcept {
    std::lock_guard changes(port_changes_);
    const auto let = with_memory([&]() -> Result<void> {
        (void)roce_.try_emplace(address, 0U);
        if (auto let_in = let_in_by_uplink(address); !let_in) return let_in;
        ++roce_.at(address);
        return {};
    });
    if (const auto known = roce_.find(address); known != roce_.end() && known->second == 0) roce_.erase(known);
    return let;
}

Result<void> EswitchImpl::retry_roce(const RoceAddress& address) noexcept {
    std::lock_guard changes(port_changes_);
    return with_memory([&]() -> Result<void> {
        if (!roce_.contains(address)) return tl::unexpected(Error{ENOENT, "no such RoCE address has been let in"});
        return let_in_by_uplink(address);
    });
}

void EswitchImpl::forget_roce(const RoceAddress& address) noexcept {
    std::lock_guard changes(port_changes_);
    const auto known = roce_.find(address);
    if (known == roce_.end() || --known->second != 0) return;
    roce_.erase(known);
    if (Port* const uplink = port_of(uplink_vport)) uplink->rules.roce.erase(address);
}

void EswitchImpl::set_tunnel_port(const TunnelPort& port) noexcept {
    std::lock_guard changes(port_changes_);
    {
        const auto lock = change_ports();
        if (const TunnelPort* known = port_map_.find_tunnel(port.odp_port); known != nullptr && *known == port) return;
        port_map_.set_tunnel(port);
    }
    recompile(std::array{port.odp_port});
}

void EswitchImpl::remove_tunnel_port(OdpPort odp_port) noexcept {
    std::lock_guard changes(port_changes_);
    {
        const auto lock = change_ports();
        port_map_.erase_tunnel(odp_port);
    }
    recompile(std::array{odp_port});
}

void EswitchImpl::choose(const Choices& choices) noexcept {
    std::lock_guard changes(port_changes_);
    {
        const auto lock = change_ports();
        if (std::exchange(choices_, choices) == choices) return;
    }
    const auto map_lock = read_ports();
    for (FlowShard& shard : shards_) {
        std::lock_guard lock(shard.mutex);
        std::vector<Flow*> flows;
        shard.flows.for_each([&](Flow& flow) {
            if (flow.megaflow.has_tunnel() || flow.megaflow.recirculates()) flows.push_back(&flow);
        });
        recompile(flows);
    }
}

void EswitchImpl::recompile(std::span<const OdpPort> ports) noexcept {
    // At most two, and without memory: a port that nothing mentions is attached even when there is none.
    std::array<OdpPort, 2> buffer{};
    const auto end = std::ranges::remove_copy(ports, buffer.begin(), unknown_odp_port).out;
    const std::span<const OdpPort> known(buffer.begin(), end);
    const auto map_lock = read_ports();
    for (FlowShard& shard : shards_) {
        std::lock_guard lock(shard.mutex);
        recompile(shard.mentioning(known));
    }
}

void EswitchImpl::recompile(std::span<Flow* const> flows) noexcept {
    std::vector<Update> updates;
    for (Flow* const flow : flows) updates.push_back({.flow = flow});
    // The outcome is in the flow's mark; who put the megaflow is not waiting for it any more.
    bring_up_to_date(updates);
}

}  // namespace ovsdr::dr
