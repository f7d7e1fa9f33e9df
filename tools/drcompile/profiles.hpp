// What each ConnectX generation can do, as offload/ finds it out on a device of that generation as shipped.
// tests/unit/tools/profiles_test.cpp asks the devices.
#pragma once

#include <array>
#include <string_view>

#include "offload/dr/device/caps.hpp"

namespace ovsdr::drcompile {

struct Profile {
    std::string_view name;
    dr::DeviceCaps caps;
};

inline constexpr std::array profiles{
    Profile{"cx5", {.steering_format = 0, .icmp_v4 = false, .icmp_v6 = false, .tells_geneve_option = false,
                    .samples = false, .meters_end_rules = true}},
    Profile{"cx6dx", {.steering_format = 1}},
    Profile{"cx7", {.steering_format = 2}},
};

}  // namespace ovsdr::drcompile
