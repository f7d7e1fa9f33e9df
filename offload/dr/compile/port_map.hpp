// Which vport a datapath port number stands for, or which tunnel, as the compiler sees it: a plain value.
//
// Threads: a value; whoever shares one locks.
#pragma once

#include <map>
#include <string>

#include "offload/dr/ids.hpp"

namespace ovsdr::dr {

class PortMap {
public:
    struct Port {
        VportId vport;
        std::string name;   ///< the interface's, for messages
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

private:
    std::map<OdpPort, Port> ports_;
    std::map<OdpPort, TunnelPort> tunnels_;
};

}  // namespace ovsdr::dr
