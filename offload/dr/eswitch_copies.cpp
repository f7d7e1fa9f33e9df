// EswitchImpl's queues for copies, and the megaflows that need them.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "offload/dr/eswitch_impl.hpp"

namespace ovsdr::dr {

namespace {

/// EINVAL: what is wrong with it.
Result<void> check(CopyKind kind, const MirrorSteering& steering) {
    constexpr std::uint8_t tcp = 6, udp = 17;
    if (!is_mirror(kind) || index_of(kind) >= all_copy_kinds.size()) {
        return tl::unexpected(Error{EINVAL, fmt::format("copies of kind {} are no mirror's", index_of(kind))});
    }
    if (steering.one_of == 0) return tl::unexpected(Error{EINVAL, "a mirror of one in 0 packets: 1 is the least"});
    for (const auto& [protocol, port] : steering.services) {
        if (protocol == tcp || protocol == udp) continue;
        return tl::unexpected(Error{EINVAL, fmt::format("a service of IP protocol {}, port {}: only {} (TCP) and {} "
                                                        "(UDP) have ports", protocol, port, tcp, udp)});
    }
    return {};
}

}  // namespace

Result<void> EswitchImpl::lead_copies(CopyKind kind, ibv_qp* qp) noexcept {
    std::lock_guard changes(port_changes_);
    auto led = with_memory([&] { return pipeline_->lead_copies(kind, qp); });
    if (led) let_copies(kind, true);
    return led;
}

void EswitchImpl::stop_copies(CopyKind kind) noexcept {
    std::lock_guard changes(port_changes_);
    let_copies(kind, false);
    pipeline_->stop_copies(kind);
}

/// Compiles the megaflows again that software may get copies of.
void EswitchImpl::let_copies(CopyKind kind, bool lead) noexcept {
    {
        const auto lock = change_ports();
        if (port_map_.leads_copies(kind) == lead) return;
        port_map_.lead_copies(kind, lead);
    }
    const auto map_lock = read_ports();
    const auto is_concerned = [this, kind](OdpPort port) {
        const PortMap::Mirror* const mirror = port_map_.find_mirror(port);
        if (is_mirror(kind)) return mirror != nullptr && mirror->kind == kind;
        return mirror == nullptr && port_map_.find(port) == nullptr;
    };
    const auto mentions_one = [&](const StoredMegaflow& megaflow) {
        const PortList ports = megaflow.ports();
        for (std::uint32_t i = 0; i < ports.size(); ++i) {
            if (is_concerned(ports[i])) return true;
        }
        return false;
    };
    for (FlowShard& shard : shards_) {
        std::lock_guard lock(shard.mutex);
        std::vector<Flow*> flows;
        shard.flows.for_each([&](Flow& flow) {
            const bool has_work = !is_mirror(kind) && flow.megaflow.has_software();
            if (has_work || mentions_one(flow.megaflow)) flows.push_back(&flow);
        });
        recompile(flows);
    }
}

void EswitchImpl::set_host_port(OdpPort odp_port, bool is_host) noexcept {
    std::lock_guard changes(port_changes_);
    {
        const auto lock = change_ports();
        if (port_map_.is_host(odp_port) == is_host) return;
        if (is_host) {
            port_map_.set_host(odp_port);
        } else {
            port_map_.erase_host(odp_port);
        }
    }
    if (is_host) recompile(std::array{odp_port});
}

void EswitchImpl::set_gone_port(OdpPort odp_port, bool gone) noexcept {
    std::lock_guard changes(port_changes_);
    {
        const auto lock = change_ports();
        if (port_map_.is_gone(odp_port) == gone) return;
        if (gone) {
            port_map_.set_gone(odp_port);
        } else {
            port_map_.erase_gone(odp_port);
        }
    }
    if (!gone) recompile(std::array{odp_port});
}

Result<void> EswitchImpl::set_mirror_port(OdpPort odp_port, CopyKind kind, const MirrorSteering& steering) noexcept {
    std::lock_guard changes(port_changes_);
    return with_memory([&]() -> Result<void> {
        if (auto checked = check(kind, steering); !checked) return checked;
        if (const auto other = port_map_.port_of_mirror(kind); other && *other != odp_port) {
            return tl::unexpected(Error{EBUSY, fmt::format("{} has datapath port {}, and {} cannot have it too",
                                                           name_of(kind), other->value, odp_port.value)});
        }
        // First what can fail, then services, which a device may refuse: megaflows that copy to it come after that.
        const PortMap::Mirror mirror{kind, steering.one_of};
        PortMap::MirrorNode node = PortMap::mirror_node(odp_port, mirror);
        if (auto set = pipeline_->works().set_services(kind, steering.services); !set) return set;
        {
            const auto lock = change_ports();
            if (const auto* known = port_map_.find_mirror(odp_port); known != nullptr && *known == mirror) return {};
            port_map_.set_mirror(std::move(node));
        }
        recompile(std::array{odp_port});
        return {};
    });
}

void EswitchImpl::remove_mirror_port(OdpPort odp_port) noexcept {
    std::lock_guard changes(port_changes_);
    {
        const auto lock = change_ports();
        if (port_map_.find_mirror(odp_port) == nullptr) return;
        port_map_.erase_mirror(odp_port);
    }
    recompile(std::array{odp_port});
}

std::uint64_t EswitchImpl::filtered_copies(CopyKind kind) const noexcept { return pipeline_->works().filtered(kind); }

std::shared_ptr<const InstalledWork> EswitchImpl::work_of(std::uint32_t tag) const noexcept {
    return pipeline_->work_of(tag);
}

std::uint64_t EswitchImpl::copies(CopyKind kind) const noexcept { return pipeline_->works().copies(kind); }

std::vector<Eswitch::WorkReport> EswitchImpl::works() const {
    std::vector<WorkReport> reports;
    for (auto& [id, work, copies] : pipeline_->works().rows()) reports.push_back({id, std::move(work), copies});
    return reports;
}

std::vector<std::shared_ptr<const SamplerCount>> EswitchImpl::samplers() const {
    return pipeline_->works().samplers();
}

}  // namespace ovsdr::dr
