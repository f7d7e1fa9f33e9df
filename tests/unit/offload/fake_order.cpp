#include <algorithm>
#include <cstring>
#include <span>

#include "offload/dr/device/match_param.hpp"
#include "tests/unit/offload/fake_objects.hpp"
#include "tests/unit/offload/fake_provider.hpp"

namespace ovsdr::test {
namespace {

using Table = mlx5dv_dr_table;
using Rule = mlx5dv_dr_rule;

struct Order {
    std::uint64_t now = 0;   ///< events
    std::map<std::pair<Table*, Table*>, unsigned> leads;   ///< rules of the first table that lead to the second
    std::map<std::uint32_t, std::uint64_t> mark_met_at;    ///< when packets could get a mark last
    std::uint64_t fdb_drained_at = 0;
};

Order& order() {
    static Order the_order;
    return the_order;
}

void violation(const std::string& what, const Rule& rule) {
    fake_state().violations.push_back(what + ": " + text_of_rule(rule));
}

Table& table_of(const Rule& rule) { return *static_cast<Table*>(rule.needs[0]->needs[0]); }
mlx5dv_dr_domain& domain_of(const Table& table) { return *static_cast<mlx5dv_dr_domain*>(table.needs[0]); }
bool is_fdb(const Table& table) { return domain_of(table).text == "FDB"; }

std::span<FakeObject* const> actions_of(const Rule& rule) { return std::span(rule.needs).subspan(1); }

bool is_written(const Rule& rule) {
    const Table& table = table_of(rule);
    return table.level == 0 || rule.created_at < domain_of(table).written_at;
}

std::uint32_t value_of(const Rule& rule, dr::prm::Field field) {
    dr::MatchParam value;
    std::copy_n(rule.match.begin(), std::min(rule.match.size(), value.bytes.size()), value.bytes.begin());
    return value.get(field);
}

template <typename Visit>
void for_each_rule(Visit&& visit) {
    for (FakeObject* object : fake_state().objects) {
        if (object->kind == "rule") visit(*static_cast<Rule*>(object));
    }
}

template <typename Visit>
void for_each_mark(const Rule& rule, Visit&& visit) {
    for (const FakeObject* action : actions_of(rule)) {
        const std::uint32_t mark = static_cast<const mlx5dv_dr_action*>(action)->mark;
        if (mark != 0 && is_fdb(table_of(rule))) visit(mark);
    }
}

/// Its packets come up with marks that NIC_RX knows.
void expect_known_marks(const Rule& rule) {
    for_each_mark(rule, [&](std::uint32_t mark) {
        bool known = false;
        for_each_rule([&](const Rule& other) {
            const bool of_mark = domain_of(table_of(other)).text == "NIC_RX" &&
                                 value_of(other, dr::field::metadata_reg_c_1) == mark;
            known = known || (of_mark && is_written(other));
        });
        if (!known) violation("packets get a mark that NIC_RX does not know yet", rule);
    });
}

/// Who sends from a queue waits until its rules are in the device.
bool lets_vports_in(const Rule& rule) {
    const Table& table = table_of(rule);
    return is_fdb(table) && table.level == 0 && value_of(rule, dr::field::source_sqn) == 0;
}

void opened(Table& table, const Rule& by) {
    const bool by_root = table_of(by).level == 0 && !(is_fdb(table) && !lets_vports_in(by));
    for_each_rule([&](const Rule& rule) {
        if (&table_of(rule) != &table) return;
        // What a rule of another table than the root opens is in the device before that rule is.
        if (by_root && !is_written(rule)) violation("packets get to a table before its rule is in the device", rule);
        expect_known_marks(rule);
    });
}

void shut(Table& table) {
    table.shut_at = order().now;
    for_each_rule([&](const Rule& rule) {
        if (&table_of(rule) != &table) return;
        for_each_mark(rule, [](std::uint32_t mark) { order().mark_met_at[mark] = order().now; });
    });
}

/// Opens and shuts tables when `cause` has come or gone.
void look_again(const Rule& cause) {
    std::set<Table*> reached;
    std::vector<Table*> next;
    for (const auto& [lead, rules] : order().leads) {
        if (lead.first->level == 0) next.push_back(lead.first);
    }
    while (!next.empty()) {
        Table* const table = next.back();
        next.pop_back();
        if (!reached.insert(table).second) continue;
        for (auto lead = order().leads.lower_bound({table, nullptr});
             lead != order().leads.end() && lead->first.first == table; ++lead) {
            next.push_back(lead->first.second);
        }
    }
    for (FakeObject* object : std::set(fake_state().objects)) {
        if (object->kind != "table" || object->level == 0) continue;
        auto& table = *static_cast<Table*>(object);
        if (std::exchange(table.open, reached.contains(&table)) == table.open) continue;
        if (table.open) {
            opened(table, cause);
        } else {
            shut(table);
        }
    }
}

void expect_drained_counters(const Rule& rule) {
    if (!is_fdb(table_of(rule))) return;   // what counts elsewhere is no megaflow's
    for (const FakeObject* action : actions_of(rule)) {
        const bool free = action->text.starts_with("count ") && action->users == 1;
        if (free && action->left_at > order().fdb_drained_at) {
            violation("a counter into which packets under way still count", rule);
        }
    }
}

/// Where megaflows are not.
void expect_no_other_of_its_match(const Rule& rule) {
    const Table& table = table_of(rule);
    const bool stands = table.level == 0 || (FakeProvider::has_eswitch && domain_of(table).text == "NIC_RX");
    const auto& rules = static_cast<const mlx5dv_dr_matcher*>(rule.needs[0])->rules;
    if (stands && rules.count(rule.match) > 1) violation("another rule has its match", rule);
}

void expect_nothing_unwritten_in_nic_rx(const Rule& cause) {
    for_each_rule([&](const Rule& rule) {
        if (domain_of(table_of(rule)).text != "NIC_RX" || is_written(rule)) return;
        violation("packets come in before what they come down to is in the device", cause);
    });
}

}  // namespace

void FakeOrder::created(Rule& rule) {
    rule.created_at = ++order().now;
    Table& table = table_of(rule);
    expect_drained_counters(rule);
    expect_no_other_of_its_match(rule);
    if (table.open || table.level == 0) expect_known_marks(rule);
    if (lets_vports_in(rule)) expect_nothing_unwritten_in_nic_rx(rule);
    bool is_first = false;
    for (const FakeObject* action : actions_of(rule)) {
        for (Table* to : static_cast<const mlx5dv_dr_action*>(action)->leads_to) {
            is_first = order().leads[{&table, to}]++ == 0 || is_first;
        }
    }
    if (is_first) look_again(rule);
}

void FakeOrder::destroying(Rule& rule) {
    const std::uint64_t now = ++order().now;
    Table& table = table_of(rule);
    // By packets, for the last time.
    const std::uint64_t met_at = table.open || table.level == 0 ? now : table.shut_at;
    auto& rules = static_cast<mlx5dv_dr_matcher*>(rule.needs[0])->rules;
    const auto [begin, end] = rules.equal_range(rule.match);
    for (auto other = begin; other != end; ++other) {
        const Rule& successor = *other->second;
        // A megaflow's rules count into one counter.
        const bool replaces = successor.created_at > rule.created_at && successor.needs[1] == rule.needs[1] &&
                              successor.created_at > domain_of(table).asked_at && table.level != 0;
        if (replaces && is_written(rule)) {
            violation("a rule goes before the one that replaces it is in the device", rule);
        }
    }
    for_each_mark(rule, [met_at](std::uint32_t mark) {
        order().mark_met_at[mark] = std::max(order().mark_met_at[mark], met_at);
    });
    const std::uint32_t mark = value_of(rule, dr::field::metadata_reg_c_1);
    if (domain_of(table).text == "NIC_RX" && mark >= 1U << 24 && mark % (1U << 24) != 0) {
        bool is_met = order().mark_met_at[mark] > order().fdb_drained_at;
        for_each_rule([&](const Rule& other) {
            for_each_mark(other, [&](std::uint32_t its) { is_met = is_met || (its == mark && table_of(other).open); });
        });
        if (table.level != 0 && is_met) violation("packets that have its mark are under way", rule);
    }
    bool is_last = false;
    for (FakeObject* action : actions_of(rule)) {
        if (is_fdb(table)) action->left_at = std::max(action->left_at, met_at);
        for (Table* to : static_cast<mlx5dv_dr_action*>(action)->leads_to) {
            const auto lead = order().leads.find({&table, to});
            if (--lead->second != 0) continue;
            order().leads.erase(lead);
            is_last = true;
        }
    }
    if (is_last) look_again(rule);
}

void FakeOrder::destroying(const Table& table) {
    if (is_fdb(table) && table.shut_at > domain_of(table).drained_at) {
        fake_state().violations.push_back("packets are under way in a table that goes: " + table.text);
    }
}

void FakeOrder::synced(mlx5dv_dr_domain& domain, bool drained, bool done) {
    domain.asked_at = ++order().now;
    if (done) domain.written_at = domain.asked_at;
    if (drained) domain.drained_at = domain.asked_at;
    if (drained && domain.text == "FDB") order().fdb_drained_at = domain.drained_at;
}

std::vector<std::string> FakeOrder::unwritten() {
    std::vector<std::string> texts;
    for_each_rule([&](const Rule& rule) {
        if (!is_written(rule)) texts.push_back(text_of_rule(rule));
    });
    return texts;
}

void FakeOrder::reset() { order() = Order{}; }

}  // namespace ovsdr::test
