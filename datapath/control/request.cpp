#include "datapath/control/request.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "datapath/ports/config.hpp"
#include "datapath/ports/soft_nic.hpp"

namespace ovsdr::soft {

using nlohmann::json;

void allow_only(const json& request, std::initializer_list<std::string_view> names) {
    for (const auto& [name, value] : request.items()) {
        if (name == "command" || std::find(names.begin(), names.end(), name) != names.end()) continue;
        throw ConfigError(
            fmt::format("{}: no such option of this command; there are {}", name, fmt::join(names, ", ")));
    }
}

const json& require(const json& request, const char* name, std::string_view what) {
    const auto found = request.find(name);
    if (found == request.end()) throw ConfigError(fmt::format("{}: missing; it must be {}", name, what));
    return *found;
}

SoftDevice& device_of(SoftNic& nic, const json& request) {
    const auto& devices = nic.soft_devices();
    const auto name = request.find("device");
    std::string names;
    for (const auto& device : devices) names += fmt::format("{}{}", names.empty() ? "" : ", ", device->name());
    if (name == request.end()) {
        if (devices.size() == 1) return *devices.front();
        throw ConfigError(fmt::format("device: missing; there are {}", names));
    }
    for (const auto& device : devices) {
        if (*name == std::string(device->name())) return *device;
    }
    throw ConfigError(fmt::format("device: {} is no device; there are {}", name->dump(), names));
}

VportId vport_of(const SoftDevice& device, const json& request) {
    const json& value = require(request, "vport", "a vport's number");
    std::string numbers;
    for (const VportInfo& info : device.vports()) {
        if (value.is_number_unsigned() && value == info.id.value) return info.id;
        numbers += fmt::format("{}{}", numbers.empty() ? "" : ", ", info.id.value);
    }
    throw ConfigError(fmt::format("vport: {} is no vport of {}; there are {}", value.dump(), device.name(), numbers));
}

VportId port_of(const SoftDevice& device, const json& request) {
    const json& value = require(request, "port", "a vport's number or name");
    std::string ports;
    std::vector<VportId> found;
    for (const VportInfo& info : device.vports()) {
        if (value.is_number_unsigned() && value == info.id.value) return info.id;
        if (value.is_string() && value == info.name) found.push_back(info.id);
        ports += fmt::format("{}{} ({})", ports.empty() ? "" : ", ", info.id.value, info.name);
    }
    if (found.size() == 1) return found.front();
    if (!found.empty()) {
        throw ConfigError(fmt::format("port: {} vports of {} are named {}; give one's number", found.size(),
                                      device.name(), value.dump()));
    }
    VportInfo uplink;
    if (value == "uplink" && device.query(uplink_vport, uplink) == 0) return uplink_vport;
    throw ConfigError(fmt::format("port: {} is no vport of {}; there are {}", value.dump(), device.name(), ports));
}

}  // namespace ovsdr::soft
