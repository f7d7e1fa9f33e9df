#include "tools/drcompile/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

namespace ovsdr::drcompile {
namespace {

using nlohmann::json;

std::string text_of(const Place& place) { return fmt::format("{}:{}", place.file, place.line); }

void add(Summary::Share& share, const Input::Megaflow& megaflow) {
    ++share.megaflows;
    share.packets += megaflow.packets.value_or(0);
}

/// Reasons by the words that are written down in the source, each once.
std::vector<std::pair<std::string, std::string>> reasons_of(const Verdict& verdict) {
    std::vector<std::pair<std::string, std::string>> reasons;
    for (const dr::Obstacle& obstacle : verdict.obstacles) {
        std::pair<std::string, std::string> reason{dr::name_of(obstacle.reason).text(), obstacle.name.text()};
        if (std::ranges::count(reasons, reason) == 0) reasons.push_back(std::move(reason));
    }
    return reasons;
}

std::vector<std::string> texts_of(const Verdict& verdict, const Ports& ports) {
    std::vector<std::string> texts;
    for (const dr::Obstacle& obstacle : verdict.obstacles) texts.push_back(dr::text_of(obstacle, ports.names()));
    return texts;
}

std::string name_of(dr::OdpPort port, const Ports& ports) {
    const auto known = ports.names().find(port);
    return known != ports.names().end() ? known->second : std::to_string(port.value);
}

std::string table_text(dr::TableKey table, const Ports& ports) {
    if (table.tunnel_port == 0) return dr::text_of(table);
    const std::string port = name_of(dr::OdpPort{table.tunnel_port}, ports);
    return table.recirc_id == 0 ? port : fmt::format("recirc_id {:#x} of {}", table.recirc_id, port);
}

std::string match_text(const dr::RulePlan& plan) { return dr::text_of(plan.match.mask, plan.match.value); }

std::string actions_text(const dr::RulePlan& plan) { return "count, " + dr::text_of(plan.path); }

std::string percent(std::uint64_t part, std::uint64_t whole) {
    if (whole == 0) return "none";
    return fmt::format("{:.1f} %", 100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

json json_of(const Ports& ports) {
    json all = json::array();
    for (const Ports::Port& port : ports.all()) {
        all.push_back({{"name", port.text}, {"vport", port.vport ? json(port.vport->value) : json(nullptr)}});
    }
    return all;
}

json json_of(const Input::Megaflow& megaflow, const Verdict& verdict, const Ports& ports) {
    json row{{"file", megaflow.place.file}, {"line", megaflow.place.line}, {"offloaded", verdict.plan.has_value()}};
    if (!megaflow.ufid.empty()) row["ufid"] = megaflow.ufid;
    if (verdict.plan) {
        const dr::TableKey table = verdict.plan->match.table;
        row["table"] = {{"recirc_id", table.recirc_id}, {"level", verdict.level}};
        if (table.tunnel_port != 0) row["table"]["tunnel_port"] = name_of(dr::OdpPort{table.tunnel_port}, ports);
        row["match"] = match_text(*verdict.plan);
        row["actions"] = actions_text(*verdict.plan);
    } else {
        row["reasons"] = texts_of(verdict, ports);
    }
    return row;
}

json json_of(const Summary& summary) {
    json share{{"megaflows", summary.all.megaflows}, {"offloaded", summary.offloaded.megaflows}};
    if (summary.has_packets) {
        share["packets"] = summary.all.packets;
        share["offloaded_packets"] = summary.offloaded.packets;
    }
    json rows = json::array();
    for (const Summary::Row& row : summary.rows) {
        rows.push_back({{"reason", row.reason}, {"detail", row.detail}, {"megaflows", row.all.megaflows},
                        {"only", row.only}});
        if (summary.has_packets) rows.back()["packets"] = row.all.packets;
    }
    share["reasons"] = std::move(rows);
    return share;
}

}  // namespace

Summary summary_of(const Report& report) {
    Summary summary;
    std::map<std::pair<std::string, std::string>, Summary::Row> rows;
    for (std::size_t i = 0; i < report.verdicts.size(); ++i) {
        const Input::Megaflow& megaflow = report.input.megaflows()[i];
        const Verdict& verdict = report.verdicts[i];
        summary.has_packets |= megaflow.packets.has_value();
        add(summary.all, megaflow);
        if (verdict.plan) add(summary.offloaded, megaflow);
        const auto reasons = reasons_of(verdict);
        for (const auto& reason : reasons) {
            Summary::Row& row = rows.try_emplace(reason, Summary::Row{reason.first, reason.second, {}}).first->second;
            add(row.all, megaflow);
            row.only += reasons.size() == 1;
        }
    }
    for (auto& [reason, row] : rows) summary.rows.push_back(std::move(row));
    std::ranges::stable_sort(summary.rows, std::greater{}, [](const Summary::Row& row) { return row.all.megaflows; });
    return summary;
}

std::string ports_text(const Report& report) {
    std::string dr_ports, mirrors, others;
    for (const Ports::Port& port : report.input.ports().all()) {
        if (port.vport) {
            dr_ports += fmt::format("{}{} = {}", dr_ports.empty() ? "" : ", ", port.text, text_of(*port.vport));
        } else if (port.mirror) {
            mirrors += fmt::format("{}{} = mirror {}", mirrors.empty() ? "" : ", ", port.text, *port.mirror);
        } else {
            others += fmt::format("{}{}", others.empty() ? "" : ", ", port.text);
        }
    }
    if (!mirrors.empty()) mirrors = "storage mirrors: " + mirrors + "\n";
    return fmt::format("profile: {}\ndr ports: {}\n{}other ports: {}\n", report.profile,
                       dr_ports.empty() ? "none" : dr_ports, mirrors, others.empty() ? "none" : others);
}

std::string megaflows_text(const Report& report) {
    std::string text;
    for (std::size_t i = 0; i < report.verdicts.size(); ++i) {
        const Input::Megaflow& megaflow = report.input.megaflows()[i];
        const Verdict& verdict = report.verdicts[i];
        const std::string ufid = megaflow.ufid.empty() ? "" : " ufid:" + megaflow.ufid;
        text += fmt::format("{}:{} {}\n", text_of(megaflow.place), ufid,
                            verdict.plan ? "offloaded" : "not offloaded");
        if (verdict.plan) {
            text += fmt::format("  FDB table of {}, level {}: {}\n  actions: {}\n",
                                table_text(verdict.plan->match.table, report.input.ports()), verdict.level,
                                match_text(*verdict.plan), actions_text(*verdict.plan));
        }
        for (const std::string& reason : texts_of(verdict, report.input.ports())) text += fmt::format("  {}\n", reason);
    }
    return text;
}

std::string summary_text(const Summary& summary) {
    std::string text = fmt::format("megaflows: {}, offloaded: {} ({})\n", summary.all.megaflows,
                                   summary.offloaded.megaflows,
                                   percent(summary.offloaded.megaflows, summary.all.megaflows));
    if (summary.has_packets) {
        text += fmt::format("packets: {}, of offloaded megaflows: {} ({})\n", summary.all.packets,
                            summary.offloaded.packets, percent(summary.offloaded.packets, summary.all.packets));
    }
    if (summary.rows.empty()) return text;
    text += "one that is not offloaded is counted under each of its reasons; \"only\": it has no other\n";
    text += fmt::format("{:>10} {:>10}{}  megaflows\n", "all", "only", summary.has_packets ? "    packets" : "");
    for (const Summary::Row& row : summary.rows) {
        text += fmt::format("{:>10} {:>10}", row.all.megaflows, row.only);
        if (summary.has_packets) text += fmt::format(" {:>10}", row.all.packets);
        text += fmt::format("  {}: {}\n", row.reason, row.detail);
    }
    return text;
}

std::string text_of(const Input::Fault& fault) { return fmt::format("{}: {}", text_of(fault.place), fault.what); }

json json_of(const Report& report, bool whole) {
    json all{{"profile", report.profile}, {"ports", json_of(report.input.ports())},
             {"summary", json_of(summary_of(report))}, {"faults", json::array()}};
    for (const Input::Fault& fault : report.input.faults()) {
        all["faults"].push_back({{"file", fault.place.file}, {"line", fault.place.line}, {"what", fault.what}});
    }
    if (!whole) return all;
    all["megaflows"] = json::array();
    for (std::size_t i = 0; i < report.verdicts.size(); ++i) {
        all["megaflows"].push_back(json_of(report.input.megaflows()[i], report.verdicts[i], report.input.ports()));
    }
    return all;
}

}  // namespace ovsdr::drcompile
