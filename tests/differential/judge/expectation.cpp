#include "tests/differential/judge/expectation.hpp"

#include <algorithm>
#include <set>

namespace ovsdr::differential {

namespace {

constexpr std::uint32_t none = UINT32_MAX;

template <typename Visit>
void for_each_table(const Megaflow& megaflow, Visit visit) {
    for (const Action& action : megaflow.actions) {
        if (action.kind == Action::Kind::recirc) visit(action.port);
    }
}

}  // namespace

Expectations::Expectations(const Scenario& scenario, unsigned format)
    : scenario_(scenario), there_(scenario.versions.size()), version_of_(scenario.ufids, none) {
    for (const Megaflow& megaflow : scenario.versions) offloadable_.push_back(is_offloadable(megaflow, format));
}

void Expectations::apply(const Phase& phase) {
    for (const auto& [version, put] : phase.changes) {
        std::uint32_t& current = version_of_[scenario_.versions[version].ufid];
        if (current != none) there_[current] = false;
        there_[version] = put;
        current = put ? version : none;
    }
}

std::vector<Expectation> Expectations::all() const {
    const auto is_knotted = [&](std::uint32_t recirc_id) {
        return recirc_id != 0 && scenario_.tables.at(recirc_id).knotted;
    };
    std::vector<Expectation> expected(scenario_.versions.size(), Expectation::not_there);
    std::set<std::uint32_t> reached{0};   ///< tables that surely are there
    for (bool more = true; more;) {
        more = false;
        for (std::size_t i = 0; i < expected.size(); ++i) {
            const Megaflow& megaflow = scenario_.versions[i];
            if (!there_[i] || expected[i] == Expectation::installed) continue;
            expected[i] = offloadable_[i] ? Expectation::either : Expectation::refused;
            bool waits = !offloadable_[i] || !reached.contains(megaflow.recirc_id) || is_knotted(megaflow.recirc_id);
            for_each_table(megaflow, [&](std::uint32_t table) { waits = waits || is_knotted(table); });
            if (waits) continue;
            expected[i] = Expectation::installed;
            more = true;
            for_each_table(megaflow, [&](std::uint32_t table) { reached.insert(table); });
        }
    }
    return expected;
}

}  // namespace ovsdr::differential
