#include "tools/drnic/tables.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

namespace ovsdr::drnic {
namespace {

using nlohmann::json;
using Row = std::vector<std::string>;

// Columns as wide as their widest cell; numbers to the right.
std::string table(const std::vector<Row>& rows) {
    std::vector<std::size_t> widths;
    for (const Row& row : rows) {
        widths.resize(std::max(widths.size(), row.size()));
        for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
    }
    std::string text;
    for (const Row& row : rows) {
        std::string line;
        for (std::size_t i = 0; i < row.size(); ++i) {
            const bool number = !row[i].empty() && row[i].find_first_not_of("0123456789") == std::string::npos;
            line += number ? fmt::format("  {:>{}}", row[i], widths[i]) : fmt::format("  {:<{}}", row[i], widths[i]);
        }
        line.erase(line.find_last_not_of(' ') + 1);
        text += line + '\n';
    }
    return text;
}

std::string cell(const json& object, const char* name) {
    const json& value = object.at(name);
    return value.is_string() ? value.get<std::string>() : value.dump();
}

std::string worker_line(std::size_t index, const json& worker) {
    const double busy = worker.at("busy_cycles"), idle = worker.at("idle_cycles"), asleep = worker.at("asleep_cycles");
    const double all = std::max(1.0, busy + idle + asleep);
    return fmt::format("worker {}: busy {:.1f} %, polling {:.1f} %, asleep {:.1f} %, {} sleeps\n", index,
                       100 * busy / all, 100 * idle / all, 100 * asleep / all,
                       worker.at("sleeps").get<std::uint64_t>());
}

// Nothing of a NIC that is older than this drnic.
std::string queues_text(const json& worker) {
    std::string text;
    for (const json& queue : worker.value("queues", json::array())) {
        const std::string port = queue.contains("port") ? fmt::format(" port {}", cell(queue, "port")) : "";
        text += fmt::format("  {} vport {} ({}){} queue {}: {:.1f} %\n", cell(queue, "device"), cell(queue, "vport"),
                            cell(queue, "name"), port, cell(queue, "queue"), 100 * queue.at("load").get<double>());
    }
    return text;
}

Row counters_row(const std::string& vport, const std::string& name, const json& counters) {
    return {vport,
            name,
            cell(counters, "received_packets"),
            cell(counters, "received_bytes"),
            cell(counters, "sent_packets"),
            cell(counters, "sent_bytes"),
            cell(counters, "receive_drops"),
            cell(counters, "send_drops"),
            cell(counters, "oversize"),
            cell(counters, "down"),
            cell(counters, "overruns")};
}

std::string cotenant_text(const json& cotenant) {
    std::vector<Row> rows{{"co-tenant", "sent", "forwarded", "received", "missed"}};
    for (const json& vport : cotenant.at("vports")) {
        rows.push_back({"vport " + cell(vport, "vport"), cell(vport, "sent"), cell(vport, "forwarded"),
                        cell(vport, "received"), cell(vport, "missed")});
    }
    const json& lacp = cotenant.at("lacp");
    rows.push_back({"LACP", cell(lacp, "sent"), "", cell(lacp, "received"), cell(lacp, "missed")});
    return table(rows) +
           fmt::format("  foreign {}, queue full {}\n", cell(cotenant, "foreign"), cell(cotenant, "queue_full"));
}

// Nothing where there is none, and of a NIC that is older than this drnic.
std::string captures_text(const json& answer) {
    const json captures = answer.value("captures", json::array());
    if (captures.empty()) return "";
    std::vector<Row> rows{{"device", "vport", "direction", "seen", "accepted", "dropped", "process", "filter"}};
    for (const json& capture : captures) {
        rows.emplace_back();
        for (const std::string& name : rows.front()) rows.back().push_back(cell(capture, name.c_str()));
    }
    return "captures\n" + table(rows);
}

}  // namespace

std::string list_table(const json& answer) {
    std::string text;
    for (const json& device : answer.at("devices")) {
        text += fmt::format("{} ({}, GUID {})\n", cell(device, "name"), cell(device, "profile"), cell(device, "guid"));
        std::vector<Row> rows{{"vport", "name", "admin", "link", "mtu", "mac", "dpdk"}};
        for (const json& vport : device.at("vports")) {
            rows.push_back({cell(vport, "vport"), cell(vport, "name"), cell(vport, "admin"), cell(vport, "link"),
                            cell(vport, "mtu"), cell(vport, "mac"), cell(vport, "dpdk")});
        }
        text += table(rows);
        for (const json& vport : device.at("vports")) {
            for (const json& port : vport.value("lag", json::array())) {
                text += fmt::format("  vport {}: port {} of the LAG is {}\n", cell(vport, "vport"), cell(port, "port"),
                                    cell(port, "link"));
            }
            if (vport.contains("error"))
                text += fmt::format("  vport {}: {}\n", cell(vport, "vport"), cell(vport, "error"));
        }
    }
    return text + captures_text(answer);
}

std::string stats_table(const json& answer) {
    std::string text;
    for (const json& device : answer.at("devices")) {
        text += cell(device, "name") + '\n';
        std::vector<Row> rows{{"vport", "name", "received", "bytes", "sent", "bytes", "rx drops", "tx drops",
                               "oversize", "down", "overruns"}};
        for (const json& vport : device.at("vports")) {
            rows.push_back(counters_row(cell(vport, "vport"), cell(vport, "name"), vport));
            for (const json& port : vport.value("lag", json::array())) {
                rows.push_back(counters_row("", fmt::format("port {}", cell(port, "port")), port));
            }
        }
        text += table(rows) + "  dropped in the eSwitch:";
        for (const auto& [reason, count] : device.at("drops").items())
            text += fmt::format(" {} {}", reason, count.dump());
        text += '\n';
        // A NIC that is older than this drnic has none.
        if (const auto cache = device.find("flow_cache"); cache != device.end()) {
            text += fmt::format("  flow caches: hits {} misses {}\n", cell(*cache, "hits"), cell(*cache, "misses"));
        }
        if (device.contains("cotenant")) text += cotenant_text(device.at("cotenant"));
    }
    std::size_t index = 0;
    for (const json& worker : answer.at("workers")) text += worker_line(index++, worker) + queues_text(worker);
    return text + captures_text(answer);
}

std::string limits_table(const json& answer) {
    std::string text;
    for (const json& device : answer.at("devices")) {
        std::vector<Row> rows{{"", "taken", "at most"}};
        for (const auto& [name, row] : device.at("limits").items()) {
            rows.push_back({name, cell(row, "taken"), row.at("most").is_null() ? "" : cell(row, "most")});
        }
        text += cell(device, "name") + '\n' + table(rows);
    }
    return text;
}

std::string faults_table(const json& answer) {
    std::string text;
    for (const json& call : answer.at("calls")) text += call.get<std::string>() + '\n';
    for (const json& fault : answer.at("armed")) {
        text += fmt::format("armed: {} fails with {}, {} from now\n", fault.at("call").get<std::string>(),
                            fault.at("errno").dump(), fault.at("nth").dump());
    }
    return text;
}

}  // namespace ovsdr::drnic
