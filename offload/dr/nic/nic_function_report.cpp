// What people are told of a plain function.
#include <fmt/format.h>

#include <algorithm>

#include "offload/dr/device/leak.hpp"
#include "offload/dr/nic/nic_function.hpp"
#include "offload/dr/table_use.hpp"

namespace ovsdr::dr {

namespace {

std::string text_of(const Ufid& ufid) {
    return fmt::format("ufid:{:08x}-{:04x}-{:04x}-{:04x}-{:012x}", ufid[0] >> 32, (ufid[0] >> 16) & 0xFFFF,
                       ufid[0] & 0xFFFF, ufid[1] >> 48, ufid[1] & 0xFFFFFFFFFFFFULL);
}

using Tables = std::vector<std::pair<const char*, const MatcherSet*>>;

std::string text_of(const Tables& tables) {
    std::string text;
    for (const auto& [name, table] : tables) {
        const auto rows = table->rows();
        text += fmt::format("{} level {}: {} ({} matchers)\n", name_of(table->table().domain()->type()),
                            table->table().level(), name, rows.size());
        for (const MatcherSet::Row& row : rows) {
            text += fmt::format("  matcher #{} priority {}, {} rules: {}\n", row.number, row.spec.priority, row.rules,
                                text_of(row.spec.mask));
        }
    }
    return text;
}

/// One table leads to the next; the last to `end`.
void draw(Graph& graph, const Tables& tables, const char* from, const char* end) {
    std::string before = from;
    unsigned before_matcher = 0;
    for (const auto& [name, table] : tables) {
        const char* domain = name_of(table->table().domain()->type());
        const std::string node = fmt::format("{} {}", domain, table->table().level());
        Graph::Table& drawn = graph.tables[node];
        drawn = {domain, table->table().level(), name};
        for (const MatcherSet::Row& row : table->rows()) {
            drawn.matchers.push_back({row.number, row.spec.priority, row.rules, text_of(row.spec.mask)});
        }
        graph.edges[{before, before_matcher, node}] = {};
        before = node;
    }
    graph.edges[{before, before_matcher, end}] = {};
}

}  // namespace

std::uint64_t NicFunction::sent_up() const noexcept {
    return past_misses_ + (port_ != nullptr ? ReceiveSide::led_up(port_->queue) : 0);
}

PlainFunction::Counts NicFunction::counts() noexcept {
    drop_counters_->bring_up_to_date();
    mark_counters_->bring_up_to_date();
    Counts counts{.received_dropped = drop_counters_->total().packets,
                  .received_marked = mark_counters_->total().packets,
                  .received_down = port_counters_->read_now(received_down_).packets,
                  .sent_down = port_counters_->read_now(sent_down_).packets};
    const std::lock_guard changes(port_changes_);
    if (port_ != nullptr && port_->sent) counts.sent = port_counters_->read_now(port_->sent).packets;
    return counts;
}

Eswitch::Totals NicFunction::totals() const noexcept {
    drop_counters_->bring_up_to_date();
    const FlowStats dropped = drop_counters_->total();
    // What is marked is sent up later: the other way round, packets under way would be too many.
    mark_counters_->bring_up_to_date();
    const std::uint64_t marked = mark_counters_->total().packets;
    std::uint64_t up = 0;
    {
        const std::lock_guard changes(port_changes_);
        up = sent_up();
    }
    const std::lock_guard lock(kept_mutex_);
    return {reasons_.count(ReasonTable::Kind::offloaded),
            reasons_.count(ReasonTable::Kind::rejected),
            reasons_.count(ReasonTable::Kind::failed),
            dropped.packets,
            dropped.bytes,
            up - std::min(up, marked),
            kept_.size()};
}

std::vector<Eswitch::TableUse> NicFunction::table_use() const {
    std::vector<const MatcherSet*> tables;
    for (const auto& [name, table] : receive_->tables()) tables.push_back(table);
    for (const auto& [name, table] : send_->tables()) tables.push_back(table);
    return table_use_of(tables);
}

std::string NicFunction::rule_text(const Flow& flow) const {
    const FlowStats stats = flow.now.counter.read();
    const std::string count = fmt::format("count#{}(packets={}, bytes={})", flow.now.counter.id(), stats.packets,
                                          stats.bytes);
    return fmt::format("NIC_RX megaflows matcher #{} {} actions: {}, {}", flow.now.rule.matcher().number(),
                       text_of(flow.plan->match.mask, flow.plan->match.value), count,
                       flow.now.tag == 0 ? "drop" : fmt::format("tag {:#x}, to the port's queues", flow.now.tag));
}

FlowReport NicFunction::report_of(const Flow& flow, const PortNames& names) const {
    flow.now.counter.bring_up_to_date();
    FlowReport report{flow.ufid, static_cast<bool>(flow.now.rule), {}, {}, {}, stats_of(flow)};
    if (flow.now.rule) {
        report.text = rule_text(flow);
        report.program.push_back(report.text);
        if (flow.now.tag != 0) report.program.emplace_back("the actions in software, for what has the megaflow's mark");
        return report;
    }
    if (!flow.failure.empty()) {
        report.reasons.push_back("device error: " + flow.failure);
    } else if (const auto plan = compiled(flow); !plan) {
        for (const Obstacle& obstacle : plan.error().obstacles) report.reasons.push_back(dr::text_of(obstacle, names));
    }
    report.text = fmt::format("{}", fmt::join(report.reasons, "; "));
    return report;
}

std::optional<FlowReport> NicFunction::explain(const Ufid& ufid, const PortNames& names) const {
    const std::shared_lock map_lock(ports_mutex_);
    const Shard& shard = shard_of(ufid);
    const std::lock_guard lock(shard.mutex);
    const Flow* const flow = shard.flows.find(ufid);
    return flow == nullptr ? std::nullopt : std::optional(report_of(*flow, names));
}

std::vector<Eswitch::ReasonCount> NicFunction::reasons(std::span<const InSoftware> in_software) const {
    ReasonTable::Packets packets;
    for (const InSoftware& megaflow : in_software) {
        const Shard& shard = shard_of(megaflow.ufid);
        const std::lock_guard lock(shard.mutex);
        const Flow* const flow = shard.flows.find(megaflow.ufid);
        if (flow != nullptr) reasons_.add(flow->reason, megaflow.packets, packets);
    }
    return reasons_.counts(packets);
}

std::string NicFunction::show(bool verbose, const PortNames& names) const {
    const Totals sums = totals();
    const Counts done = const_cast<NicFunction*>(this)->counts();   // the device is asked
    std::uint64_t up = 0;
    {
        const std::lock_guard changes(port_changes_);
        up = sent_up();
    }
    std::string text = fmt::format(
        "device {}: steering format {}, a plain function without an eSwitch, {}\n"
        "megaflows: {} offloaded, {} rejected, {} failed\n"
        "NIC_RX: {} packets dropped by megaflows, {} marked, {} sent up, {} dropped while down\n"
        "NIC_TX: {} packets sent, {} dropped while down\n",
        device(), caps_.steering_format, is_up() ? "up" : "down", sums.offloaded, sums.rejected, sums.failed,
        done.received_dropped, done.received_marked, up, done.received_down, done.sent, done.sent_down);
    if (leaked_objects() != 0) text += fmt::format("objects that the device would not destroy: {}\n", leaked_objects());
    {
        const std::lock_guard changes(port_changes_);
        if (port_ != nullptr) {
            text += fmt::format("port {}: the function itself, slow-path SQ {:#x}{}\n", port_->spec.name,
                                port_->spec.slow_path_sqn,
                                port_->spec.vlan != 0 ? fmt::format(", VLAN {}", port_->spec.vlan) : "");
        }
        text += text_of(receive_->tables()) + text_of(send_->tables());
    }
    if (!verbose) return text;
    const std::shared_lock map_lock(ports_mutex_);
    for (const Shard& shard : shards_) {
        const std::lock_guard lock(shard.mutex);
        shard.flows.for_each([&](const Flow& flow) {
            const FlowReport report = report_of(flow, names);
            text += fmt::format("{} {}{}\n", text_of(flow.ufid), report.offloaded ? "" : "not offloaded: ",
                                report.text);
        });
    }
    return text;
}

Graph NicFunction::graph() const {
    Graph graph{.device = std::string(device())};
    graph.places = {{"wire", "what the NIC gives the function"},
                    {"slow path", "Open vSwitch:\nthe slow path"},
                    {"sent", "Open vSwitch:\nwhat it sends"},
                    {"out", "the NIC"}};
    draw(graph, receive_->tables(), "wire", "slow path");
    draw(graph, send_->tables(), "sent", "out");
    return graph;
}

}  // namespace ovsdr::dr
