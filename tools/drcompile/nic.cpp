#include "tools/drcompile/nic.hpp"

#include <map>

#include "offload/dr/compile/levels.hpp"

namespace ovsdr::drcompile {
namespace {

class Tables {
public:
    /// Makes the tables that the plan leads to, or says why it cannot be.
    std::optional<dr::NoWay> install(const dr::RulePlan& plan) {
        auto no_way = dr::no_way_for(plan, [this](dr::TableKey key) { return level(key); });
        if (!no_way && plan.match.geneve_option) no_way = look_for(*plan.match.geneve_option, plan.match.table);
        if (!no_way) {
            plan.path.for_each_table([&](dr::TableKey to, unsigned) {
                levels_.try_emplace(to, levels_.at(plan.match.table) + dr::Levels::per_table);
            });
        }
        return no_way;
    }

    [[nodiscard]] std::optional<std::uint32_t> level(dr::TableKey key) const {
        const auto found = levels_.find(key);
        return found == levels_.end() ? std::nullopt : std::optional(found->second);
    }

private:
    /// A device looks for one option.
    std::optional<dr::NoWay> look_for(dr::GeneveOption option, dr::TableKey table) {
        if (option_.value_or(option) != option) return dr::other_geneve_option(table);
        option_ = option;
        return std::nullopt;
    }

    std::map<dr::TableKey, std::uint32_t> levels_{{dr::TableKey{}, dr::Levels::entry}};
    std::optional<dr::GeneveOption> option_;
};

}  // namespace

std::vector<Verdict> offload_all(std::span<const dr::StoredMegaflow> megaflows, const dr::PortMap& ports,
                                 const dr::DeviceCaps& caps) {
    std::vector<Verdict> verdicts(megaflows.size());
    std::vector<Verdict*> waiting;
    for (std::size_t i = 0; i < megaflows.size(); ++i) {
        if (auto plan = dr::compile(megaflows[i].restore(), ports, caps)) {
            verdicts[i].plan = std::move(*plan);
            waiting.push_back(&verdicts[i]);
        } else {
            verdicts[i].obstacles = std::move(plan.error().obstacles);
        }
    }
    Tables tables;
    const auto goes_in = [&](Verdict* verdict) {
        auto no_way = tables.install(*verdict->plan);
        verdict->obstacles.clear();
        if (no_way) {
            verdict->obstacles.push_back(std::move(no_way->obstacle));
        } else {
            verdict->level = *tables.level(verdict->plan->match.table);
        }
        return !no_way;
    };
    while (std::erase_if(waiting, goes_in) != 0) {}
    for (Verdict* verdict : waiting) verdict->plan.reset();
    return verdicts;
}

}  // namespace ovsdr::drcompile
