// Which vport a datapath port number stands for, as the compiler sees it: a plain value.
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

private:
    std::map<OdpPort, Port> ports_;
};

}  // namespace ovsdr::dr
