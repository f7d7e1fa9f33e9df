#include "offload/dr/compile/levels.hpp"

#include <fmt/format.h>

namespace ovsdr::dr {

namespace {

NoWay no_way(StaticName name, TableKey because, const char* why) {
    return {{RejectReason::recirculation, name, fmt::format("={:#x} ({})", because.recirc_id, why)}, because};
}

}  // namespace

std::optional<NoWay> no_way_for(const RulePlan& plan, const LevelOf& level_of) {
    const auto level = level_of(plan.match.table);
    if (!level) return no_way("recirc_id", plan.match.table, "no megaflow in the NIC leads there");
    std::optional<NoWay> found;
    plan.path.for_each_table([&](TableKey to, unsigned depth) {
        switch (lead(level_of(to), *level, depth)) {
            case Lead::possible: return;
            case Lead::too_deep: found = no_way("recirc", to, "too many of them in a row"); return;
            case Lead::goes_back: found = no_way("recirc", to, "its table lies before this one"); return;
        }
    });
    return found;
}

}  // namespace ovsdr::dr
