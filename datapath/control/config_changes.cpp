#include "datapath/control/config_changes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "datapath/control/replace_file.hpp"
#include "datapath/ports/config.hpp"

namespace ovsdr::soft {
namespace {

using json = nlohmann::ordered_json;

constexpr std::size_t longest_line = 110;

bool is_one_line(const json& value, std::size_t indent) {
    if (!value.is_structured()) return true;
    const bool deep = std::any_of(value.begin(), value.end(), [](const json& inner) { return inner.is_object(); });
    return !deep && indent + value.dump().size() + 2 * value.size() <= longest_line;
}

// As people write it: lists of objects have a line each, small objects are one line.
void lay_out(const json& value, std::size_t indent, std::string& text) {
    if (!value.is_structured() || value.empty()) {
        text += value.dump();
        return;
    }
    const bool one_line = is_one_line(value, indent);
    const std::string inner_break = one_line ? "" : '\n' + std::string(indent + 2, ' ');
    text += value.is_object() ? '{' : '[';
    for (auto item = value.begin(); item != value.end(); ++item) {
        if (item != value.begin()) text += one_line ? ", " : ",";
        text += inner_break;
        if (value.is_object()) text += json(item.key()).dump() + ": ";
        lay_out(*item, indent + 2, text);
    }
    if (!one_line) text += '\n' + std::string(indent, ' ');
    text += value.is_object() ? '}' : ']';
}

// The order in which the documentation names the options.
json in_order(const json& port) {
    json ordered = json::object();
    for (const char* name : {"vport", "name", "dpdk"}) {
        if (port.contains(name)) ordered[name] = port[name];
    }
    for (const auto& [name, value] : port.items()) ordered[name] = value;
    return ordered;
}

void apply(json& config, const std::string& device, VportId vport, const std::optional<std::string>& port) {
    const auto found = std::find_if(config["devices"].begin(), config["devices"].end(),
                                    [&](const json& other) { return other["name"] == device; });
    if (found == config["devices"].end()) throw ConfigError(fmt::format("devices: {} is not there any more", device));
    json& ports = (*found)["ports"];
    if (ports.is_null()) ports = json::array();
    const auto same = std::find_if(ports.begin(), ports.end(),
                                   [vport](const json& other) { return other["vport"] == vport.value; });
    if (!port) {
        if (same != ports.end()) ports.erase(same);
    } else if (same != ports.end()) {
        *same = in_order(json::parse(*port));
    } else {
        ports.push_back(in_order(json::parse(*port)));
    }
}

}  // namespace

void ConfigChanges::added(std::string_view device, VportId vport, const nlohmann::json& port) {
    ports_[{std::string(device), vport}] = port.dump();
}

void ConfigChanges::removed(std::string_view device, VportId vport) { ports_[{std::string(device), vport}].reset(); }

void ConfigChanges::save(const std::string& path) {
    const std::string before = read_config_text(path);
    std::string text;
    try {
        (void)parse_config(before);
        json config = json::parse(before);
        for (const auto& [key, port] : ports_) apply(config, key.first, key.second, port);
        lay_out(config, 0, text);
        text += '\n';
        (void)parse_config(text);
    } catch (const ConfigError& error) {
        throw ConfigError(fmt::format("{}: {}", path, error.what()));
    }
    if (const int error = replace_file(path, text)) {
        throw ConfigError(fmt::format("{}: cannot be written: {}", path, std::strerror(error)), error);
    }
    ports_.clear();
}

}  // namespace ovsdr::soft
