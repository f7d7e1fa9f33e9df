// EswitchImpl's queue for copies, and the megaflows that need it.
#include <algorithm>
#include <array>
#include <utility>

#include "offload/dr/eswitch_impl.hpp"

namespace ovsdr::dr {

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
    const auto goes_elsewhere = [this](const StoredMegaflow& megaflow) {
        const PortList ports = megaflow.ports();
        for (std::uint32_t i = 0; i < ports.size(); ++i) {
            if (port_map_.find(ports[i]) == nullptr) return true;
        }
        return false;
    };
    for (FlowShard& shard : shards_) {
        std::lock_guard lock(shard.mutex);
        std::vector<Flow*> flows;
        shard.flows.for_each([&](Flow& flow) {
            if (flow.megaflow.has_software() || goes_elsewhere(flow.megaflow)) flows.push_back(&flow);
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
    recompile(std::array{odp_port});
}

std::shared_ptr<const InstalledWork> EswitchImpl::work_of(std::uint32_t tag) const noexcept {
    return pipeline_->work_of(tag);
}

std::uint64_t EswitchImpl::copies(CopyKind kind) const noexcept { return pipeline_->works().copies(kind); }

std::vector<Eswitch::WorkReport> EswitchImpl::works() const {
    std::vector<WorkReport> reports;
    for (auto& [id, work, copies] : pipeline_->works().rows()) reports.push_back({id, std::move(work), copies});
    return reports;
}

}  // namespace ovsdr::dr
