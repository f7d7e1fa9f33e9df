#include "tests/differential/judge/expectation.hpp"

#include <algorithm>
#include <map>
#include <optional>

#include "tests/differential/judge/metered_copies.hpp"

namespace ovsdr::differential {

namespace {

constexpr std::uint32_t none = UINT32_MAX;

template <typename Visit>
void for_each_table(const Megaflow& megaflow, Visit visit) {
    for (const Action& action : megaflow.actions) {
        if (action.kind == Action::Kind::recirc) visit(TableId{action.port, megaflow.table().tunnel_port});
        if (action.kind == Action::Kind::tunnel_pop) visit(TableId{0, action.port});
    }
}

}  // namespace

/// Who has what there is one of: those that the NIC has, or else who comes first.
class Expectations::Contest {
public:
    void enter(const Megaflow& megaflow, std::uint32_t version, bool is_in_nic) {
        if (const auto option = option_of(megaflow); option && (is_in_nic || !option_)) option_ = option;
        const bool first = winners_.try_emplace(megaflow.match_number(), version).second;
        if (is_in_nic && !first) winners_[megaflow.match_number()] = version;
    }
    [[nodiscard]] bool has_lost(const Megaflow& megaflow, std::uint32_t version) const {
        const auto option = option_of(megaflow);
        const auto winner = winners_.find(megaflow.match_number());
        return (option && option != option_) || (winner != winners_.end() && winner->second != version);
    }

private:
    std::optional<GeneveOptions> option_;
    std::map<std::uint32_t, std::uint32_t> winners_;
};

Expectations::Expectations(const Scenario& scenario, unsigned format)
    : scenario_(scenario), there_(scenario.versions.size()), format_(format), version_of_(scenario.ufids, none) {
    for (const Megaflow& megaflow : scenario.versions) offloadable_.push_back(is_offloadable(megaflow, format));
}

void Expectations::apply(const Phase& phase) {
    policed_ = phase.policed;
    for (const auto& [number, spec] : phase.meters) meters_[number] = spec;
    for (const auto& [version, put] : phase.changes) {
        std::uint32_t& current = version_of_[scenario_.versions[version].ufid];
        if (current != none) there_[current] = false;
        there_[version] = put;
        current = put ? version : none;
    }
    const auto has_meter = [this](std::uint32_t number) {
        return number < meters_end && meters_[number] && can_device_have(*meters_[number], format_ == 0);
    };
    for (std::size_t i = 0; i < there_.size(); ++i) {
        const Megaflow& megaflow = scenario_.versions[i];
        if (!there_[i] || meter_uses(megaflow.actions).empty()) continue;
        offloadable_[i] = is_offloadable(megaflow, format_, has_meter);
    }
}

Expectation Expectations::without_others(std::size_t version, const std::set<TableId>& reached) const {
    const Megaflow& megaflow = scenario_.versions[version];
    const auto is_knotted = [&](TableId table) {
        return table.recirc_id != 0 && scenario_.tables.at(table.recirc_id).knotted;
    };
    if (!offloadable_[version] || megaflow.in_port == policed_) return Expectation::refused;
    bool waits = !reached.contains(megaflow.table()) || is_knotted(megaflow.table());
    for_each_table(megaflow, [&](TableId table) { waits = waits || is_knotted(table); });
    return waits ? Expectation::either : Expectation::installed;
}

std::vector<Expectation> Expectations::all(const std::vector<std::uint8_t>& installed) const {
    std::vector<Expectation> expected(scenario_.versions.size(), Expectation::not_there);
    std::set<TableId> reached{TableId{}};   ///< tables that surely are there
    for (bool more = true; more;) {
        more = false;
        Contest contest;
        for (std::uint32_t i = 0; i < expected.size(); ++i) {
            if (!there_[i]) continue;
            expected[i] = without_others(i, reached);
            if (expected[i] == Expectation::refused) continue;
            const bool is_in_nic = installed[i] != 0;
            if (is_in_nic || expected[i] == Expectation::installed) contest.enter(scenario_.versions[i], i, is_in_nic);
        }
        for (std::uint32_t i = 0; i < expected.size(); ++i) {
            if (!there_[i] || expected[i] == Expectation::refused) continue;
            if (contest.has_lost(scenario_.versions[i], i)) expected[i] = Expectation::refused;
            if (expected[i] != Expectation::installed) continue;
            for_each_table(scenario_.versions[i], [&](TableId table) { more = reached.insert(table).second || more; });
        }
    }
    return expected;
}

std::vector<std::vector<std::uint8_t>> forecast(const Scenario& scenario, unsigned format) {
    std::vector<std::vector<std::uint8_t>> phases;
    Expectations expectations(scenario, format);
    std::vector<std::uint8_t> installed(scenario.versions.size());
    for (const Phase& phase : scenario.phases) {
        expectations.apply(phase);
        const auto expected = expectations.all(installed);
        for (std::size_t i = 0; i < expected.size(); ++i) installed[i] = expected[i] == Expectation::installed ? 1 : 0;
        phases.push_back(installed);
    }
    return phases;
}

}  // namespace ovsdr::differential
