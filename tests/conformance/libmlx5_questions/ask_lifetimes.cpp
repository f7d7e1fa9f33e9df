// What may be destroyed while somebody uses it: a chain of objects in every order, and each kind of action in a rule.
#include <algorithm>
#include <array>
#include <functional>
#include <numeric>
#include <vector>

#include "tests/conformance/libmlx5_questions/action_set.hpp"
#include "tests/conformance/libmlx5_questions/match_buffer.hpp"
#include "tests/conformance/libmlx5_questions/questions.hpp"

namespace ovsdr::oracle {
namespace {

constexpr unsigned drawn_one_in = 2;

/// A domain, a table, a deeper one, a matcher, an action that leads to the deeper table, and a rule of them.
class Chain {
public:
    static constexpr std::array<const char*, 6> names{"domain", "table", "next table", "action", "matcher", "rule"};

    Chain(const Session& session, mlx5dv_dr_domain_type type)
        : domain_(session.domain(type)),
          table_(mlx5dv_dr_table_create(domain_.get(), 1)),
          next_(mlx5dv_dr_table_create(domain_.get(), 2)),
          action_(mlx5dv_dr_action_create_dest_table(next_.get())) {
        MatchBuffer mask, value;
        mask.fill(match_field("outer.smac_47_16"));
        matcher_.reset(mlx5dv_dr_matcher_create(table_.get(), 0, 1, mask.get()));
        mlx5dv_dr_action* list[] = {action_.get()};
        rule_.reset(mlx5dv_dr_rule_create(matcher_.get(), value.get(), 1, list));
    }

    [[nodiscard]] bool complete() const noexcept { return rule_ != nullptr; }

    /// The object of that place in `names`; what is refused stays.
    [[nodiscard]] std::string destroy(std::size_t object) {
        switch (object) {
            case 0:
                return destroyed(domain_);
            case 1:
                return destroyed(table_);
            case 2:
                return destroyed(next_);
            case 3:
                return destroyed(action_);
            case 4:
                return destroyed(matcher_);
            default:
                return destroyed(rule_);
        }
    }

private:
    template <typename Object, auto function>
    [[nodiscard]] static std::string destroyed(Handle<Object, function>& handle) {
        errno = 0;
        const int error = function(handle.get());
        if (error == 0) static_cast<void>(handle.release());
        return outcome_of(error);
    }

    Domain domain_;
    Table table_, next_;
    Action action_;
    Matcher matcher_;
    Rule rule_;
};

void ask_orders(const Session& session, Answers& answers, mlx5dv_dr_domain_type type) {
    std::array<std::size_t, Chain::names.size()> order{};
    std::iota(order.begin(), order.end(), 0);
    do {
        std::string name = "destroy " + domain_name(type) + ":";
        for (const std::size_t object : order)
            name += std::string(object == order[0] ? " " : ", ") + Chain::names[object];
        answers.ask(name, drawn_one_in, [&] {
            Chain chain(session, type);
            if (!chain.complete()) return std::string("no rule");
            std::string answer;
            for (const std::size_t object : order) answer += (answer.empty() ? "" : ", ") + chain.destroy(object);
            return answer;
        });
    } while (std::next_permutation(order.begin(), order.end()));
}

/// `parts` live while `whole` does; what destroying each of them says.
struct Assembly {
    std::vector<Action> parts;
    Action whole;
};

[[nodiscard]] Assembly assemble_array(const Stage& stage) {
    Assembly made;
    made.parts.emplace_back(mlx5dv_dr_action_create_dest_vport(stage.domain.get(), 1));
    made.parts.emplace_back(mlx5dv_dr_action_create_dest_table(stage.next.get()));
    made.whole.reset(create_array(stage.domain.get(), made.parts[0].get(), made.parts[1].get()));
    return made;
}

[[nodiscard]] Assembly assemble_sampler(const Stage& stage) {
    Assembly made;
    made.parts.emplace_back(mlx5dv_dr_action_create_dest_vport(stage.domain.get(), 1));
    mlx5dv_dr_action* list[] = {made.parts[0].get()};
    mlx5dv_dr_flow_sampler_attr attributes{.sample_ratio = 2,
                                           .default_next_table = stage.next.get(),
                                           .num_sample_actions = 1,
                                           .sample_actions = list,
                                           .action = EditCommand{.field = edit_field_reg_c_0}.encoded()};
    if (made.parts[0] != nullptr) made.whole.reset(mlx5dv_dr_action_create_flow_sampler(&attributes));
    return made;
}

void ask_assemblies(const Session& session, Answers& answers, mlx5dv_dr_domain_type type) {
    struct Kind {
        const char* name;
        Assembly (*assemble)(const Stage&);
    };
    for (const Kind& kind : {Kind{"array", assemble_array}, Kind{"sampler", assemble_sampler}}) {
        answers.ask("destroy " + domain_name(type) + ": members of an " + kind.name + ", then its tables, then itself",
                    1, [&] {
                        Stage stage(session, type, 1);
                        Assembly made = kind.assemble(stage);
                        if (made.whole == nullptr) return "creation " + outcome(nullptr);
                        std::string answer;
                        for (Action& part : made.parts) {
                            const int error = mlx5dv_dr_action_destroy(part.get());
                            answer += outcome_of(error) + ", ";
                            if (error == 0) static_cast<void>(part.release());
                        }
                        const int error = mlx5dv_dr_table_destroy(stage.next.get());
                        if (error == 0) static_cast<void>(stage.next.release());
                        answer += outcome_of(error) + ", ";
                        return answer + outcome_of(mlx5dv_dr_action_destroy(made.whole.release()));
                    });
    }
}

void ask_actions_in_use(const Session& session, Answers& answers, mlx5dv_dr_domain_type type) {
    Stage stage(session, type, 1);
    ActionSet actions(session, stage);
    MatchBuffer mask, value;
    mask.fill(match_field("outer.smac_47_16"));
    const Matcher matcher(mlx5dv_dr_matcher_create(stage.table.get(), 0, 1, mask.get()));
    for (std::size_t kind = 0; kind < ActionSet::names.size(); ++kind) {
        answers.ask("destroy " + domain_name(type) + ": " + std::string(ActionSet::names[kind]) + " in use", 1, [&] {
            if (actions.at(kind) == nullptr) return actions.made(kind);
            // A rule ends in a destination; what is none itself goes before one.
            for (const std::string_view last : {"", "drop", "table", "queue", "uplink"}) {
                mlx5dv_dr_action* list[2] = {actions.at(kind)};
                const auto* end = std::find(ActionSet::names.begin(), ActionSet::names.end(), last);
                const bool alone = end == ActionSet::names.end();
                if (!alone) list[1] = actions.at(static_cast<std::size_t>(end - ActionSet::names.begin()));
                if (!alone && list[1] == nullptr) continue;
                const Rule rule(mlx5dv_dr_rule_create(matcher.get(), value.get(), alone ? 1 : 2, list));
                errno = 0;
                if (rule != nullptr) return outcome_of(mlx5dv_dr_action_destroy(actions.at(kind)));
            }
            return std::string("no rule has it");
        });
    }
}

}  // namespace

void ask_lifetimes(const Session& session, Answers& answers) {
    for (const mlx5dv_dr_domain_type type : domain_types) {
        ask_orders(session, answers, type);
        ask_assemblies(session, answers, type);
        ask_actions_in_use(session, answers, type);
    }
}

}  // namespace ovsdr::oracle
