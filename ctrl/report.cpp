// The texts of the unixctl commands. See report.h.
#include "ctrl/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <nlohmann/json.hpp>
#include <numeric>
#include <span>
#include <utility>

#include "ctrl/all_devices.hpp"
#include "ctrl/port.hpp"
#include "offload/dr/device/leak.hpp"

using namespace ovsdr;
using namespace ovsdr::ctrl;
using nlohmann::json;

namespace {

using Text = fmt::memory_buffer;

template <typename... Arguments>
void append(Text& text, fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    fmt::format_to(std::back_inserter(text), format, std::forward<Arguments>(arguments)...);
}

/// Runs what may run out of memory.
template <typename Body>
char* text_of(Body&& body) noexcept {
    try {
        const std::string text = body();
        return c_string(text);
    } catch (...) {
        return nullptr;
    }
}

struct PortReport {
    std::string interface, device;
    unsigned vport;
    std::uint32_t odp_port;
    ovsdr_port_state state;
    ovsdr_port_stats stats{};   ///< unless stats_error is an errno
    int stats_error = 0;
    std::string problem;
};

std::vector<PortReport> port_reports() {
    std::vector<PortReport> reports;
    for_each_port([&](const ovsdr_port& port) {
        PortReport report{.interface = port.interface,
                          .device = std::string(port.eswitch().device()),
                          .vport = port.vport.value,
                          .odp_port = port.odp_port,
                          .state = {}};
        ovsdr_port_get_state(&port, &report.state);
        report.stats_error = ovsdr_port_get_stats(&port, &report.stats);
        {
            const std::lock_guard guard(port.state_lock);
            report.problem = port.problem();
        }
        reports.push_back(std::move(report));
    });
    return reports;
}

std::string mac_text(const std::uint8_t (&mac)[6]) {
    return fmt::format("{:02x}:{:02x}:{:02x}:{:02x}:{:02x}:{:02x}", mac[0], mac[1], mac[2], mac[3], mac[4], mac[5]);
}

json json_of(const ovsdr_port_stats& stats) {
    return {{"rx_packets", stats.rx_packets},
            {"rx_bytes", stats.rx_bytes},
            {"rx_errors", stats.rx_errors},
            {"tx_packets", stats.tx_packets},
            {"tx_bytes", stats.tx_bytes},
            {"tx_errors", stats.tx_errors},
            {"slow_path_rx", stats.slow_path_rx},
            {"slow_path_rx_errors", stats.slow_path_rx_errors},
            {"slow_path_rx_missed", stats.slow_path_rx_missed},
            {"slow_path_tx", stats.slow_path_tx},
            {"slow_path_tx_drops", stats.slow_path_tx_drops},
            {"slow_path_tx_errors", stats.slow_path_tx_errors},
            {"slow_path_restarts", stats.slow_path_restarts}};
}

/// Counters that could not be read are left out: 0 would look like a restart to whoever makes rates of them.
json json_of(const PortReport& port) {
    json report = {{"name", port.interface},
                   {"device", port.device},
                   {"vport", port.vport},
                   {"odp_port", port.odp_port == OVSDR_NO_ODP_PORT ? json(nullptr) : json(port.odp_port)},
                   {"mac", mac_text(port.state.mac)},
                   {"mtu", port.state.mtu},
                   {"admin_up", port.state.admin_up},
                   {"link_up", port.state.link_up},
                   {"stats_error", port.stats_error == 0 ? "" : std::strerror(port.stats_error)},
                   {"problem", port.problem}};
    if (port.stats_error == 0) report.update(json_of(port.stats));
    return report;
}

void append_stats(Text& text, const ovsdr_port_stats& stats) {
    append(text, "  rx: packets={} bytes={} errors={}, by the slow path {} (errors {}, missed {})\n", stats.rx_packets,
           stats.rx_bytes, stats.rx_errors, stats.slow_path_rx, stats.slow_path_rx_errors, stats.slow_path_rx_missed);
    append(text, "  tx: packets={} bytes={} errors={}, by the slow path {} (drops {}, errors {})\n", stats.tx_packets,
           stats.tx_bytes, stats.tx_errors, stats.slow_path_tx, stats.slow_path_tx_drops, stats.slow_path_tx_errors);
    if (stats.slow_path_restarts != 0) append(text, "  slow path restarted {} times\n", stats.slow_path_restarts);
}

void append_port(Text& text, const PortReport& port) {
    append(text, "{}: device={} vport={} ", port.interface, port.device, port.vport);
    if (port.odp_port == OVSDR_NO_ODP_PORT) {
        append(text, "odp_port=unknown");
    } else {
        append(text, "odp_port={}", port.odp_port);
    }
    append(text, " mac={} mtu={} admin={} link={}\n", mac_text(port.state.mac), port.state.mtu,
           port.state.admin_up ? "up" : "down", port.state.link_up ? "up" : "down");
    if (port.stats_error == 0) {
        append_stats(text, port.stats);
    } else {
        append(text, "  rx: -, tx: - (the device does not tell: {})\n", std::strerror(port.stats_error));
    }
    if (!port.problem.empty()) append(text, "  {}\n", port.problem);
}

dr::PortNames names_of(const ovsdr_datapath& datapath) {
    dr::PortNames names;
    for (const ovsdr_datapath_port& port : std::span(datapath.ports, datapath.n_ports)) {
        names[dr::OdpPort{port.odp_port}] = port.name;
    }
    return names;
}

json json_of(const dr::Eswitch& eswitch, bool verbose, const dr::PortNames& names) {
    const auto totals = eswitch.totals();
    return {{"device", eswitch.device()},
            {"offloaded", totals.offloaded},
            {"rejected", totals.rejected},
            {"failed", totals.failed},
            {"packets", totals.packets},
            {"bytes", totals.bytes},
            {"misses", totals.misses},
            {"tables", eswitch.show(verbose, names)}};
}

void append_device(Text& text, const dr::Eswitch& eswitch, bool verbose, const dr::PortNames& names) {
    const auto totals = eswitch.totals();
    append(text, "{}: megaflows offloaded={} rejected={} failed={}\n", eswitch.device(), totals.offloaded,
           totals.rejected, totals.failed);
    append(text, "  offloaded packets={} bytes={}, sent up to the slow path packets={}\n", totals.packets,
           totals.bytes, totals.misses);
    append(text, "{}", eswitch.show(verbose, names));
    if (text.size() > 0 && text[text.size() - 1] != '\n') append(text, "\n");
}

std::string other_port_text(const ovsdr_datapath_port& port) {
    return fmt::format("{}: in_port is no dr port: {} (type {})",
                       dr::name_of(dr::RejectReason::in_port_not_offloaded).text(), port.name, port.type);
}

/// What dr/explain says: the devices' reasons, and the megaflows that come from ports that no device is offered.
class Reasons {
public:
    explicit Reasons(const ovsdr_datapath& datapath)
        : ports_(datapath.ports, datapath.n_ports), packets_(datapath.packets) {
        const auto in_software = software_of(datapath);
        for (const auto& eswitch : dr::open_eswitches()) {
            const auto totals = eswitch->totals();
            offloaded_ += totals.offloaded;
            rejected_ += totals.rejected;
            failed_ += totals.failed;
            for (auto& count : eswitch->reasons(in_software)) {
                rows_.push_back({std::string(eswitch->device()), std::move(count)});
            }
            ++devices_;
        }
        for (const ovsdr_datapath_port& port : ports_) {
            from_[port.offered] += port.megaflows;
            software_packets_ += port.software_packets;
        }
    }

    [[nodiscard]] json as_json() const {
        json reasons = json::array(), others = json::array();
        for (const auto& [device, count] : rows_) {
            reasons.push_back({{"device", device},
                               {"reason", count.reason},
                               {"detail", count.detail},
                               {"megaflows", count.megaflows},
                               {"total", count.total},
                               {"packets", count.packets}});
        }
        for (const ovsdr_datapath_port& port : ports_) {
            if (port.offered != OVSDR_OFFERED_NONE || port.megaflows == 0) continue;
            others.push_back({{"name", port.name}, {"type", port.type}, {"megaflows", port.megaflows},
                              {"packets", port.software_packets}});
        }
        return {{"reasons", reasons},
                {"other_ports", others},
                {"packets", {{"all", packets_}, {"software", software_packets_}}},
                {"megaflows", {{"offloaded", offloaded_}, {"rejected", rejected_}, {"failed", failed_},
                               {"from_dr_ports", from_[OVSDR_OFFERED_ITS_DEVICE]},
                               {"from_tunnel_ports", from_[OVSDR_OFFERED_ALL_DEVICES]},
                               {"from_other_ports", from_[OVSDR_OFFERED_NONE]}}}};
    }

    [[nodiscard]] std::string as_text() const {
        Text text;
        append(text, "megaflows in the datapath: {}, {} of them from dr ports and {} from tunnel ports\n",
               std::reduce(from_.begin(), from_.end()), from_[OVSDR_OFFERED_ITS_DEVICE],
               from_[OVSDR_OFFERED_ALL_DEVICES]);
        append(text, "of those: {} offloaded, {} rejected, {} failed{}\n", offloaded_, rejected_, failed_,
               devices_ > 1 ? " (those from tunnel ports once for each device)" : "");
        append(text, "packets of those there are: {}, {} ({}) of megaflows that are not offloaded\n", packets_,
               software_packets_, share(software_packets_));
        append(text, "one that is rejected is counted under each of its reasons\n");
        append(text, "{:>10} {:>10} {:>12} {:>6}  {}\n", "now", "total", "packets", "share", "megaflows");
        for (const auto& [device, count] : rows_) {
            append_row(text, count.megaflows, fmt::to_string(count.total), count.packets,
                       count.reason + (count.detail.empty() ? "" : ": ") + count.detail);
        }
        for (const ovsdr_datapath_port& port : ports_) {
            if (port.offered != OVSDR_OFFERED_NONE || port.megaflows == 0) continue;
            append_row(text, port.megaflows, "-", port.software_packets, other_port_text(port));
        }
        return fmt::to_string(text);
    }

private:
    static std::vector<dr::Eswitch::InSoftware> software_of(const ovsdr_datapath& datapath) {
        std::vector<dr::Eswitch::InSoftware> megaflows;
        for (const ovsdr_software_flow& flow : std::span(datapath.in_software, datapath.n_in_software)) {
            megaflows.push_back({{flow.ufid.value[0], flow.ufid.value[1]}, flow.packets});
        }
        return megaflows;
    }

    [[nodiscard]] std::string share(std::uint64_t packets) const {
        constexpr double percent = 100;
        return packets_ == 0 ? "-" : fmt::format("{:.1f}%", percent * static_cast<double>(packets) /
                                                                static_cast<double>(packets_));
    }

    void append_row(Text& text, std::uint64_t megaflows, const std::string& total, std::uint64_t packets,
                    const std::string& what) const {
        append(text, "{:>10} {:>10} {:>12} {:>6}  {}\n", megaflows, total, packets, share(packets), what);
    }

    struct Row {
        std::string device;
        dr::Eswitch::ReasonCount count;
    };
    std::span<const ovsdr_datapath_port> ports_;
    std::uint64_t packets_, software_packets_ = 0;
    std::vector<Row> rows_;
    std::uint64_t offloaded_ = 0, rejected_ = 0, failed_ = 0;
    std::size_t devices_ = 0;
    std::array<std::uint64_t, 3> from_{};   ///< by ovsdr_offered
};

/// A megaflow in a device.
using MegaflowReport = std::pair<std::string, dr::FlowReport>;

/// Of all devices that know it.
std::vector<MegaflowReport> reports_of(const dr::Ufid& ufid, const dr::PortNames& names) {
    std::vector<MegaflowReport> reports;
    for (const auto& eswitch : dr::open_eswitches()) {
        auto report = eswitch->explain(ufid, names);
        if (report) reports.emplace_back(eswitch->device(), std::move(*report));
    }
    return reports;
}

json json_of(const MegaflowReport& megaflow) {
    const auto& [device, report] = megaflow;
    return {{"device", device},
            {"offloaded", report.offloaded},
            {"text", report.text},
            {"reasons", report.reasons},
            {"program", report.program},
            {"packets", report.stats.packets},
            {"bytes", report.stats.bytes}};
}

void append_megaflow(Text& text, const MegaflowReport& megaflow) {
    const auto& [device, report] = megaflow;
    append(text, "{}: {}\n  packets={} bytes={}\n{}\n", device, report.offloaded ? "offloaded" : "not offloaded",
           report.stats.packets, report.stats.bytes,
           fmt::join(report.offloaded ? report.program : report.reasons, "\n"));
}

std::string_view name_of(dr::TunnelKind kind) {
    switch (kind) {
        case dr::TunnelKind::vxlan: return "vxlan";
        case dr::TunnelKind::geneve: return "geneve";
        case dr::TunnelKind::gre: return "gre";
    }
    return "?";
}

json json_of(const dr::TunnelPort& port) {
    return {{"name", port.name},
            {"type", name_of(port.kind)},
            {"odp_port", port.odp_port.value},
            {"udp_port", port.kind == dr::TunnelKind::gre ? json(nullptr) : json(port.udp_port)}};
}

void append_tunnel_port(Text& text, const dr::TunnelPort& port) {
    append(text, "{}: type={} odp_port={}", port.name, name_of(port.kind), port.odp_port.value);
    if (port.kind != dr::TunnelKind::gre) append(text, " udp_port={}", port.udp_port);
    append(text, "\n");
}

}  // namespace

char* ovsdr_report_devices(const ovsdr_datapath* datapath, bool verbose, bool as_json) noexcept {
    return text_of([&]() -> std::string {
        const dr::PortNames names = names_of(*datapath);
        const auto eswitches = dr::open_eswitches();
        const std::uint64_t leaked = dr::leaked_objects();
        if (as_json) {
            json devices = json::array();
            for (const auto& eswitch : eswitches) devices.push_back(json_of(*eswitch, verbose, names));
            return json{{"devices", devices}, {"leaked_objects", leaked}}.dump(2);
        }
        Text text;
        if (leaked != 0) append(text, "objects that the devices would not destroy: {}\n", leaked);
        if (eswitches.empty()) append(text, "no device is open: add an interface of type=dr\n");
        for (const auto& eswitch : eswitches) append_device(text, *eswitch, verbose, names);
        return fmt::to_string(text);
    });
}

char* ovsdr_report_graph(const char* device, bool* known) noexcept {
    return text_of([&]() -> std::string {
        std::vector<dr::Graph> graphs;
        std::string devices;
        for (const auto& eswitch : dr::open_eswitches()) {
            devices += fmt::format("{}{}", devices.empty() ? "" : ", ", eswitch->device());
            if (device == nullptr || eswitch->device() == device) graphs.push_back(eswitch->graph());
        }
        *known = !graphs.empty();
        if (*known) return dr::dot_of(graphs);
        if (devices.empty()) return "no device is open: add an interface of type=dr";
        return fmt::format("no device {} is open; there is {}", device, devices);
    });
}

char* ovsdr_report_ports(bool as_json) noexcept {
    return text_of([&]() -> std::string {
        const auto reports = port_reports();
        const auto tunnels = all_devices().tunnel_ports();
        if (as_json) {
            json ports = json::array(), tunnel_ports = json::array();
            for (const auto& report : reports) ports.push_back(json_of(report));
            for (const auto& tunnel : tunnels) tunnel_ports.push_back(json_of(tunnel));
            return json{{"ports", ports}, {"tunnel_ports", tunnel_ports}}.dump(2);
        }
        Text text;
        for (const auto& report : reports) append_port(text, report);
        for (const auto& tunnel : tunnels) append_tunnel_port(text, tunnel);
        return fmt::to_string(text);
    });
}

char* ovsdr_report_reasons(const ovsdr_datapath* datapath, bool as_json) noexcept {
    return text_of([&]() -> std::string {
        const Reasons reasons(*datapath);
        return as_json ? reasons.as_json().dump(2) : reasons.as_text();
    });
}

char* ovsdr_report_megaflow(const ovsdr_ufid* ufid, const ovsdr_datapath* datapath, bool as_json) noexcept {
    bool found = false;
    char* text = text_of([&]() -> std::string {
        const auto reports = reports_of({ufid->value[0], ufid->value[1]}, names_of(*datapath));
        found = !reports.empty();
        if (!found) return {};
        if (as_json) {
            const auto best = std::ranges::find_if(reports, [](const auto& report) { return report.second.offloaded; });
            return json_of(best != reports.end() ? *best : reports.front()).dump(2);
        }
        Text all;
        for (const auto& report : reports) append_megaflow(all, report);
        return fmt::to_string(all);
    });
    if (found) return text;
    std::free(text);
    return nullptr;
}

char* ovsdr_report_other_port(const ovsdr_datapath_port* port, bool as_json) noexcept {
    return text_of([&]() -> std::string {
        const std::string reason = other_port_text(*port);
        if (!as_json) return fmt::format("not offloaded\n{}\n", reason);
        return json{{"device", nullptr}, {"offloaded", false}, {"text", reason}, {"reasons", {reason}}}.dump(2);
    });
}
