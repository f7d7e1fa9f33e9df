#include "offload/dr/compile/levels.hpp"

#include <fmt/format.h>

#include "offload/dr/compile/obstacles.hpp"

namespace ovsdr::dr {

namespace {

Obstacle obstacle(StaticName of_recirculation, StaticName of_tunnel, TableKey because, const char* why) {
    if (because.recirc_id != 0) {
        return {RejectReason::recirculation, of_recirculation, fmt::format("={:#x} ({})", because.recirc_id, why)};
    }
    return {RejectReason::recirculation, of_tunnel, fmt::format(" ({})", why), OdpPort{because.tunnel_port}};
}

}  // namespace

NoWay coincides(TableKey table) {
    return {{{{RejectReason::device_limit, "tun_flags",
               " (another megaflow differs in nothing that the device sees)"}}},
            table};
}

NoWay other_geneve_option(TableKey table) {
    return {{{{RejectReason::device_limit, "tun_metadata",
               " (the device looks for another Geneve option, and has one at a time)"}}},
            table};
}

NoWay no_geneve_option(TableKey table, NoWay::Time again_at) {
    return {{{{RejectReason::device_limit, "tun_metadata",
               " (the device refused to look for a Geneve option; another function may have one)"}}},
            table, again_at};
}

std::optional<NoWay> no_way_for(const RulePlan& plan, const LevelOf& level_of) {
    const auto level = level_of(plan.match.table);
    if (!level) {
        return NoWay{{{obstacle("recirc_id", "in_port is a tunnel port", plan.match.table,
                                "no megaflow in the NIC leads there")}},
                     plan.match.table};
    }
    Obstacles found;
    TableKey because;
    plan.path.for_each_table([&](TableKey to, unsigned depth) {
        const Lead way = lead(level_of(to), *level, depth);
        if (way == Lead::possible) return;
        found.add(obstacle("recirc", "tnl_pop", to, way == Lead::too_deep ? "too many of them in a row"
                                                                          : "its table lies before this one"));
        because = to;
    });
    if (found.empty()) return std::nullopt;
    return NoWay{found.take(), because};
}

}  // namespace ovsdr::dr
