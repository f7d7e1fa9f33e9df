#include <endian.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <optional>
#include <utility>

#include "offload/dr/device/action_order.hpp"
#include "offload/dr/compile/compile.hpp"

namespace ovsdr::dr {

namespace {

constexpr std::uint16_t tpid_customer = 0x8100, tpid_service = 0x88a8;
constexpr std::uint16_t vlan_present = 0x1000;   ///< OVS's VLAN_CFI, no bit of the wire
constexpr std::size_t max_pushes = 2;            ///< of one rule
constexpr unsigned bytes_per_tag = 4;

/// Follows the megaflow's packet through its actions: the tags it has lost and gained at each output.
class ActionCompiler {
public:
    ActionCompiler(const MatchPlan& match, const PortMap& ports, const DeviceCaps& caps, Obstacles& obstacles) noexcept
        : match_(match), ports_(ports), caps_(caps), obstacles_(obstacles) {
        if (obstacles.has(RejectReason::in_port_not_offloaded)) return;
        side_ = match.source == uplink_vport ? Side::wire : Side::vports;
    }

    std::vector<Leg> run(std::span<const ovsdr_action> actions) {
        for (const ovsdr_action& action : actions) step(action);
        // Operations behind the last output reach nobody.
        std::stable_partition(legs_.begin(), legs_.end(), [](const Leg& leg) { return !leg.changes_packet(); });
        for (Leg& leg : legs_) {
            std::ranges::sort(leg.outputs);
            if (side_) check(leg, *side_);
        }
        if (legs_.size() > 1 && !caps_.copies_to_table) {
            refuse(RejectReason::device_limit, "outputs before and after a VLAN action", " (no copies to tables)");
        }
        return std::move(legs_);
    }

private:
    void refuse(RejectReason reason, StaticName name, std::string value = {}) {
        obstacles_.add(reason, name, std::move(value));
    }

    void step(const ovsdr_action& action) {
        switch (action.type) {
            case OVSDR_ACTION_OUTPUT: return output(OdpPort{action.output});
            case OVSDR_ACTION_PUSH_VLAN:
                return push(be16toh(action.push_vlan.be_tpid), be16toh(action.push_vlan.be_tci));
            case OVSDR_ACTION_POP_VLAN: return pop();
            case OVSDR_ACTION_UNSUPPORTED: break;
        }
        const bool named = action.type == OVSDR_ACTION_UNSUPPORTED && action.unsupported != nullptr;
        refuse(RejectReason::unsupported_action, named ? StaticName::of_table(action.unsupported) : "unknown");
    }

    void output(OdpPort odp_port) {
        const PortMap::Port* port = ports_.find(odp_port);
        if (port == nullptr) {
            return obstacles_.add({RejectReason::output_not_offloaded,
                                   "output to a port that is no dr port of this device", {}, odp_port});
        }
        if (side_ && port->vport == match_.source) {
            // Uplink to uplink is refused by devices; for other vports whether a packet comes back is not known.
            return refuse(RejectReason::output_not_offloaded, "output to the in_port", ": " + port->name);
        }
        const auto leg = std::ranges::find_if(legs_, [this](const Leg& known) {
            return known.pops == now_.pops && known.pushes == now_.pushes;
        });
        if (leg != legs_.end() && std::ranges::count(leg->outputs, port->vport) != 0) {
            return refuse(RejectReason::unsupported_action, "two outputs to one port", ": " + port->name);
        }
        if (leg != legs_.end()) {
            leg->outputs.push_back(port->vport);
        } else {
            legs_.push_back(now_);
            legs_.back().outputs = {port->vport};
        }
    }

    void push(std::uint16_t tpid, std::uint16_t tci) {
        if (tpid != tpid_customer && tpid != tpid_service) {
            refuse(RejectReason::unsupported_action, "push_vlan", fmt::format("(tpid={:#06x})", tpid));
        }
        now_.pushes.push_back({tpid, static_cast<std::uint16_t>(tci & ~vlan_present)});
    }

    void pop() {
        if (!now_.pushes.empty()) {
            now_.pushes.pop_back();
        } else if (match_.vlan_tags == MatchPlan::unknown_tags) {
            refuse(RejectReason::unsupported_order, "pop_vlan of packets that may have no tag");
        } else if (now_.pops < match_.vlan_tags) {
            ++now_.pops;
        }   // else OVS leaves an untagged packet as it is
    }

    /// Whether the device takes this leg's operations, in this order, on this side.
    void check(const Leg& leg, Side side) {
        const bool wire = side == Side::wire;
        if (leg.pops != 0 && !wire && !caps_.pops_from_vports()) {
            refuse(RejectReason::device_limit, "pop_vlan of packets from a vport");
        }
        if (!leg.pushes.empty() && wire && !caps_.pushes_from_wire()) {
            refuse(RejectReason::device_limit, "push_vlan onto packets from the wire");
        }
        if (leg.pushes.size() > max_pushes) return refuse(RejectReason::too_many_actions, "more than two push_vlan");
        auto state = std::optional(OrderState::counted);
        const auto then = [&](OrderAction action) {
            if (state) state = next_state(side, *state, action);
        };
        for (unsigned i = 0; i < leg.pops; ++i) then(OrderAction::pop_vlan);
        for (std::size_t i = 0; i < leg.pushes.size(); ++i) then(OrderAction::push_vlan);
        then(leg.outputs.size() > 1 ? OrderAction::array : OrderAction::vport);
        if (state) return;
        refuse(RejectReason::unsupported_order, "push_vlan after pop_vlan",
               wire ? ", from the wire" : ", from a vport");
    }

    const MatchPlan& match_;
    const PortMap& ports_;
    const DeviceCaps& caps_;
    Obstacles& obstacles_;
    std::optional<Side> side_;   ///< nothing: the in_port is no vport
    Leg now_;
    std::vector<Leg> legs_;
};

}  // namespace

std::vector<Leg> compile_actions(std::span<const ovsdr_action> actions, const MatchPlan& match, const PortMap& ports,
                                 const DeviceCaps& caps, Obstacles& obstacles) noexcept {
    return ActionCompiler(match, ports, caps, obstacles).run(actions);
}

Compiled<RulePlan> compile(const ovsdr_megaflow& megaflow, const PortMap& ports, const DeviceCaps& caps) noexcept {
    Obstacles obstacles;
    for (std::uint64_t left = megaflow.unsupported_match.bits; left != 0; left &= left - 1) {
        const char* name = megaflow.unsupported_match.names[std::countr_zero(left)];
        obstacles.add(RejectReason::unsupported_match, StaticName::of_table(name));
    }
    const MatchPlan match = compile_match(megaflow.key, megaflow.mask, ports, caps, obstacles);
    const std::size_t n_actions = std::min<std::size_t>(megaflow.n_actions, OVSDR_MAX_ACTIONS);
    if (n_actions < megaflow.n_actions) {
        obstacles.add(RejectReason::too_many_actions, "more than a megaflow may have",
                      fmt::format(": {}, the most is {}", megaflow.n_actions, n_actions));
    }
    RulePlan plan{match, compile_actions({megaflow.actions, n_actions}, match, ports, caps, obstacles), 0};
    const bool from_wire = match.source == uplink_vport;
    if (plan.legs.size() == 1 && plan.legs[0].pushes.size() > 1 && caps.counts_after_push(from_wire)) {
        obstacles.add(RejectReason::device_limit, "two push_vlan, whose counter would count the first tag",
                      from_wire ? ", from the wire" : ", from a vport");
    }
    if (!obstacles.empty()) return tl::unexpected(obstacles.take());
    if (plan.legs.size() == 1 && from_wire && caps.counts_after_pop()) {
        plan.bytes_uncounted = static_cast<std::uint8_t>(plan.legs[0].pops * bytes_per_tag);
    }
    return plan;
}

}  // namespace ovsdr::dr
