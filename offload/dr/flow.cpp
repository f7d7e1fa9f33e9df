#include "offload/dr/flow.hpp"

#include <algorithm>

namespace ovsdr::dr {

void PortIndex::add(FlowEntry& entry) {
    const auto ports = entry.second.megaflow.ports();
    entry.second.listed_at = std::make_unique<std::uint32_t[]>(ports.size());
    for (std::uint32_t number = 0; number < ports.size(); ++number) {
        std::vector<Mention>& list = lists_[ports[number].value];
        entry.second.listed_at[number] = static_cast<std::uint32_t>(list.size());
        list.push_back({&entry, number});
    }
}

void PortIndex::remove(FlowEntry& entry) noexcept {
    if (entry.second.listed_at == nullptr) return;
    const auto ports = entry.second.megaflow.ports();
    for (std::uint32_t number = 0; number < ports.size(); ++number) {
        const auto found = lists_.find(ports[number].value);
        std::vector<Mention>& list = found->second;
        const std::uint32_t position = entry.second.listed_at[number];
        list[position] = list.back();
        list[position].entry->second.listed_at[list[position].number] = position;
        list.pop_back();
        if (list.empty()) lists_.erase(found);
    }
    entry.second.listed_at.reset();
}

std::vector<FlowEntry*> PortIndex::find(std::span<const OdpPort> ports) const {
    std::vector<FlowEntry*> entries;
    for (const OdpPort port : ports) {
        const auto found = lists_.find(port.value);
        if (found == lists_.end()) continue;
        for (const Mention& mention : found->second) entries.push_back(mention.entry);
    }
    std::ranges::sort(entries);
    const auto repeated = std::ranges::unique(entries);
    entries.erase(repeated.begin(), repeated.end());
    return entries;
}

}  // namespace ovsdr::dr
