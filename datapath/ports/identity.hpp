// Names that stay the same when a NIC restarts: derived from this machine, the device's name and the vport.
#pragma once

#include <cstdint>
#include <string_view>

#include "datapath/ports/config.hpp"
#include "datapath/vport_id.hpp"

namespace ovsdr::soft {

/// Host order, unique to machine and device; never 0.
[[nodiscard]] std::uint64_t derived_guid(std::string_view device);

/// A locally administered unicast address.
[[nodiscard]] MacAddress derived_mac(std::uint64_t guid, VportId vport) noexcept;

}  // namespace ovsdr::soft
