#include "tests/differential/judge/coverage.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "tests/differential/judge/names.hpp"

namespace ovsdr::differential {

namespace {

/// In any phase, by version.
std::vector<bool> ever_installed(const Scenario& scenario, const Verdict& nic) {
    std::vector<bool> ever(scenario.versions.size());
    for (const auto& phase : nic.installed) {
        for (std::size_t i = 0; i < ever.size(); ++i) ever[i] = ever[i] || phase[i] != 0;
    }
    return ever;
}

/// Of versions that were in the NIC when the packet came.
std::vector<std::size_t> packets_of(const Scenario& scenario, const Verdict& nic, const Verdict& ovs) {
    std::vector<std::size_t> packets(scenario.versions.size());
    std::size_t packet = 0;
    for (std::size_t phase = 0; phase < scenario.phases.size(); ++phase) {
        for (; packet < scenario.phases[phase].packets_end; ++packet) {
            if (scenario.packets[packet].lie != TunnelLie::none) continue;
            for (const Lookup& lookup : ovs.lookups[packet]) {
                const auto version = static_cast<std::size_t>(lookup.version);
                if (lookup.version >= 0 && nic.installed[phase][version] != 0) ++packets[version];
            }
        }
    }
    return packets;
}

}  // namespace

std::map<std::string, Covered> coverage_of(const Scenario& scenario, const Verdict& nic, const Verdict& ovs) {
    const std::vector<std::size_t> packets = packets_of(scenario, nic, ovs);
    std::map<std::string, Covered> coverage;
    const auto installed = ever_installed(scenario, nic);
    for (std::size_t i = port_length; i < scenario.versions.size(); ++i) {   // not the markers'
        auto names = names_of(scenario.versions[i]);
        const std::uint32_t recirc_id = scenario.versions[i].recirc_id;
        names.insert(fmt::format("behind {} recirculations", recirc_id == 0 ? 0 : scenario.tables.at(recirc_id).layer));
        for (const std::string& name : names) {
            Covered& covered = coverage[name];
            ++covered.drawn;
            covered.installed += installed[i] ? 1 : 0;
            const Counts& counts = nic.counts[scenario.versions[i].ufid];
            covered.hit += packets[i] != 0 && counts.packets != 0 ? 1 : 0;
            covered.packets += packets[i];
        }
    }
    return coverage;
}

Figures figures_of(const Scenario& scenario, const Verdict& nic) {
    Figures figures;
    for (std::size_t i = 0; i < scenario.packets.size(); ++i) {
        ++(nic.ups[i].empty() ? figures.taken : figures.up);
        figures.copies += static_cast<std::size_t>(std::ranges::count(nic.copies[i], false, &Copy::in_software));
    }
    const auto installed = ever_installed(scenario, nic);
    figures.drawn = scenario.versions.size() - port_length;
    figures.installed = static_cast<std::size_t>(std::ranges::count(installed, true)) - port_length;
    return figures;
}

}  // namespace ovsdr::differential
