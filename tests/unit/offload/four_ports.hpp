// The ports of the compiler's tests: three VFs and the uplink.
#pragma once

#include <string>

#include "offload/dr/device/device.hpp"
#include "offload/dr/compile/port_map.hpp"

namespace ovsdr::dr::test {

inline PortMap four_ports() {
    PortMap map;
    for (const std::uint16_t number : {1, 2, 3}) {
        map.set(OdpPort{number}, {VportId{number}, "vf" + std::to_string(number)});
    }
    map.set(OdpPort{9}, {uplink_vport, "uplink"});
    return map;
}

}  // namespace ovsdr::dr::test
