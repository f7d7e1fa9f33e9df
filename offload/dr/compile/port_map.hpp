// What the datapath's numbers stand for, as the compiler sees it: which vport or tunnel a port is, and which meter;
// and whether software takes copies. A plain value.
//
// Threads: a value; whoever shares one locks.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "offload/dr/ids.hpp"
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

    /// Whether copies for software have a queue to go to.
    void lead_copies(bool lead) noexcept { leads_copies_ = lead; }
    [[nodiscard]] bool leads_copies() const noexcept { return leads_copies_; }

private:
    std::map<OdpPort, Port> ports_;
    std::map<OdpPort, TunnelPort> tunnels_;
    std::map<std::uint32_t, Meter> meters_;
    bool leads_copies_ = false;
};

}  // namespace ovsdr::dr
