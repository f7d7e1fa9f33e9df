#include "datapath/control/commands.hpp"

#include <fmt/format.h>
#include <rte_cycles.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "datapath/control/capture_session.hpp"
#include "datapath/control/config_changes.hpp"
#include "datapath/control/errno_names.hpp"
#include "datapath/control/fault.hpp"
#include "datapath/control/request.hpp"
#include "datapath/ports/config.hpp"
#include "datapath/ports/drivers.hpp"
#include "datapath/ports/soft_nic.hpp"

namespace ovsdr::soft {
namespace {

using nlohmann::json;

json vport_json(const VportInfo& info) {
    json value{{"vport", info.id.value},
               {"name", info.name},
               {"dpdk", info.dpdk},
               {"mac", format_mac(info.mac)},
               {"mtu", info.mtu},
               {"admin", info.admin_up ? "up" : "down"},
               {"link", info.link_up ? "up" : "down"}};
    if (!info.error.empty()) value["error"] = info.error;
    if (!info.lag.empty()) value["dpdk"] = value["lag"] = json::array();
    for (const LagPortInfo& port : info.lag) {
        value["dpdk"].push_back(port.dpdk);
        value["lag"].push_back({{"port", value["lag"].size() + 1}, {"link", port.link_up ? "up" : "down"}});
    }
    return value;
}

json list(SoftNic& nic) {
    json devices = json::array();
    for (const auto& device : nic.soft_devices()) {
        json vports = json::array();
        for (const VportInfo& info : device->vports()) vports.push_back(vport_json(info));
        devices.push_back({{"name", device->name()},
                           {"profile", device->profile().name},
                           {"guid", fmt::format("{:016x}", device->guid())},
                           {"vports", std::move(vports)}});
    }
    return {{"devices", std::move(devices)}, {"captures", capture_list(nic)}};
}

json counters_json(const VportCounters& counters) {
    return {{"received_packets", counters.received_packets},
            {"received_bytes", counters.received_bytes},
            {"sent_packets", counters.sent_packets},
            {"sent_bytes", counters.sent_bytes},
            {"receive_drops", counters.receive_drops},
            {"send_drops", counters.send_drops},
            {"oversize", counters.oversize},
            {"down", counters.down},
            {"overruns", counters.overruns}};
}

json cotenant_json(const Cotenant& cotenant) {
    const Cotenant::Statistics statistics = cotenant.statistics();
    json vports = json::array();
    for (const auto& port : statistics.ports) {
        vports.push_back({{"vport", port.vport.value},
                          {"sent", port.sent},
                          {"forwarded", port.forwarded},
                          {"received", port.received},
                          {"missed", port.missed}});
    }
    return {
        {"vports", std::move(vports)},
        {"lacp",
         {{"sent", statistics.lacp_sent}, {"received", statistics.lacp_received}, {"missed", statistics.lacp_missed}}},
        {"foreign", statistics.foreign},
        {"queue_full", statistics.queue_full}};
}

json device_stats(SoftNic& nic, std::size_t index) {
    SoftDevice& device = *nic.soft_devices()[index];
    json vports = json::array();
    for (const VportInfo& info : device.vports()) {
        VportCounters counters{};
        if (device.counters(info.id, counters) != 0) continue;
        json value = counters_json(counters);
        value["vport"] = info.id.value;
        value["name"] = info.name;
        for (unsigned port = 1; info.id == uplink_vport && device.lag_counters(port, counters) == 0; ++port) {
            value["lag"].push_back(counters_json(counters));
            value["lag"].back()["port"] = port;
        }
        vports.push_back(std::move(value));
    }
    const Steering::Drops drops = device.steering().drops();
    const Steering::CacheUse cache = device.steering().cache_use();
    json value{{"name", device.name()},
               {"vports", std::move(vports)},
               {"drops",
                {{"by_rule", drops.by_rule},
                 {"no_vport", drops.no_vport},
                 {"nic_rx_miss", drops.nic_rx_miss},
                 {"malformed", drops.malformed},
                 {"no_buffer", drops.no_buffer},
                 {"loop", drops.loop}}},
               {"flow_cache", {{"hits", cache.hits}, {"misses", cache.misses}}}};
    if (const Cotenant* cotenant = nic.cotenant(index)) value["cotenant"] = cotenant_json(*cotenant);
    return value;
}

json pool_json(const rte_mempool& pool) {
    return {{"buffers", pool.size}, {"free", rte_mempool_avail_count(&pool)}};
}

// What worker `index` polls.
json queues_json(const SoftNic& nic, std::size_t index) {
    json queues = json::array();
    for (const auto& device : nic.soft_devices()) {
        for (const PlacedQueue& queue : device->placed_queues()) {
            VportInfo info;
            if (queue.worker != index || device->query(queue.vport, info) != 0) continue;
            queues.push_back({{"device", device->name()},
                              {"vport", queue.vport.value},
                              {"name", info.name},
                              {"queue", queue.queue},
                              {"load", queue.load->share.load(std::memory_order_relaxed)},
                              {"busy_cycles", queue.load->cycles.load(std::memory_order_relaxed)}});
            if (!info.lag.empty()) queues.back()["port"] = queue.port + 1;
        }
    }
    return queues;
}

json stats(SoftNic& nic) {
    json devices = json::array();
    for (std::size_t index = 0; index < nic.soft_devices().size(); ++index) devices.push_back(device_stats(nic, index));
    json workers = json::array();
    for (const auto& worker : nic.workers()) {
        const Worker::Statistics statistics = worker->statistics();
        workers.push_back({{"busy_cycles", statistics.busy_cycles},
                           {"idle_cycles", statistics.idle_cycles},
                           {"asleep_cycles", statistics.asleep_cycles},
                           {"sleeps", statistics.sleeps},
                           {"load", worker->load()},
                           {"queues", queues_json(nic, workers.size())}});
    }
    return {{"devices", std::move(devices)},
            {"workers", std::move(workers)},
            {"cycles_per_second", rte_get_tsc_hz()},
            {"captures", capture_list(nic)},
            {"memory", {{"small", pool_json(*nic.small_mempool())}, {"jumbo", pool_json(*nic.mempool())}}}};
}

json save(ConfigChanges& changes) {
    const std::string path = config_path();
    changes.save(path);
    return {{"saved", path}};
}

bool is_to_be_saved(const json& request) {
    const json wanted = request.value("save", json(false));
    if (!wanted.is_boolean()) throw ConfigError(fmt::format("save: {} is not true or false", wanted.dump()));
    return wanted.get<bool>();
}

// `done`: what stays done when the file cannot be written.
json saved_after(ConfigChanges& changes, bool wanted, const std::string& done) {
    if (!wanted) return json::object();
    try {
        return save(changes);
    } catch (const ConfigError& error) {
        throw ConfigError(fmt::format("{}, but not saved: {}", done, error.what()), error.code());
    }
}

json add(SoftNic& nic, ConfigChanges& changes, const json& request) {
    allow_only(request, {"device", "port", "save"});
    const bool wanted = is_to_be_saved(request);
    SoftDevice& device = device_of(nic, request);
    const json& given = require(request, "port", "a port as in the configuration");
    const PortConfig port = parse_port(given, "port");
    std::string error;
    if (int result = device.add_vport(port, true, error)) throw ConfigError(error, result);
    changes.added(device.name(), port.vport, given);
    return saved_after(changes, wanted, fmt::format("vport {} is added", port.vport.value));
}

json del(SoftNic& nic, ConfigChanges& changes, const json& request) {
    allow_only(request, {"device", "vport", "save"});
    const bool wanted = is_to_be_saved(request);
    SoftDevice& device = device_of(nic, request);
    const VportId vport = vport_of(device, request);
    if (vport == manager_vport) throw ConfigError("vport: 0 is the eSwitch manager, which cannot be removed");
    if (device.remove_vport(vport) != 0) throw ConfigError(fmt::format("vport: {} is gone already", vport.value));
    changes.removed(device.name(), vport);
    return saved_after(changes, wanted, fmt::format("vport {} is removed", vport.value));
}

unsigned number_of(const json& request, const char* name, std::size_t low, std::size_t end, std::string_view what) {
    const json& value = require(request, name, what);
    if (value.is_number_unsigned() && value >= low && value < end) return value.get<unsigned>();
    throw ConfigError(fmt::format("{}: {} is not {}: {} to {}", name, value.dump(), what, low, end - 1));
}

// "port" names one of an uplink in LAG, from 1 on.
json move(SoftNic& nic, const json& request) {
    allow_only(request, {"device", "vport", "port", "queue", "worker"});
    SoftDevice& device = device_of(nic, request);
    const VportId vport = vport_of(device, request);
    std::vector<PlacedQueue> queues = device.placed_queues();
    std::erase_if(queues, [vport](const PlacedQueue& queue) { return queue.vport != vport; });
    if (queues.empty()) throw ConfigError(fmt::format("vport: {} has no port whose queues could move", vport.value));
    const unsigned ports = queues.back().port + 1;
    const unsigned port =
        ports == 1 && !request.contains("port") ? 0 : number_of(request, "port", 1, ports + 1, "a port of the LAG") - 1;
    std::erase_if(queues, [port](const PlacedQueue& queue) { return queue.port != port; });
    if (queues.empty()) throw ConfigError(fmt::format("port: {} of the LAG is not open", port + 1));
    const unsigned queue = number_of(request, "queue", 0, queues.size(), "a receive queue of the port");
    const unsigned worker = number_of(request, "worker", 0, nic.workers().size(), "a worker");
    if (device.move_queue(vport, port, queue, worker) != 0) {
        throw ConfigError(fmt::format("vport: {} is gone or has been opened anew", vport.value));
    }
    nic.balancer().moved(*queues[queue].load);
    return json::object();
}

// What the vport's port can carry; in LAG both.
void check_mtu(const SoftDevice& device, VportId vport, unsigned mtu) {
    VportInfo info;
    if (device.query(vport, info) != 0) return;
    std::vector<std::string> ports{info.dpdk};
    for (const LagPortInfo& port : info.lag) ports.push_back(port.dpdk);
    for (const std::string& port : ports) {
        const Driver* const driver = driver_of(port);
        if (driver == nullptr || mtu <= driver->largest_mtu) continue;
        throw ConfigError(
            fmt::format("mtu: {} is more than the {} that {} can carry", mtu, driver->largest_mtu, driver->name));
    }
}

void set_mtu(SoftDevice& device, VportId vport, const json& mtu) {
    if (!mtu.is_number_unsigned() || mtu < min_mtu || mtu > max_mtu) {
        throw ConfigError(fmt::format("mtu: {} is not a whole number from {} to {}", mtu.dump(), min_mtu, max_mtu));
    }
    check_mtu(device, vport, mtu.get<unsigned>());
    if (int result = device.set_mtu(vport, mtu.get<std::uint16_t>())) {
        throw ConfigError(
            fmt::format("mtu: {} cannot be set on vport {}: {} (its port or network interface is at its limit)",
                        mtu.dump(), vport.value, std::strerror(result)),
            result);
    }
}

json set(SoftNic& nic, const json& request) {
    allow_only(request, {"device", "vport", "link", "mac", "mtu"});
    SoftDevice& device = device_of(nic, request);
    const VportId vport = vport_of(device, request);
    const auto link = request.find("link"), mac = request.find("mac"), mtu = request.find("mtu");
    if (link == request.end() && mac == request.end() && mtu == request.end()) {
        throw ConfigError("nothing to set; there are link, mac, mtu");
    }
    if (link != request.end() && *link != "up" && *link != "down") {
        throw ConfigError(fmt::format("link: {} is not \"up\" or \"down\"", link->dump()));
    }
    MacAddress address{};
    if (mac != request.end()) address = parse_mac(mac->is_string() ? mac->get<std::string>() : mac->dump(), "mac");
    if (mtu != request.end()) set_mtu(device, vport, *mtu);
    const auto check = [vport](const char* option, const json& value, int result) {
        if (result == 0) return;
        throw ConfigError(fmt::format("{}: {} cannot be set on vport {}: {}", option, value.dump(), vport.value,
                                      std::strerror(result)),
                          result);
    };
    if (link != request.end()) check("link", *link, device.set_admin_state(vport, *link == "up"));
    if (mac != request.end()) {
        std::uint8_t bytes[6];
        std::copy(address.begin(), address.end(), bytes);
        check("mac", *mac, device.set_mac(vport, bytes));
    }
    return json::object();
}

json room_json(const Room& room) {
    json rows = json::object();
    for (std::size_t i = 0; i < resource_names.size(); ++i) {
        const auto resource = static_cast<Resource>(i);
        const std::optional<std::uint32_t> most = room.most(resource);
        rows[std::string(resource_names[i])] = {{"taken", room.taken(resource)}, {"most", most ? json(*most) : json()}};
    }
    return rows;
}

json limits(SoftNic& nic, const json& request) {
    allow_only(request, {"device", "set"});
    const SoftDevice* const only = request.contains("device") ? &device_of(nic, request) : nullptr;
    if (const auto wanted = request.find("set"); wanted != request.end()) {
        const Limits limits = parse_limits(*wanted, "set");
        Room& room = room_of(device_of(nic, request).steering());
        for (std::size_t i = 0; i < limits.size(); ++i) {
            if (wanted->contains(resource_names[i])) room.limit(static_cast<Resource>(i), limits[i]);
        }
    }
    json devices = json::array();
    for (const auto& device : nic.soft_devices()) {
        if (only != nullptr && only != &*device) continue;
        devices.push_back({{"name", device->name()}, {"limits", room_json(room_of(device->steering()))}});
    }
    return {{"devices", std::move(devices)}};
}

json fault(SoftNic&, const json& request) {
    allow_only(request, {"call", "errno", "nth"});
    const json& call = require(request, "call", "a function such as \"ibv_create_qp\"");
    if (!call.is_string() || !std::ranges::binary_search(fault_points(), call.get<std::string>())) {
        throw ConfigError(
            fmt::format("call: {} is no call that can be made to fail: not a function of this NIC, or one that never "
                        "fails; \"drnic faults\" lists those that can",
                        call.dump()));
    }
    const json& error = require(request, "errno", "a name such as \"ENOMEM\" or a number");
    int code = 0;
    if (error.is_string()) code = errno_of(error.get<std::string>());
    if (error.is_number_unsigned() && error >= 1 && error <= 133) code = error.get<int>();
    if (code == 0)
        throw ConfigError(fmt::format("errno: {} is no errno; give a name such as ENOMEM or 1 to 133", error.dump()));
    const json nth = request.value("nth", json(1U));
    if (!nth.is_number_unsigned() || nth < 1 || nth > 1'000'000'000) {
        throw ConfigError(
            fmt::format("nth: {} is not a whole number from 1 (the next call) to 1000000000", nth.dump()));
    }
    arm_fault(call.get<std::string>(), code, nth.get<unsigned>());
    return json::object();
}

json faults(const json& request) {
    allow_only(request, {"disarm"});
    const json disarm = request.value("disarm", json(false));
    if (!disarm.is_boolean()) throw ConfigError(fmt::format("disarm: {} is not true or false", disarm.dump()));
    if (disarm.get<bool>()) disarm_faults();
    json armed = json::array();
    for (const ArmedFault& fault : armed_faults()) {
        armed.push_back({{"call", fault.call}, {"errno", fault.error}, {"nth", fault.calls_left}});
    }
    return {{"calls", fault_points()}, {"armed", std::move(armed)}};
}

json dispatch(SoftNic& nic, ConfigChanges& changes, Session& session, std::string_view text) {
    const json request = json::parse(text);
    if (!request.is_object()) throw ConfigError("a request is a JSON object");
    const json& command =
        require(request, "command", "list, stats, add, del, save, set, move, limits, capture, fault or faults");
    if (command == "list" || command == "stats") {
        allow_only(request, {});
        return command == "list" ? list(nic) : stats(nic);
    }
    if (command == "add") return add(nic, changes, request);
    if (command == "del") return del(nic, changes, request);
    if (command == "save") {
        allow_only(request, {});
        return save(changes);
    }
    if (command == "set") return set(nic, request);
    if (command == "move") return move(nic, request);
    if (command == "limits") return limits(nic, request);
    if (command == "capture") return capture_command(nic, session, request);
    if (command == "fault") return fault(nic, request);
    if (command == "faults") return faults(request);
    throw ConfigError(fmt::format(
        "command: {} is not list, stats, add, del, save, set, move, limits, capture, fault or faults", command.dump()));
}

}  // namespace

std::string answer(SoftNic& nic, ConfigChanges& changes, Session& session, std::string_view request) {
    json result;
    try {
        result = dispatch(nic, changes, session, request);
        result["ok"] = true;
    } catch (const json::parse_error& error) {
        result = {{"ok", false}, {"error", fmt::format("not JSON: {}", error.what())}};
    } catch (const std::exception& error) {
        result = {{"ok", false}, {"error", error.what()}};
    }
    // Names may come from interfaces or files in any encoding.
    return result.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace ovsdr::soft
