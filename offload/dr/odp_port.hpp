// Datapath port numbers, and the names that people know them by.
//
// Threads: values.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <string>

namespace ovsdr::dr {

/// A datapath port number (odp_port_t).
struct OdpPort {
    std::uint32_t value;
    friend auto operator<=>(const OdpPort&, const OdpPort&) = default;
};

/// Interfaces of the datapath, those of other types than `dr` too. Only for texts.
using PortNames = std::map<OdpPort, std::string>;

}  // namespace ovsdr::dr
