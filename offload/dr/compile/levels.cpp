#include "offload/dr/compile/levels.hpp"

#include <fmt/format.h>

namespace ovsdr::dr {

namespace {

NoWay no_way(StaticName name, TableKey because, const char* why) {
    return {{RejectReason::recirculation, name, fmt::format("={:#x} ({})", because.recirc_id, why)}, because};
}

NoWay no_way_into_tunnel(StaticName name, TableKey because, const char* why) {
    return {{RejectReason::recirculation, name, fmt::format(" ({})", why), OdpPort{because.tunnel_port}}, because};
}

NoWay nothing_leads_to(TableKey table) {
    constexpr const char* why = "no megaflow in the NIC leads there";
    if (table.recirc_id != 0) return no_way("recirc_id", table, why);
    return no_way_into_tunnel("in_port is a tunnel port", table, why);
}

NoWay no_way_up_to(TableKey table, const char* why) {
    if (table.recirc_id != 0) return no_way("recirc", table, why);
    return no_way_into_tunnel("tnl_pop", table, why);
}

}  // namespace

NoWay coincides(TableKey table) {
    return {{RejectReason::device_limit, "tun_flags", " (another megaflow differs in nothing that the device sees)"},
            table};
}

NoWay other_geneve_option(TableKey table) {
    return {{RejectReason::device_limit, "tun_metadata",
             " (the device looks for another Geneve option, and has one at a time)"}, table};
}

std::optional<NoWay> no_way_for(const RulePlan& plan, const LevelOf& level_of) {
    const auto level = level_of(plan.match.table);
    if (!level) return nothing_leads_to(plan.match.table);
    std::optional<NoWay> found;
    plan.path.for_each_table([&](TableKey to, unsigned depth) {
        switch (lead(level_of(to), *level, depth)) {
            case Lead::possible: return;
            case Lead::too_deep: found = no_way_up_to(to, "too many of them in a row"); return;
            case Lead::goes_back: found = no_way_up_to(to, "its table lies before this one"); return;
        }
    });
    return found;
}

}  // namespace ovsdr::dr
