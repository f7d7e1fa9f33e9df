// EswitchImpl's queue for copies, and the megaflows that need it.
#include <algorithm>

#include "offload/dr/eswitch_impl.hpp"

namespace ovsdr::dr {

Result<void> EswitchImpl::lead_copies(ibv_qp* qp) noexcept {
    std::lock_guard changes(port_changes_);
    auto led = with_memory([&] { return pipeline_->lead_copies(qp); });
    if (led) let_copies(true);
    return led;
}

void EswitchImpl::stop_copies() noexcept {
    std::lock_guard changes(port_changes_);
    let_copies(false);
    pipeline_->stop_copies();
}

/// Compiles the megaflows again that software may get copies of.
void EswitchImpl::let_copies(bool lead) noexcept {
    {
        const auto lock = change_ports();
        if (port_map_.leads_copies() == lead) return;
        port_map_.lead_copies(lead);
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

std::shared_ptr<const SoftwareWork> EswitchImpl::work_of(std::uint32_t tag) const noexcept {
    return pipeline_->work_of(tag);
}

}  // namespace ovsdr::dr
