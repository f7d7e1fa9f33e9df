// Domains, tables and their levels, matchers and their layouts, rules that are there already.
#include <array>

#include "tests/conformance/libmlx5_questions/action_set.hpp"
#include "tests/conformance/libmlx5_questions/mask_question.hpp"
#include "tests/conformance/libmlx5_questions/questions.hpp"

namespace ovsdr::oracle {
namespace {

constexpr std::uint32_t levels[] = {1, 2, 3, 10, 62, 63, 64};
/// Log of rules. libmlx5 44 adds 6 without a look at the carry: hints near 2^32 crash it.
constexpr std::uint32_t hints[] = {0, 1, 2, 5, 10, 12, 20, 22, 23, 24, 25, 26, 27, 30, 31, 32, 33, 40, 0x7fffffff};
constexpr unsigned layout_flags = 9;
constexpr unsigned sync_flags = 32;

/// Fields of a layout's matcher; IP versions as libmlx5 wants them.
struct LayoutMask {
    const char* name;
    unsigned version;
    std::array<const char*, 3> fields;
};
constexpr LayoutMask layout_masks[] = {
    {"nothing", 0, {}},
    {"a source MAC", 0, {"outer.smac_47_16", "outer.smac_15_0"}},
    {"MACs and a VLAN", 0, {"outer.smac_47_16", "outer.dmac_47_16", "outer.first_vid"}},
    {"IPv4 ports", 4, {"outer.ip_protocol", "outer.tcp_sport", "outer.tcp_dport"}},
    {"IPv4 addresses", 4, {"outer.src_ip_31_0", "outer.dst_ip_31_0"}},
    {"IPv4 addresses and a port", 4, {"outer.src_ip_31_0", "outer.dst_ip_31_0", "outer.udp_dport"}},
    {"IPv4 addresses and a MAC", 4, {"outer.src_ip_31_0", "outer.dst_ip_31_0", "outer.smac_47_16"}},
    {"IPv4 TTL and an address", 4, {"outer.ip_ttl_hoplimit", "outer.src_ip_31_0"}},
    {"an IPv6 source", 6, {"outer.src_ip_127_96", "outer.src_ip_31_0"}},
    {"IPv6 addresses", 6, {"outer.src_ip_127_96", "outer.dst_ip_127_96"}},
    {"a source port of the device", 0, {"misc.source_port"}},
    {"a source port of the device and a MAC", 0, {"misc.source_port", "outer.smac_47_16"}},
    {"a register and ports", 0, {"misc2.metadata_reg_c_0", "outer.ip_protocol", "outer.udp_dport"}},
    {"registers", 0, {"misc2.metadata_reg_c_2", "misc2.metadata_reg_c_3"}},
    {"late registers", 0, {"misc2.metadata_reg_c_4"}},
    {"a VXLAN network", 0, {"misc.vxlan_vni"}},
    {"TCP numbers", 0, {"misc3.outer_tcp_seq_num"}},
};

class Objects {
public:
    Objects(const Session& session, Answers& answers, mlx5dv_dr_domain_type type)
        : answers_(answers),
          domain_(session.domain(type)),
          drop_(mlx5dv_dr_action_create_drop()),
          prefix_("object " + domain_name(type) + ": ") {}

    void ask_sync() {
        for (std::uint32_t flags = 0; flags < sync_flags; ++flags) {
            answers_.ask(prefix_ + "sync with flags " + std::to_string(flags), 1,
                         [&] { return outcome_of(mlx5dv_dr_domain_sync(domain_.get(), flags)); });
        }
    }

    void ask_levels() {
        for (const std::uint32_t from : levels) {
            for (const std::uint32_t to : levels) {
                answers_.ask(
                    prefix_ + "a rule at level " + std::to_string(from) + " leads to level " + std::to_string(to), 1,
                    [&] { return leading(from, to); });
            }
        }
    }

    void ask_layouts() {
        for (const LayoutMask& mask : layout_masks) {
            for (std::uint32_t flags = 0; flags < layout_flags; ++flags) {
                for (const std::uint32_t hint : hints) {
                    answers_.ask(prefix_ + "layout of " + mask.name + ", flags " + std::to_string(flags) + ", hint " +
                                     std::to_string(hint),
                                 8, [&] {
                                     return layout(mask, {flags, hint});
                                 });
                }
            }
        }
    }

    void ask_duplicates() {
        for (const bool allowed : {true, false}) {
            for (const bool same_actions : {true, false}) {
                for (const bool same_value : {true, false}) {
                    answers_.ask(prefix_ + (same_value ? "the same value" : "another value") + " with " +
                                     (same_actions ? "the same action" : "another action") + " again, " +
                                     (allowed ? "allowed" : "not allowed"),
                                 1, [&] { return again(allowed, same_actions, same_value); });
                }
            }
        }
        for (const unsigned priority : {0U, 1U}) {
            answers_.ask(prefix_ + "the same mask again at priority " + std::to_string(priority), 1, [&] {
                const Table table(mlx5dv_dr_table_create(domain_.get(), 1));
                MatchBuffer mask;
                mask.fill(match_field("outer.smac_47_16"));
                const Matcher first(mlx5dv_dr_matcher_create(table.get(), 0, 1, mask.get()));
                errno = 0;
                return outcome(
                    Matcher(mlx5dv_dr_matcher_create(table.get(), static_cast<std::uint16_t>(priority), 1, mask.get()))
                        .get());
            });
        }
    }

private:
    [[nodiscard]] std::string leading(std::uint32_t from, std::uint32_t to) {
        const Table table(mlx5dv_dr_table_create(domain_.get(), from));
        const Table next(mlx5dv_dr_table_create(domain_.get(), to));
        if (table == nullptr || next == nullptr) return "table " + outcome(nullptr);
        const Action action(mlx5dv_dr_action_create_dest_table(next.get()));
        if (action == nullptr) return "action " + outcome(nullptr);
        return MaskQuestion().fill(match_field("outer.smac_47_16")).answer(table.get(), action.get());
    }

    [[nodiscard]] std::string layout(const LayoutMask& fields, mlx5dv_dr_matcher_layout layout) {
        const Table table(mlx5dv_dr_table_create(domain_.get(), 1));
        MatchBuffer mask;
        std::uint8_t criteria = 0;
        for (const char* name : fields.fields) {
            if (name == nullptr) continue;
            mask.fill(match_field(name));
            criteria |= match_field(name).criteria();
        }
        if (fields.version != 0) {
            mask.set(match_field("outer.ip_version"), fields.version);
            criteria |= 1;
        }
        const Matcher matcher(mlx5dv_dr_matcher_create(table.get(), 0, criteria, mask.get()));
        if (matcher == nullptr) return "matcher " + outcome(nullptr);
        errno = 0;
        return outcome_of(mlx5dv_dr_matcher_set_layout(matcher.get(), &layout));
    }

    [[nodiscard]] std::string again(bool allowed, bool same_actions, bool same_value) {
        const Table table(mlx5dv_dr_table_create(domain_.get(), 1));
        const MatchField& mac = match_field("outer.smac_47_16");
        MatchBuffer mask, value, other;
        mask.fill(mac);
        other.set(mac, 1);
        const Matcher matcher(mlx5dv_dr_matcher_create(table.get(), 0, 1, mask.get()));
        const Action miss(mlx5dv_dr_action_create_default_miss());
        mlx5dv_dr_domain_allow_duplicate_rules(domain_.get(), allowed);
        mlx5dv_dr_action* first = drop_.get();
        mlx5dv_dr_action* second = same_actions ? drop_.get() : miss.get();
        const Rule rule(mlx5dv_dr_rule_create(matcher.get(), value.get(), 1, &first));
        errno = 0;
        const Rule twin(mlx5dv_dr_rule_create(matcher.get(), same_value ? value.get() : other.get(), 1, &second));
        const std::string answer = outcome(twin.get());
        mlx5dv_dr_domain_allow_duplicate_rules(domain_.get(), true);
        return answer;
    }

    Answers& answers_;
    Domain domain_;
    Action drop_;
    std::string prefix_;
};

}  // namespace

void ask_objects(const Session& session, Answers& answers) {
    for (unsigned number = 0; number < 6; ++number) {
        answers.ask("object: a domain of type " + std::to_string(number), 1, [&] {
            return outcome(
                Domain(mlx5dv_dr_domain_create(session.context.get(), static_cast<mlx5dv_dr_domain_type>(number)))
                    .get());
        });
    }
    for (const mlx5dv_dr_domain_type type : domain_types) {
        Objects objects(session, answers, type);
        objects.ask_sync();
        objects.ask_levels();
        objects.ask_layouts();
        objects.ask_duplicates();
    }
}

}  // namespace ovsdr::oracle
