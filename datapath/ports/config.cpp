#include "datapath/ports/config.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "datapath/ports/drivers.hpp"

namespace ovsdr::soft {
namespace {

using nlohmann::json;

[[noreturn]] void fail(const std::string& where, const json& value, std::string_view expected) {
    throw ConfigError(fmt::format("{}: {} is not {}", where, value.dump(), expected));
}

// One JSON object: hands out its members by name, and at the end refuses those that nobody asked for.
class Object {
public:
    Object(const json& value, std::string where, std::string_view what) : value_(value), where_(std::move(where)) {
        if (!value.is_object()) fail(where_.empty() ? "the file" : where_, value, what);
    }

    [[nodiscard]] std::string path(std::string_view name) const {
        return where_.empty() ? std::string(name) : fmt::format("{}.{}", where_, name);
    }

    const json* find(const char* name) {
        known_.emplace_back(name);
        auto found = value_.find(name);
        return found == value_.end() ? nullptr : &*found;
    }

    const json& require(const char* name, std::string_view what) {
        const json* found = find(name);
        if (found == nullptr) throw ConfigError(fmt::format("{}: missing; it must be {}", path(name), what));
        return *found;
    }

    void refuse_others() const {
        for (const auto& [name, value] : value_.items()) {
            if (std::find(known_.begin(), known_.end(), name) != known_.end()) continue;
            throw ConfigError(fmt::format("{}: no such option; there are {}", path(name), fmt::join(known_, ", ")));
        }
    }

private:
    const json& value_;
    std::string where_;
    std::vector<std::string> known_;
};

std::uint64_t number(const json& value, const std::string& where, std::uint64_t low, std::uint64_t high) {
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() < low || value.get<std::uint64_t>() > high) {
        fail(where, value, fmt::format("a whole number from {} to {}", low, high));
    }
    return value.get<std::uint64_t>();
}

bool boolean(const json& value, const std::string& where) {
    if (!value.is_boolean()) fail(where, value, "true or false");
    return value.get<bool>();
}

std::string text(const json& value, const std::string& where) {
    if (!value.is_string()) fail(where, value, "a string");
    return value.get<std::string>();
}

// "192.0.2.1/24" or "2001:db8::1/64": a host's address, with the prefix of its link.
RoceAddress untagged_roce_address(const json& value, const std::string& where) {
    constexpr std::string_view expected = R"(an address with its prefix, such as "192.0.2.1/24" or "2001:db8::1/64")";
    const std::string content = text(value, where);
    const std::size_t slash = content.find('/');
    if (slash == std::string::npos) fail(where, value, expected);
    const std::string address = content.substr(0, slash), digits = content.substr(slash + 1);
    RoceAddress result{};
    const bool ipv4 = inet_pton(AF_INET, address.c_str(), result.address + 12) == 1;
    if (ipv4) {
        result.address[10] = result.address[11] = 0xff;
    } else if (inet_pton(AF_INET6, address.c_str(), result.address) != 1) {
        fail(where, value, expected);
    }
    const unsigned longest = ipv4 ? 32 : 128;
    const bool number = !digits.empty() && digits.size() <= 3 &&
                        std::all_of(digits.begin(), digits.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
    if (!number || std::stoul(digits) > longest) fail(where, value, expected);
    result.prefix = static_cast<std::uint8_t>(std::stoul(digits) + 128 - longest);
    const std::uint8_t first = ipv4 ? result.address[12] : result.address[0];
    const bool multicast = ipv4 ? first >= 224 : first == 0xff;
    const bool zero = std::all_of(result.address + (ipv4 ? 12 : 0), std::end(result.address),
                                  [](std::uint8_t byte) { return byte == 0; });
    const bool link_local = !ipv4 && first == 0xfe && (result.address[1] & 0xc0) == 0x80;
    if (multicast || zero) fail(where, value, "the address of a host");
    if (link_local) fail(where, value, "needed: the link-local address is there already, after the MAC");
    return result;
}

// The same, or an object that says the VLAN too.
RoceAddress roce_address(const json& value, const std::string& where) {
    if (!value.is_object()) return untagged_roce_address(value, where);
    Object object(value, where, "an object");
    const json* const address = object.find("address");
    if (address == nullptr) fail(where, value, "an object with an \"address\"");
    RoceAddress result = untagged_roce_address(*address, object.path("address"));
    if (const json* vlan = object.find("vlan")) {
        result.vlan = static_cast<std::uint16_t>(number(*vlan, object.path("vlan"), 1, 4094));
    }
    object.refuse_others();
    return result;
}

const json& list(const json& value, const std::string& where) {
    if (!value.is_array()) fail(where, value, "a list");
    return value;
}

std::vector<RoceAddress> parse_roce_addresses(const json& value, const std::string& where, VportId vport) {
    if (vport != uplink_vport) {
        fail(where, value,
             "possible here: RoCE is the manager function's, its addresses stand at the uplink (vport 65535)");
    }
    std::vector<RoceAddress> addresses;
    if (!value.is_array()) return {roce_address(value, where)};
    for (const json& address : value) addresses.push_back(roce_address(address, where));
    if (addresses.size() > most_roce_addresses) {
        fail(where, value, fmt::format("a list of at most {} addresses", most_roce_addresses));
    }
    return addresses;
}

VportId vport_number(const json& value, const std::string& where) {
    const bool in_range = value.is_number_unsigned() && ((value >= 1 && value <= last_vf_vport) || value == 0xFFFF);
    if (!in_range) {
        fail(where, value, fmt::format("a vport: 1 to {} for a VF, 65535 for the uplink", last_vf_vport));
    }
    return VportId{value.get<std::uint16_t>()};
}

void parse_workers(const json& value, NicConfig& config) {
    if (!value.is_object()) {
        config.workers = static_cast<unsigned>(number(value, "workers", 1, max_workers));
        return;
    }
    Object object(value, "workers", "a number or an object");
    if (const json* count = object.find("count")) {
        config.workers = static_cast<unsigned>(number(*count, "workers.count", 1, max_workers));
    }
    if (const json* cpus = object.find("cpus")) {
        for (const json& cpu : list(*cpus, "workers.cpus")) {
            config.cpus.push_back(static_cast<unsigned>(number(cpu, "workers.cpus", 0, 1023)));
        }
    }
    if (const json* rebalance = object.find("rebalance")) config.rebalance = boolean(*rebalance, "workers.rebalance");
    object.refuse_others();
}

CotenantConfig parse_cotenant(const json& value, const DeviceConfig& device, const std::string& where) {
    Object object(value, where, "an object");
    CotenantConfig cotenant;
    if (const json* vports = object.find("vports")) {
        for (const json& vport : list(*vports, object.path("vports"))) {
            const VportId id = vport_number(vport, object.path("vports"));
            const bool there = std::any_of(device.ports.begin(), device.ports.end(),
                                           [id](const PortConfig& port) { return port.vport == id; });
            if (id == uplink_vport || !there) fail(object.path("vports"), vport, "a VF among this device's ports");
            if (std::find(cotenant.vports.begin(), cotenant.vports.end(), id) != cotenant.vports.end()) {
                throw ConfigError(fmt::format("{}: vport {} is there twice", object.path("vports"), id.value));
            }
            cotenant.vports.push_back(id);
        }
    }
    if (const json* lacp = object.find("lacp")) {
        cotenant.lacp = boolean(*lacp, object.path("lacp"));
        const bool uplink = std::any_of(device.ports.begin(), device.ports.end(),
                                        [](const PortConfig& port) { return port.vport == uplink_vport; });
        if (cotenant.lacp && !uplink) {
            fail(object.path("lacp"), *lacp, "possible without an uplink among the ports (vport 65535)");
        }
    }
    if (const json* period = object.find("period_ms")) {
        cotenant.period_ms = static_cast<unsigned>(number(*period, object.path("period_ms"), 10, 60000));
    }
    object.refuse_others();
    return cotenant;
}

/// A plain function is what is behind its one port: its address is the port's.
void check_plain_function(DeviceConfig& device, const std::string& where) {
    if (device.ports.size() != 1 || device.ports[0].vport != uplink_vport || !device.ports[0].lag_dpdk.empty()) {
        throw ConfigError(fmt::format("{}.ports: a device with \"eswitch\": false has one port, vport 65535, and no "
                                      "two in LAG",
                                      where));
    }
    if (device.cotenant) throw ConfigError(fmt::format("{}.cotenant: it needs an eSwitch", where));
    if (device.mac && device.ports[0].mac && *device.mac != *device.ports[0].mac) {
        throw ConfigError(fmt::format("{}.mac: another one than the port's, which is the same function's", where));
    }
    if (device.mac) device.ports[0].mac = device.mac;
}

std::string device_name(const json& value, const std::string& where) {
    std::string name = text(value, where);
    const bool good = !name.empty() && name.size() <= 31 && std::all_of(name.begin(), name.end(), [](unsigned char c) {
        return std::isalnum(c) != 0 || c == '_' || c == '-';
    });
    if (!good) fail(where, value, "a device name: 1 to 31 letters, digits, '_' or '-'");
    return name;
}

DeviceConfig parse_device(const json& value, const std::string& where) {
    Object object(value, where, "an object");
    DeviceConfig device;
    device.name = device_name(object.require("name", "a device name such as \"mlx5_0\""), object.path("name"));
    if (const json* profile = object.find("profile")) {
        device.profile = profile_named(text(*profile, object.path("profile")));
        if (device.profile == nullptr) {
            fail(object.path("profile"), *profile, "a profile: connectx-5, connectx-6dx or connectx-7");
        }
    }
    if (const json* parsers = object.find("flex_parser_profile")) {
        device.flex_parser_profile = static_cast<unsigned>(
            number(*parsers, object.path("flex_parser_profile"), 0, flex_parser_profiles - 1));
    }
    if (const json* eswitch = object.find("eswitch")) device.eswitch = boolean(*eswitch, object.path("eswitch"));
    if (const json* mac = object.find("mac")) {
        device.mac = parse_mac(text(*mac, object.path("mac")), object.path("mac"));
    }
    if (const json* limits = object.find("limits")) device.limits = parse_limits(*limits, object.path("limits"));
    if (const json* ports = object.find("ports")) {
        unsigned index = 0;
        for (const json& port : list(*ports, object.path("ports"))) {
            device.ports.push_back(parse_port(port, fmt::format("{}[{}]", object.path("ports"), index++)));
            const VportId id = device.ports.back().vport;
            if (std::any_of(device.ports.begin(), device.ports.end() - 1,
                            [id](const PortConfig& other) { return other.vport == id; })) {
                throw ConfigError(fmt::format("{}: vport {} is there twice", object.path("ports"), id.value));
            }
        }
        if (device.ports.size() >= max_vports) {
            throw ConfigError(fmt::format("{}: {} ports, at most {} are possible", object.path("ports"),
                                          device.ports.size(), max_vports - 1));
        }
    }
    if (const json* cotenant = object.find("cotenant"); cotenant != nullptr && !cotenant->is_null()) {
        device.cotenant = parse_cotenant(*cotenant, device, object.path("cotenant"));
    }
    object.refuse_others();
    if (!device.eswitch) check_plain_function(device, where);
    return device;
}

void parse_devices(const json& value, NicConfig& config) {
    unsigned index = 0;
    for (const json& device : list(value, "devices")) {
        config.devices.push_back(parse_device(device, fmt::format("devices[{}]", index++)));
        const std::string& name = config.devices.back().name;
        if (std::any_of(config.devices.begin(), config.devices.end() - 1,
                        [&](const DeviceConfig& other) { return other.name == name; })) {
            throw ConfigError(fmt::format("devices: device \"{}\" is there twice", name));
        }
    }
    if (config.devices.empty()) throw ConfigError("devices: empty; at least one is needed");
}

}  // namespace

std::string config_path() {
    const char* path = std::getenv("OVSDR_SOFTNIC");
    return path != nullptr && *path != '\0' ? path : "/etc/ovs-dr/softnic.json";
}

std::string read_config_text(const std::string& path) {
    std::ifstream file(path);
    if (!file) throw ConfigError(fmt::format("{}: {}", path, std::strerror(errno)), errno);
    (void)file.peek();  // of a folder, the first byte cannot be read
    std::ostringstream content;
    if (!file.bad() && !file.eof()) content << file.rdbuf();
    if (file.bad() || !content) throw ConfigError(fmt::format("{}: cannot be read", path), EIO);
    return content.str();
}

NicConfig read_config(const std::string& path) {
    const std::string content = read_config_text(path);
    try {
        return parse_config(content);
    } catch (const ConfigError& error) {
        throw ConfigError(fmt::format("{}: {}", path, error.what()));
    }
}

NicConfig parse_config(std::string_view content) {
    json value;
    try {
        // nlohmann lets the last of two equal members win; here a second one is a mistake.
        std::vector<std::set<std::string>> members;
        value = json::parse(content, [&](int, json::parse_event_t event, json& parsed) {
            if (event == json::parse_event_t::object_start) members.emplace_back();
            if (event == json::parse_event_t::object_end) members.pop_back();
            if (event == json::parse_event_t::key && !members.back().insert(parsed.get<std::string>()).second) {
                throw ConfigError(fmt::format("{}: this option is there twice", parsed.get<std::string>()));
            }
            return true;
        });
    } catch (const json::exception& error) {
        throw ConfigError(fmt::format("not JSON: {}", error.what()));
    }
    Object object(value, "", "a JSON object");
    NicConfig config;
    if (const json* workers = object.find("workers")) parse_workers(*workers, config);
    if (const json* memory = object.find("memory_mb")) {
        config.memory_mb = static_cast<unsigned>(number(*memory, "memory_mb", 128, 1U << 20));
    }
    if (const json* hugepages = object.find("hugepages")) config.hugepages = boolean(*hugepages, "hugepages");
    if (const json* socket = object.find("control_socket")) {
        config.control_socket = text(*socket, "control_socket");
        // sun_path has 108 bytes, one of them for the end.
        if (config.control_socket.size() > 107) fail("control_socket", *socket, "a path of at most 107 bytes");
    }
    parse_devices(object.require("devices", "a list of devices"), config);
    object.refuse_others();
    return config;
}

namespace {

std::string dpdk_arguments(const json& value, const std::string& where) {
    std::string arguments = text(value, where);
    check_dpdk_arguments(arguments, where);
    return arguments;
}

// A port's arguments, or a list of those of an uplink's two.
void parse_dpdk(const json& value, const std::string& where, PortConfig& port) {
    if (!value.is_array()) {
        port.dpdk = dpdk_arguments(value, where);
        return;
    }
    if (port.vport != uplink_vport) {
        fail(where, value, "one port's: only the uplink (vport 65535) can have two, in LAG");
    }
    if (value.size() != lag_ports) {
        fail(where, value, fmt::format("a list of {}: that many ports are a LAG", lag_ports));
    }
    port.dpdk = dpdk_arguments(value[0], where + "[0]");
    port.lag_dpdk = dpdk_arguments(value[1], where + "[1]");
    if (port.dpdk == port.lag_dpdk && driver_of(port.dpdk)->backing != Backing::nothing) {
        fail(where + "[1]", value[1], "another port than the first");
    }
}

}  // namespace

Limits parse_limits(const json& value, const std::string& where) {
    Object object(value, where, "an object");
    Limits limits{};
    for (std::size_t i = 0; i < limits.size(); ++i) {
        const std::string name(resource_names[i]);
        const json* const most = object.find(name.c_str());
        if (most == nullptr || most->is_null()) continue;
        limits[i] = static_cast<std::uint32_t>(number(*most, object.path(name), 0, UINT32_MAX));
    }
    object.refuse_others();
    return limits;
}

PortConfig parse_port(const json& value, const std::string& where) {
    Object object(value, where, "an object");
    PortConfig port;
    port.vport = vport_number(object.require("vport", "a vport number"), object.path("vport"));
    parse_dpdk(object.require("dpdk", "DPDK device arguments"), object.path("dpdk"), port);
    if (const json* name = object.find("name")) port.name = text(*name, object.path("name"));
    if (port.name.empty()) port.name = fmt::format("vport {}", port.vport.value);
    if (const json* mac = object.find("mac")) port.mac = parse_mac(text(*mac, object.path("mac")), object.path("mac"));
    if (const json* mtu = object.find("mtu")) {
        port.mtu = static_cast<std::uint16_t>(number(*mtu, object.path("mtu"), min_mtu, max_mtu));
    }
    if (const json* address = object.find("roce_address"); address != nullptr && !address->is_null()) {
        port.roce_addresses = parse_roce_addresses(*address, object.path("roce_address"), port.vport);
    }
    object.refuse_others();
    return port;
}

MacAddress parse_mac(std::string_view content, const std::string& where) {
    static constexpr std::string_view digits = "0123456789abcdef";
    MacAddress mac{};
    bool good = content.size() == 17;
    for (unsigned i = 0; good && i < 17; ++i) {
        const char c = static_cast<char>(std::tolower(static_cast<unsigned char>(content[i])));
        if (i % 3 == 2) {
            good = c == ':';
        } else {
            const auto digit = digits.find(c);
            good = digit != std::string_view::npos;
            mac[i / 3] = static_cast<std::uint8_t>(mac[i / 3] << 4 | (good ? digit : 0));
        }
    }
    const bool zero = std::all_of(mac.begin(), mac.end(), [](std::uint8_t byte) { return byte == 0; });
    if (!good || zero || (mac[0] & 1) != 0) {
        fail(where, std::string(content), "a unicast MAC address such as \"02:00:00:00:00:01\"");
    }
    return mac;
}

std::string format_mac(const std::uint8_t (&mac)[6]) {
    return fmt::format("{:02x}:{:02x}:{:02x}:{:02x}:{:02x}:{:02x}", mac[0], mac[1], mac[2], mac[3], mac[4], mac[5]);
}

void check_dpdk_arguments(std::string_view arguments, const std::string& where) {
    const std::string problem = dpdk_arguments_problem(arguments);
    if (!problem.empty()) throw ConfigError(fmt::format("{}: \"{}\": {}", where, arguments, problem));
}

}  // namespace ovsdr::soft
