#include "offload/dr/compile/compile.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

namespace ovsdr::dr {

namespace {

constexpr unsigned bytes_per_tag = 4;

}  // namespace

Compiled<RulePlan> compile(const ovsdr_megaflow& megaflow, const PortMap& ports, const DeviceCaps& caps,
                           const Choices& choices) noexcept {
    Obstacles obstacles;
    (void)choices;
    constexpr ovsdr_tunnel_fields no_tunnel{};
    if (std::memcmp(&megaflow.tunnel_mask, &no_tunnel, sizeof no_tunnel) != 0) {
        obstacles.add(RejectReason::unsupported_match, "tunnel");
    }
    for (std::uint64_t left = megaflow.unsupported_match.bits; left != 0; left &= left - 1) {
        const char* name = megaflow.unsupported_match.names[std::countr_zero(left)];
        obstacles.add(RejectReason::unsupported_match, StaticName::of_table(name));
    }
    MatchPlan match = compile_match(megaflow.key, megaflow.mask, ports, caps, obstacles);
    const std::size_t n_actions = std::min<std::size_t>(megaflow.n_actions, OVSDR_MAX_ACTIONS);
    if (n_actions < megaflow.n_actions) {
        obstacles.add(RejectReason::too_many_actions, "more than a megaflow may have",
                      fmt::format(": {}, the most is {}", megaflow.n_actions, n_actions));
    }
    Path path = compile_actions({megaflow.actions, n_actions}, match, ports, caps, obstacles);
    if (!obstacles.empty()) return tl::unexpected(obstacles.take());
    const unsigned popped = match.source == uplink_vport && caps.counts_after_pop() ? path.changes.pops : 0;
    return RulePlan{std::move(match), std::move(path), static_cast<std::uint8_t>(popped * bytes_per_tag)};
}

}  // namespace ovsdr::dr
