#include "offload/dr/nic/nic_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <string_view>
#include <vector>

#include "offload/dr/compile/packet_hash.hpp"
#include "offload/dr/compile/tunnel_match.hpp"

namespace ovsdr::dr {

namespace {

/// As the C shim names them: after OVS_ACTION_ATTR_*.
constexpr std::array<std::string_view, 3> hashing{"hash", "lb_output", "tnl_push"};
constexpr std::array<std::string_view, 4> with_lists{"sample", "clone", "check_pkt_len", "dec_ttl"};

/// Names may go on: "check_pkt_len (branches differ)", "tnl_push of GTP-U".
bool is_any_of(std::string_view action, std::span<const std::string_view> names) noexcept {
    return std::ranges::any_of(names, [action](std::string_view name) { return action.starts_with(name); });
}

/// Of what has one: that of actions which only software does. Null: none.
const char* name_of(const ovsdr_action& action) noexcept {
    switch (action.type) {
        case OVSDR_ACTION_UNSUPPORTED: return action.unsupported;
        case OVSDR_ACTION_SOFTWARE: return action.software.name;
        default: return nullptr;
    }
}

void check_action(const ovsdr_action& action, Obstacles& obstacles) {
    constexpr const char* why = " (OVS has no hash of packets that the NIC marked)";
    if (action.type == OVSDR_ACTION_TUNNEL_PUSH) {
        obstacles.add(RejectReason::unsupported_action, "tnl_push", why);
    }
    const char* const name = name_of(action);
    if (name == nullptr) return;
    if (is_any_of(name, hashing)) obstacles.add(RejectReason::unsupported_action, StaticName::of_table(name), why);
    if (is_any_of(name, with_lists)) {
        obstacles.add(RejectReason::unsupported_action, StaticName::of_table(name),
                      " (it may have actions for which OVS needs a hash)");
    }
    // Copies for samplers and controllers are OVSDR_ACTION_SOFTWARE, and nothing is hashed for them.
    if (action.type == OVSDR_ACTION_UNSUPPORTED && std::string_view(name) == "userspace") {
        obstacles.add(RejectReason::unsupported_action, "userspace",
                      " (OVS's slow path may do actions for which OVS needs a hash)");
    }
}

/// A marked packet is hashed when it recirculates, one that came up without a mark when it came.
void check_recirculations(std::span<const ovsdr_action> actions, PacketHash hash, Obstacles& obstacles) {
    std::vector<PacketHash> outside;   // of the copies that we are in
    for (const ovsdr_action& action : actions) {
        hash.follow(action);
        if (action.type == OVSDR_ACTION_COPY_BEGIN) outside.push_back(hash);
        if (action.type == OVSDR_ACTION_COPY_END && !outside.empty()) {
            hash = outside.back();
            outside.pop_back();
        }
        const StaticName changed_by = hash.changed_by();
        if (action.type != OVSDR_ACTION_RECIRC || changed_by.empty()) continue;
        obstacles.add(RejectReason::unsupported_action, "recirc behind a change of what OVS hashes",
                      fmt::format(": {}", changed_by.text()));
    }
}

void check_actions(const ovsdr_megaflow& megaflow, const MatchPlan& match, Obstacles& obstacles) {
    if (megaflow.n_actions > OVSDR_MAX_ACTIONS) {
        obstacles.add(RejectReason::too_many_actions, "more than a megaflow may have",
                      fmt::format(": {}, the most is {}", megaflow.n_actions, static_cast<int>(OVSDR_MAX_ACTIONS)));
    }
    const std::size_t length = std::min<std::size_t>(megaflow.n_actions, OVSDR_MAX_ACTIONS);
    const std::span actions(megaflow.actions, length);
    for (const ovsdr_action& action : actions) check_action(action, obstacles);
    check_recirculations(actions, {match, megaflow.key.vlan_limit}, obstacles);
}

/// The port is every packet's. A device without eSwitch rights knows no vports.
void forget_source(MatchPlan& match) noexcept {
    match.mask.set(field::source_port, 0);
    match.value.set(field::source_port, 0);
}

}  // namespace

Compiled<NicPlan> compile_for_function(const ovsdr_megaflow& megaflow, const PortMap& ports,
                                       const DeviceCaps& caps) noexcept {
    Obstacles obstacles;
    for (std::uint64_t left = megaflow.unsupported_match.bits; left != 0; left &= left - 1) {
        const char* name = megaflow.unsupported_match.names[std::countr_zero(left)];
        obstacles.add(RejectReason::unsupported_match, StaticName::of_table(name));
    }
    const OdpPort in_port{megaflow.key.in_port};
    const PortMap::Port* const port = ports.find(in_port);
    PortMap unpoliced = ports;   // a mark changes nothing for the policer
    if (port != nullptr) unpoliced.set(in_port, {port->vport, port->name});
    NicPlan plan{compile_match(megaflow.key, megaflow.mask, unpoliced, caps, obstacles),
                 megaflow.n_actions == 0 && port != nullptr && !port->policed};
    match_no_tunnel({megaflow.tunnel_key, megaflow.tunnel_mask}, obstacles);
    if (plan.match.table.recirc_id != 0) {
        obstacles.add(RejectReason::recirculation, "recirc_id", " (a plain function's NIC does no recirculation)");
    }
    if (!caps.recirculates) {
        obstacles.add(RejectReason::device_limit, "NIC_RX", " (it has no table but its root)");
    }
    check_actions(megaflow, plan.match, obstacles);
    if (!obstacles.empty()) return tl::unexpected(obstacles.take());
    forget_source(plan.match);
    return plan;
}

}  // namespace ovsdr::dr
