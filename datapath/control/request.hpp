// What all control commands ask of a request: its options, the device and the vport that it names.
//
// Threads: the control thread. Each throws ConfigError, which names the option, its value, and what would be right.
#pragma once

#include <initializer_list>
#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "datapath/vport_id.hpp"

namespace ovsdr::soft {

class SoftDevice;
class SoftNic;

/// No option but "command" and these.
void allow_only(const nlohmann::json& request, std::initializer_list<std::string_view> names);

/// `what` says what it must be.
[[nodiscard]] const nlohmann::json& require(const nlohmann::json& request, const char* name, std::string_view what);

/// By "device", which may be left out where there is one.
[[nodiscard]] SoftDevice& device_of(SoftNic& nic, const nlohmann::json& request);

/// By "vport", a number.
[[nodiscard]] VportId vport_of(const SoftDevice& device, const nlohmann::json& request);

/// By "port": a vport's number or name, or "uplink".
[[nodiscard]] VportId port_of(const SoftDevice& device, const nlohmann::json& request);

}  // namespace ovsdr::soft
