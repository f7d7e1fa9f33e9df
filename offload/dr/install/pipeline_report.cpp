// What a Pipeline tells people of its tables, as text and as a drawing.
#include <fmt/format.h>

#include <deque>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "offload/dr/install/pipeline.hpp"
#include "offload/dr/table_use.hpp"

namespace ovsdr::dr {

namespace {

// Names of nodes that are no table of megaflows.
constexpr const char *root = "root", *send = "send", *miss = "miss", *slow_path = "slow path", *copied = "copies",
                     *manager = "manager";
/// Of copies that go up: "up copies", "up host copies", "up mirror 0".
std::string copied_up(CopyKind kind) {
    if (is_mirror(kind)) return fmt::format("up {}", name_of(kind));
    return kind == CopyKind::host ? "up host copies" : "up copies";
}

std::string title_of_copies(CopyKind kind) {
    if (is_mirror(kind)) return fmt::format("copies for {} that go up", name_of(kind));
    return kind == CopyKind::host ? "copies for the host that go up" : "copies that go up";
}

std::string landing_node(std::uint32_t level) { return fmt::format("up {}", level); }

void lead(Graph& graph, const std::string& from, const Graph::Matcher& matcher, const std::string& to,
          std::optional<std::uint64_t> packets = {}) {
    graph.edges[{from, matcher.number, to}] = {matcher.rules, packets};
}

void lead_copies_up(Graph& graph, const std::string& from, CopyKind kind, const Graph::Matcher& matcher) {
    if (!is_mirror(kind)) return lead(graph, from, matcher, slow_path);
    const std::string mirror = Landing::drops_copies(kind, matcher.priority) ? "drop" : name_of(kind);
    graph.places[mirror] = mirror == "drop" ? "drop" : "storage " + mirror;
    lead(graph, from, matcher, mirror);
}

/// The rules of a plan, one after another: the megaflow's own first, then those of private tables.
class RuleLines {
public:
    using NumberOf = std::function<std::uint32_t(TableKey)>;
    using IdOf = std::function<std::uint32_t(const SoftwareCopy&)>;
    RuleLines(NumberOf number_of, IdOf id_of, bool rules_end_in_meters)
        : number_of_(std::move(number_of)), id_of_(std::move(id_of)), rules_end_in_meters_(rules_end_in_meters) {}

    /// What the path does, with numbers for the tables that it leads to.
    std::string actions(const Path& path, unsigned depth) {
        std::string changes = text_of(path.changes);
        if (path.meter) {
            const char* const which_path = rules_end_in_meters_ ? "set metadata_reg_c_1, " : "";
            changes = fmt::format("{}meter {}", which_path, path.meter->number);
        }
        if (path.software) changes = copy(*path.software);
        if (path.is_copy()) return changes;
        std::vector<std::string> ends;
        for (const VportId vport : path.vports) ends.push_back(fmt::format("dest_vport {}", vport.value));
        for (const TableKey table : path.tables) {
            ends.push_back(fmt::format("dest_table {} ({})", number_of_(table), Pipeline::node_of(table)));
        }
        for (const Path& branch : path.branches) {
            left_.push_back({&branch, depth + 1, path.meter.has_value()});
            ends.push_back(fmt::format("dest_table branch {}", ++numbered_));
        }
        if (!changes.empty()) changes += ", ";
        if (ends.empty()) return changes + "drop";
        if (ends.size() == 1) return changes + ends.front();
        return changes + fmt::format("dest_array [{}]", fmt::join(ends, ", "));
    }

    void append_branches(std::vector<std::string>& lines, std::uint32_t level, VportId source) {
        for (unsigned number = 1; !left_.empty(); ++number) {
            const auto [path, depth, is_metered] = left_.front();
            left_.pop_front();
            const bool of_meter = is_metered && rules_end_in_meters_;
            lines.push_back(fmt::format("FDB branch {}, level {}: a {} table", number, level + depth,
                                        of_meter ? "meter's" : "private"));
            const char* colour = of_meter     ? ", metadata_reg_c_1, metadata_reg_c_5"
                                 : is_metered ? ", metadata_reg_c_5"
                                              : "";
            lines.push_back(fmt::format("  matcher priority 0: {{source_port{}}}, 1 rule", colour));
            lines.push_back(fmt::format("  rule: {{source_port={:#x}{}}}", source.value, is_metered ? ", green" : ""));
            lines.push_back("  actions: " + actions(*path, depth));
            if (!is_metered) continue;
            lines.push_back(of_meter ? "  matcher priority 1: {}, 1 rule"
                                     : "  matcher priority 1: {source_port}, 1 rule");
            lines.push_back(of_meter ? "  rule: {}" : fmt::format("  rule: {{source_port={:#x}}}", source.value));
            lines.push_back("  actions: drop");
        }
    }

    /// How the copies come up.
    void append_landing(std::vector<std::string>& lines) const {
        for (const auto& [id, kind] : ids_) {
            const char* const whose = is_mirror(kind) ? name_of(kind) : "copies";
            lines.push_back(fmt::format("NIC_RX level 1: {{metadata_reg_c_1={:#x}}}: tag {:#x}, to the queue for {}",
                                        Landing::mark_of(id), id, whose));
        }
    }

private:
    std::string copy(const SoftwareCopy& copy) {
        const std::uint32_t id = id_of_(copy);
        ids_.emplace(id, copy.work.kind);
        const std::string how = copy.samples()
                                    ? fmt::format("sampler (1 of {}: default_miss)", copy.one_of)
                                    : fmt::format("dest_table (level {}: default_miss)", Pipeline::miss_level);
        return fmt::format("set metadata_reg_c_1={:#x}, {} ({})", Landing::mark_of(id), how, text_of(copy));
    }

    NumberOf number_of_;
    IdOf id_of_;
    bool rules_end_in_meters_;
    std::map<std::uint32_t, CopyKind> ids_;   ///< of works
    struct Branch {
        const Path* path;
        unsigned depth;
        bool is_metered;
    };
    std::deque<Branch> left_;
    unsigned numbered_ = 0;
};

}  // namespace

std::vector<std::string> Pipeline::program_of(const RulePlan& plan, const Rule& rule, const std::string& count) const {
    const auto table = find(plan.match.table);
    if (table == nullptr) return {};
    const auto title = [](const FlowTable& each) {
        return fmt::format("FDB table {}, level {}: megaflows at {}", each.id(), each.level(), node_of(each.key()));
    };
    std::vector<std::string> lines{title(*table)};
    for (const MatcherSet::Row& row : table->matchers().rows()) {
        if (row.number != rule.matcher().number()) continue;
        lines.push_back(fmt::format("  matcher #{} priority {}: {}, {} rules", row.number, row.spec.priority,
                                    text_of(row.spec.mask), row.rules));
    }
    RuleLines rules([this](TableKey key) { return table_id(key); },
                    [this](const SoftwareCopy& copy) { return works_->id_of(copy); }, meters_->rules_end_in_meters());
    lines.push_back("  rule: " + text_of(plan.match.mask, plan.match.value));
    lines.push_back(fmt::format("  actions: {}, {}", count, rules.actions(plan.path, 0)));
    rules.append_branches(lines, table->level(), plan.match.source);
    rules.append_landing(lines);
    std::set<TableKey> behind;
    plan.path.for_each_table([&](TableKey key, unsigned) { behind.insert(key); });
    for (const TableKey key : behind) {
        const auto next = find(key);
        if (next == nullptr) continue;
        const std::uint32_t mark = Landing::mark_of(next->id());
        lines.push_back(title(*next));
        lines.push_back(fmt::format("  {} matchers; what misses: set metadata_reg_c_1={:#x}, dest_table (level {}: "
                                    "default_miss)", next->matchers().rows().size(), mark, miss_level));
        lines.push_back(fmt::format("NIC_RX level 1: {{metadata_reg_c_1={:#x}}}: tag {:#x}, to the port's queue", mark,
                                    next->id()));
    }
    return lines;
}

std::string Pipeline::node_of(TableKey key) { return text_of(key); }

std::string Pipeline::node_of_copy(const SoftwareCopy& copy) { return copy.samples() ? landing_node(0) : copied; }

std::vector<Pipeline::TableView> Pipeline::views() const {
    const auto matchers_of = [](const std::shared_ptr<FlowTable>& table) {
        return std::shared_ptr<const MatcherSet>(table, &table->matchers());
    };
    std::vector<TableView> views{{root, "root, what enters", fdb_root_},
                                 {send, "what the slow path sends", send_},
                                 {node_of({}), "megaflows", matchers_of(entry_)}};
    for (const auto& table : tables_->tables()) {
        const char* where = table->key().recirc_id != 0 ? "behind" : "of";
        views.push_back({node_of(table->key()), fmt::format("megaflows {} {}", where, node_of(table->key())),
                         matchers_of(table)});
    }
    views.push_back({miss, "misses", miss_});
    if (const auto table = roce_->table()) views.push_back({manager, "the manager function's own RoCE", table});
    for (const auto& [name, table] : landing_->tables()) {
        views.push_back({landing_node(table->table().level()), name, table->shared_from_this()});
    }
    if (const auto table = works_->table()) {
        views.push_back({copied, "copies for software", table});
    }
    for (const CopyKind kind : all_copy_kinds) {
        const auto table = landing_->copies(kind);
        if (table != nullptr) views.push_back({copied_up(kind), title_of_copies(kind), table});
    }
    return views;
}

std::string Pipeline::text() const {
    std::string text;
    for (const TableView& view : views()) {
        const auto rows = view.table->rows();
        text += fmt::format("{} level {}: {} ({} matchers)\n", name_of(view.table->table().domain()->type()),
                            view.table->table().level(), view.name, rows.size());
        for (const MatcherSet::Row& row : rows) {
            text += fmt::format("  matcher #{} priority {}, {} rules: {}\n", row.number, row.spec.priority, row.rules,
                                text_of(row.spec.mask));
        }
    }
    return text;
}

std::vector<Eswitch::TableUse> Pipeline::use() const {
    const auto shown = views();   // keeps the tables
    std::vector<const MatcherSet*> tables;
    for (const TableView& view : shown) tables.push_back(view.table.get());
    return table_use_of(tables);
}

void Pipeline::lead_in(Graph& graph, const Graph::Matcher& matcher) const {
    if (matcher.priority == root_vport_priority) return lead(graph, root, matcher, node_of({}));
    if (matcher.mask.find("source_sqn") != std::string::npos) return lead(graph, root, matcher, send);
    lead(graph, root, matcher, manager);
    if (roce_->copies(matcher.mask)) lead(graph, root, matcher, node_of({}));
}

void Pipeline::draw(Graph& graph, const FlowStats& misses) const {
    for (const TableView& view : views()) {
        Graph::Table& table = graph.tables[view.node];
        table = {name_of(view.table->table().domain()->type()), view.table->table().level(), view.name};
        for (const MatcherSet::Row& row : view.table->rows()) {
            table.matchers.push_back({row.number, row.spec.priority, row.rules, text_of(row.spec.mask)});
        }
    }
    graph.places["ports"] = "packets from the ports";
    graph.places["sent"] = "Open vSwitch:\nwhat it sends";
    graph.places["queue's port"] = "the queue's port";
    graph.places[slow_path] = "Open vSwitch:\nthe slow path";
    graph.edges[{"ports", 0, root}] = graph.edges[{"sent", 0, root}] = {};
    for (const auto& [node, table] : graph.tables) {
        const bool is_landing = node.starts_with("up ");
        const std::string next_landing = landing_node(table.level + 1);
        for (const Graph::Matcher& matcher : table.matchers) {
            if (node == root) {
                lead_in(graph, matcher);
            } else if (node == send) {
                lead(graph, node, matcher, "queue's port");
            } else if (node == miss) {
                lead(graph, node, matcher, landing_node(0), misses.packets);
            } else if (node == copied) {
                lead(graph, node, matcher, landing_node(0));
            } else if (node == manager) {
                graph.places["its RoCE"] = "the manager function:\nits own RoCE";
                lead(graph, node, matcher, "its RoCE", roce_->led());
            } else if (const auto of_kind = std::ranges::find(all_copy_kinds, node, copied_up);
                       of_kind != all_copy_kinds.end()) {
                lead_copies_up(graph, node, *of_kind, matcher);
            } else if (is_landing) {
                lead(graph, node, matcher, graph.tables.contains(next_landing) ? next_landing : slow_path);
                for (const CopyKind kind : all_copy_kinds) {
                    if (table.level == 1 && landing_->copies(kind) != nullptr) {
                        lead(graph, node, matcher, copied_up(kind));
                    }
                }
            } else if (matcher.priority != FlowTable::megaflow_priority) {
                lead(graph, node, matcher, miss);
            }
        }
    }
}

}  // namespace ovsdr::dr
