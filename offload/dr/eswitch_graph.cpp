// EswitchImpl::graph(): what the megaflows in the device add to the pipeline's drawing.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "offload/dr/eswitch_impl.hpp"

namespace ovsdr::dr {

namespace {

/// Megaflows whose rules have one matcher and one list of actions: they lead to the same places.
struct Group {
    std::weak_ptr<const std::vector<ActionRef>> actions;   ///< no other list has their address while this is here
    TableKey table;
    unsigned matcher;
    VportId source;
    Path path;
    std::uint64_t rules = 0, packets = 0;
};

/// There are far fewer groups than megaflows, and only their first is compiled.
using Groups = std::map<std::tuple<const mlx5dv_dr_matcher*, unsigned, const void*>, Group>;

class Drawing {
public:
    /// `exceeding`: packets that each meter has dropped.
    Drawing(Graph& graph, std::map<std::uint32_t, std::uint64_t> exceeding)
        : graph_(graph), exceeding_(std::move(exceeding)) {}

    void add(const Group& group, const std::map<VportId, std::string>& ports) {
        ports_ = &ports;
        const std::string node = Pipeline::node_of(group.table);
        const auto table = graph_.tables.find(node);
        if (table == graph_.tables.end()) return;
        for (Graph::Matcher& matcher : table->second.matchers) {
            if (matcher.number == group.matcher) matcher.packets += group.packets;
        }
        lead(group, node, group.matcher, group.path, group.rules, 0);
    }

private:
    /// `rules` of the node lead along the path.
    void lead(const Group& group, const std::string& from, unsigned matcher, const Path& path, std::uint64_t rules,
              unsigned depth) {
        std::set<std::string> ends;
        for (const VportId vport : path.vports) ends.insert(place_of(vport));
        for (const TableKey table : path.tables) ends.insert(Pipeline::node_of(table));
        if (path.software) ends.insert(Pipeline::node_of_copy(*path.software));
        if (path.ends() == 0 && !path.software) ends.insert(drop());
        const std::string branches = fmt::format("{} +{}", Pipeline::node_of(group.table), depth + 1);
        if (!path.branches.empty()) ends.insert(branches);
        for (const std::string& end : ends) {
            Graph::Traffic& traffic = graph_.edges[{from, matcher, end}];
            traffic.rules += rules;
            traffic.packets = traffic.packets.value_or(0) + group.packets;
        }
        for (const Path& branch : path.branches) {
            const bool is_new = private_tables_[branches].emplace(group.source, branch).second;
            Graph::Table& table = graph_.tables[branches];
            table.domain = "FDB";
            table.level = graph_.tables[Pipeline::node_of(group.table)].level + depth + 1;
            table.name = "private tables";
            table.private_tables = private_tables_[branches].size();
            if (path.meter && is_new) drop_exceeding(path.meter->number, branches);
            lead(group, branches, 0, branch, is_new ? 1 : 0, depth + 1);
        }
    }

    /// A meter may have several private tables: what it drops is drawn at the first.
    void drop_exceeding(std::uint32_t meter, const std::string& from) {
        Graph::Traffic& traffic = graph_.edges[{from, 0, drop()}];
        ++traffic.rules;
        const auto counted = exceeding_.extract(meter);
        traffic.packets = traffic.packets.value_or(0) + (counted ? counted.mapped() : 0);
    }

    std::string place_of(VportId vport) {
        std::string node = fmt::format("vport {}", vport.value);
        const auto port = ports_->find(vport);
        graph_.places[node] = port == ports_->end() ? node : fmt::format("{}\n{}", port->second, node);
        return node;
    }

    std::string drop() {
        graph_.places["drop"] = "drop";
        return "drop";
    }

    Graph& graph_;
    std::map<std::uint32_t, std::uint64_t> exceeding_;
    const std::map<VportId, std::string>* ports_ = nullptr;
    std::map<std::string, std::set<std::pair<VportId, Path>>> private_tables_;
};

std::string entrances_text(const std::map<VportId, std::string>& ports) {
    constexpr std::size_t most = 16;
    std::string text = "packets from the ports";
    std::size_t named = 0;
    for (const auto& [vport, name] : ports) {
        if (++named > most) return text + fmt::format("\nand {} more", ports.size() - most);
        text += fmt::format("\n{}, vport {}", name, vport.value);
    }
    return text;
}

/// The megaflows are not looked at all at once: of what came or went meanwhile there may be an end only.
void forget_loose_ends(Graph& graph) {
    const auto is_there = [&](const std::string& node, unsigned matcher) {
        const auto table = graph.tables.find(node);
        if (table == graph.tables.end()) return graph.places.contains(node);
        return matcher == 0 || std::ranges::count(table->second.matchers, matcher, &Graph::Matcher::number) != 0;
    };
    std::erase_if(graph.edges, [&](const auto& entry) {
        return !is_there(entry.first.from, entry.first.matcher) || !is_there(entry.first.to, 0);
    });
}

}  // namespace

Graph EswitchImpl::graph() const {
    const FlowStats misses = pipeline_->misses();
    counters_->bring_up_to_date();
    Groups groups;
    const auto map_lock = read_ports();
    for (const FlowShard& shard : shards_) {
        std::lock_guard lock(shard.mutex);
        shard.flows.for_each([&](const Flow& flow) {
            if (!flow.now.rule) return;
            const MatcherRef& matcher = flow.now.rule.matcher();
            const ActionList& actions = flow.now.rule.actions();
            Group& group = groups[{matcher.get(), matcher.number(), actions.get()}];
            if (group.rules == 0) {
                auto plan = compiled(flow.megaflow.restore());
                if (!plan) return;
                group = {actions, plan->match.table, matcher.number(), plan->match.source, std::move(plan->path)};
            }
            ++group.rules;
            group.packets += stats_of(flow).packets;
        });
    }
    Graph graph{.device = std::string(device())};
    pipeline_->draw(graph, misses);
    std::map<VportId, std::string> ports;
    for (const auto& port : ports_) ports[port->spec.vport] = port->spec.name;
    graph.places["ports"] = entrances_text(ports);
    std::map<std::uint32_t, std::uint64_t> exceeding;
    for (const MeterSet::Row& meter : pipeline_->meters().rows()) exceeding[meter.number] = meter.stats.dropped.packets;
    Drawing drawing(graph, std::move(exceeding));
    for (const auto& [key, group] : groups) {
        if (group.rules != 0) drawing.add(group, ports);
    }
    forget_loose_ends(graph);
    return graph;
}

}  // namespace ovsdr::dr
