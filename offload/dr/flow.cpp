#include "offload/dr/flow.hpp"

#include <algorithm>

namespace ovsdr::dr {

/// Never destroyed: megaflows of an e-switch that outlives main() go back to it.
BlockPool& Flow::memory() noexcept {
    static BlockPool& pool = *new BlockPool;
    return pool;
}

std::vector<PortIndex::Count>::iterator PortIndex::place_of(std::uint32_t port) noexcept {
    return std::ranges::lower_bound(counts_, port, {}, &Count::port);
}

void PortIndex::add(const StoredMegaflow& megaflow) {
    const PortList ports = megaflow.ports();
    for (std::uint32_t i = 0; i < ports.size(); ++i) {
        auto place = place_of(ports[i].value);
        if (place == counts_.end() || place->port != ports[i].value) place = counts_.insert(place, {ports[i].value, 0});
        ++place->megaflows;
    }
    metered_ += megaflow.has_meter();
}

void PortIndex::remove(const StoredMegaflow& megaflow) noexcept {
    const PortList ports = megaflow.ports();
    for (std::uint32_t i = 0; i < ports.size(); ++i) {
        const auto place = place_of(ports[i].value);
        if (--place->megaflows == 0) counts_.erase(place);
    }
    metered_ -= megaflow.has_meter();
}

bool PortIndex::mentions_any(std::span<const OdpPort> ports) const noexcept {
    return std::ranges::any_of(ports, [this](OdpPort port) {
        return std::ranges::binary_search(counts_, port.value, {}, &Count::port);
    });
}

std::vector<Flow*> FlowShard::mentioning(std::span<const OdpPort> ports_that_change) {
    std::vector<Flow*> mentioned;
    if (!ports.mentions_any(ports_that_change)) return mentioned;
    flows.for_each([&](Flow& flow) {
        if (flow.megaflow.mentions_any(ports_that_change)) mentioned.push_back(&flow);
    });
    return mentioned;
}

std::vector<Flow*> FlowShard::metered_by(std::uint32_t number) {
    std::vector<Flow*> metered;
    if (!ports.has_meters()) return metered;
    flows.for_each([&](Flow& flow) {
        if (flow.megaflow.meets(number)) metered.push_back(&flow);
    });
    return metered;
}

}  // namespace ovsdr::dr
