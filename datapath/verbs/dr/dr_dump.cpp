// mlx5dv_dump_dr_*: the objects of a domain as text, one a line, indented by what contains them. The format is ours.
#include <fmt/format.h>

#include <cstdio>
#include <iterator>
#include <string>

#include "datapath/steering/edit_field.hpp"
#include "datapath/verbs/dr/dr_handle.hpp"

using namespace ovsdr::soft;

namespace {

using Text = std::back_insert_iterator<std::string>;

constexpr const char* action_names[action_types] = {
    "drop", "queue", "table", "root_table", "vport", "dest_array", "default_miss", "tag", "counter", "modify_header",
    "pop_vlan", "push_vlan", "decap_l2", "decap_l3", "encap_l2", "encap_l3", "meter", "sampler", "aso_first_hit",
    "aso_flow_meter", "aso_ct"};

[[nodiscard]] const char* name_of(DomainType type) noexcept {
    switch (type) {
        case DomainType::nic_rx: return "nic_rx";
        case DomainType::nic_tx: return "nic_tx";
        default: return "fdb";
    }
}

/// The 64-bit words that are not 0, by their number, in the byte order of the match parameters.
void write_key(Text out, const Key& key) {
    for (unsigned i = 0; i < Key::length; ++i) {
        if (key.words[i] != 0) fmt::format_to(out, " w{}={:016x}", i, __builtin_bswap64(key.words[i]));
    }
}

void write_action(Text out, const Action& action) {
    fmt::format_to(out, " {}", action_names[static_cast<unsigned>(action.type)]);
    switch (action.type) {
        case ActionType::counter: {
            const CounterBulk::Value value = action.bulk()->read(action.value);
            fmt::format_to(out, "({}: packets {} bytes {})", action.value, value.packets, value.bytes);
            break;
        }
        case ActionType::table: fmt::format_to(out, "(level {})", action.more().destination->level()); break;
        case ActionType::vport: fmt::format_to(out, "({})", action.value); break;
        case ActionType::tag:
        case ActionType::push_vlan: fmt::format_to(out, "({:#x})", action.value); break;
        case ActionType::modify_header:
            for (const Edit& edit : action.more().edits->edits()) {
                fmt::format_to(out, "({} {:#x})", edit.destination->name, edit.data);
            }
            break;
        case ActionType::aso_first_hit:
        case ActionType::aso_ct:
        case ActionType::aso_flow_meter:
            fmt::format_to(out, "({} -> reg_c_{})", action.more().aso_use.offset, action.more().aso_use.reg_c);
            break;
        case ActionType::meter:
            fmt::format_to(out, "(level {} reg_c_{})", action.more().destination->level(),
                           action.more().metering->reg_c);
            break;
        case ActionType::sampler:
            fmt::format_to(out, "(1 in {}, level {}:", action.more().sampling->ratio,
                           action.more().destination->level());
            for (const Action* branch : action.more().branches) write_action(out, *branch);
            fmt::format_to(out, " )");
            break;
        case ActionType::dest_array:
            fmt::format_to(out, "(");
            for (const Action* branch : action.more().branches) write_action(out, *branch);
            fmt::format_to(out, " )");
            break;
        default: break;
    }
}

void write_rule(Text out, const Rule& rule) {
    const MaskedWords& mask = rule.matcher().view().rules.mask();
    Key value{};
    for (std::uint32_t i = 0; i < mask.length; ++i) value.words[mask.index[i]] = rule.node().words()[i];
    fmt::format_to(out, "      rule {:p}:", static_cast<const void*>(&rule));
    write_key(out, value);
    fmt::format_to(out, " ->");
    for (const Action* action : rule.actions()) write_action(out, *action);
    fmt::format_to(out, "\n");
}

void write_matcher(Text out, Matcher& matcher) {
    fmt::format_to(out, "    matcher {:p}: priority {} criteria {:#x} rules {} room {}",
                   static_cast<const void*>(&matcher), matcher.priority(), matcher.mask().criteria,
                   matcher.view().rules.length(), matcher.view().rules.room());
    write_key(out, matcher.mask().key);
    fmt::format_to(out, "\n");
    matcher.view().rules.for_each([out](const RuleNode& rule) { write_rule(out, Rule::of(rule)); });
}

void write_table(Text out, Table& table) {
    fmt::format_to(out, "  table {:p}: level {}\n", static_cast<const void*>(&table), table.level());
    for (Matcher* matcher : table.matchers()) write_matcher(out, *matcher);
}

void write_domain(Text out, Domain& domain) {
    fmt::format_to(out, "domain {:p}: {} on {}\n", static_cast<const void*>(&domain), name_of(domain.type()),
                   domain.steering().profile().name);
    for (Table* table : domain.tables()) write_table(out, *table);
}

/// Formats under the domain's lock, writes outside it.
template <typename Write>
int dump(FILE* file, Domain& domain, Write write) noexcept {
    try {
        std::string text;
        {
            const std::lock_guard lock(domain.tables_mutex());
            write(std::back_inserter(text));
        }
        return std::fputs(text.c_str(), file) < 0 ? errno : 0;
    } catch (const std::bad_alloc&) {
        return ENOMEM;
    }
}

}  // namespace

extern "C" {

int mlx5dv_dump_dr_domain(FILE* fout, mlx5dv_dr_domain* domain) {
    if (fout == nullptr || domain == nullptr) return -EINVAL;
    return dump(fout, *from(domain), [domain](Text out) { write_domain(out, *from(domain)); });
}

int mlx5dv_dump_dr_table(FILE* fout, mlx5dv_dr_table* table) {
    if (fout == nullptr || table == nullptr) return -EINVAL;
    return dump(fout, from(table)->domain(), [table](Text out) { write_table(out, *from(table)); });
}

int mlx5dv_dump_dr_matcher(FILE* fout, mlx5dv_dr_matcher* matcher) {
    if (fout == nullptr || matcher == nullptr) return -EINVAL;
    return dump(fout, from(matcher)->table().domain(), [matcher](Text out) { write_matcher(out, *from(matcher)); });
}

int mlx5dv_dump_dr_rule(FILE* fout, mlx5dv_dr_rule* rule) {
    if (fout == nullptr || rule == nullptr) return -EINVAL;
    return dump(fout, from(rule)->matcher().table().domain(), [rule](Text out) { write_rule(out, *from(rule)); });
}

}  // extern "C"
