#include "offload/dr/flow.hpp"

#include <algorithm>

namespace ovsdr::dr {

void PortIndex::add(const StoredMegaflow& megaflow) {
    const PortList ports = megaflow.ports();
    for (std::uint32_t i = 0; i < ports.size(); ++i) ++megaflows_[ports[i].value];
}

void PortIndex::remove(const StoredMegaflow& megaflow) noexcept {
    const PortList ports = megaflow.ports();
    for (std::uint32_t i = 0; i < ports.size(); ++i) {
        const auto found = megaflows_.find(ports[i].value);
        if (--found->second == 0) megaflows_.erase(found);
    }
}

bool PortIndex::mentions_any(std::span<const OdpPort> ports) const noexcept {
    return std::ranges::any_of(ports, [this](OdpPort port) { return megaflows_.contains(port.value); });
}

std::vector<FlowEntry*> FlowShard::mentioning(std::span<const OdpPort> ports_that_change) {
    std::vector<FlowEntry*> entries;
    if (!ports.mentions_any(ports_that_change)) return entries;
    for (FlowEntry& entry : flows) {
        if (entry.second.megaflow.mentions_any(ports_that_change)) entries.push_back(&entry);
    }
    return entries;
}

}  // namespace ovsdr::dr
