// What the kernel's tools make of vports, for a program that a test does not run in: a line for each, in the file that
// OVSDR_CONNECTX_VPORTS names: `NUMBER up|down MTU MAC`, the MAC address as twelve hexadecimal digits.
//
// The file is read again at each query; a vport without a line, and all while it cannot be read, are as they began.
#pragma once

#include <cstdint>
#include <optional>

#include "tests/connectx/device.hpp"

namespace ovsdr::connectx {

[[nodiscard]] std::optional<VportSettings> fed_vport(std::uint16_t number);

}   // namespace ovsdr::connectx
