// What the datapath's numbers stand for, as the compiler sees it: which vport or tunnel a port is, and which meter;
// which ports are the host's own, and whether software takes copies. A plain value.
//
// Threads: a value; whoever shares one locks.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>

#include "offload/dr/ids.hpp"
#include "offload/dr/software.hpp"
#include "offload/meter/parameters.hpp"

namespace ovsdr::dr {

class PortMap {
public:
    struct Port {
        VportId vport;
        std::string name;       ///< the interface's, for messages
        bool policed = false;   ///< what comes in from it has to go through the slow path, which polices it
    };

    void set(OdpPort odp_port, Port port) { ports_[odp_port] = std::move(port); }
    void erase(OdpPort odp_port) { ports_.erase(odp_port); }

    /// nullptr: not a vport of this device.
    [[nodiscard]] const Port* find(OdpPort odp_port) const noexcept {
        const auto found = ports_.find(odp_port);
        return found == ports_.end() ? nullptr : &found->second;
    }

    void set_tunnel(TunnelPort port) { tunnels_[port.odp_port] = std::move(port); }
    void erase_tunnel(OdpPort odp_port) { tunnels_.erase(odp_port); }

    /// nullptr: no tunnel port.
    [[nodiscard]] const TunnelPort* find_tunnel(OdpPort odp_port) const noexcept {
        const auto found = tunnels_.find(odp_port);
        return found == tunnels_.end() ? nullptr : &found->second;
    }

    struct Meter {
        std::uint32_t serial;                      ///< of those that have had its number
        std::optional<meter::Refusal> refusal{};   ///< why it stays in software
    };
    void set_meter(std::uint32_t number, Meter meter) { meters_[number] = std::move(meter); }
    void erase_meter(std::uint32_t number) { meters_.erase(number); }

    /// nullptr: nobody has set it.
    [[nodiscard]] const std::map<std::uint32_t, Meter>& meters() const noexcept { return meters_; }
    [[nodiscard]] const Meter* find_meter(std::uint32_t number) const noexcept {
        const auto found = meters_.find(number);
        return found == meters_.end() ? nullptr : &found->second;
    }

    /// A bridge's own port (LOCAL).
    void set_host(OdpPort odp_port) { hosts_.insert(odp_port); }
    void erase_host(OdpPort odp_port) { hosts_.erase(odp_port); }
    [[nodiscard]] bool is_host(OdpPort odp_port) const noexcept { return hosts_.contains(odp_port); }

    /// Whether such copies for software have a queue to go to.
    void lead_copies(CopyKind kind, bool lead) noexcept { leads_copies_[index_of(kind)] = lead; }
    [[nodiscard]] bool leads_copies(CopyKind kind) const noexcept { return leads_copies_[index_of(kind)]; }

private:
    std::map<OdpPort, Port> ports_;
    std::map<OdpPort, TunnelPort> tunnels_;
    std::map<std::uint32_t, Meter> meters_;
    std::set<OdpPort> hosts_;
    PerCopyKind<bool> leads_copies_{};
};

}  // namespace ovsdr::dr
