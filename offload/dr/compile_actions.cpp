#include <endian.h>
#include <fmt/format.h>

#include <algorithm>

#include "offload/dr/action_order.hpp"
#include "offload/dr/compile.hpp"

namespace ovsdr::dr {

namespace {

constexpr std::uint16_t tpid_customer = 0x8100, tpid_service = 0x88a8;
constexpr std::uint16_t vlan_present = 0x1000;   ///< OVS's VLAN_CFI, no bit of the wire
constexpr std::size_t max_pushes = 2;            ///< of one rule
constexpr unsigned bytes_per_tag = 4;

tl::unexpected<Reject> reject(RejectReason reason, std::string detail) {
    return tl::unexpected(Reject{reason, std::move(detail)});
}

/// Follows the megaflow's packet through its actions: the tags it has lost and gained at each output.
class ActionCompiler {
public:
    ActionCompiler(const MatchPlan& match, const PortMap& ports, const DeviceCaps& caps) noexcept
        : match_(match), ports_(ports), caps_(caps), side_(match.source == uplink_vport ? Side::wire : Side::vports) {}

    Compiled<std::vector<Leg>> run(std::span<const ovsdr_action> actions) {
        for (const ovsdr_action& action : actions) {
            if (auto done = step(action); !done) return tl::unexpected(std::move(done.error()));
        }
        // Operations behind the last output reach nobody.
        std::stable_partition(legs_.begin(), legs_.end(), [](const Leg& leg) { return !leg.changes_packet(); });
        for (Leg& leg : legs_) {
            std::ranges::sort(leg.outputs);
            if (auto done = check(leg); !done) return tl::unexpected(std::move(done.error()));
        }
        if (legs_.size() > 1 && !caps_.copies_to_table) {
            return reject(RejectReason::device_limit, "outputs before and after a VLAN action (no copies to tables)");
        }
        return std::move(legs_);
    }

private:
    Compiled<void> step(const ovsdr_action& action) {
        switch (action.type) {
            case OVSDR_ACTION_OUTPUT: return output(OdpPort{action.output});
            case OVSDR_ACTION_PUSH_VLAN:
                return push(be16toh(action.push_vlan.be_tpid), be16toh(action.push_vlan.be_tci));
            case OVSDR_ACTION_POP_VLAN: return pop();
            case OVSDR_ACTION_UNSUPPORTED: break;
        }
        const bool named = action.type == OVSDR_ACTION_UNSUPPORTED && action.unsupported != nullptr;
        return reject(RejectReason::unsupported_action, named ? action.unsupported : "unknown");
    }

    Compiled<void> output(OdpPort odp_port) {
        const PortMap::Port* port = ports_.find(odp_port);
        if (port == nullptr) {
            return reject(RejectReason::output_not_offloaded,
                          fmt::format("port {} is no dr port of this device", odp_port.value));
        }
        if (port->vport == match_.source) {
            // Uplink to uplink is refused by devices; for other vports whether a packet comes back is not known.
            return reject(RejectReason::output_not_offloaded, fmt::format("{} is the in_port", port->name));
        }
        const auto leg = std::ranges::find_if(legs_, [this](const Leg& known) {
            return known.pops == now_.pops && known.pushes == now_.pushes;
        });
        if (leg != legs_.end() && std::ranges::count(leg->outputs, port->vport) != 0) {
            return reject(RejectReason::unsupported_action, fmt::format("two outputs to {}", port->name));
        }
        if (leg != legs_.end()) {
            leg->outputs.push_back(port->vport);
        } else {
            legs_.push_back(now_);
            legs_.back().outputs = {port->vport};
        }
        return {};
    }

    Compiled<void> push(std::uint16_t tpid, std::uint16_t tci) {
        if (tpid != tpid_customer && tpid != tpid_service) {
            return reject(RejectReason::unsupported_action, fmt::format("push_vlan(tpid={:#06x})", tpid));
        }
        now_.pushes.push_back({tpid, static_cast<std::uint16_t>(tci & ~vlan_present)});
        return {};
    }

    Compiled<void> pop() {
        if (!now_.pushes.empty()) {
            now_.pushes.pop_back();
        } else if (match_.vlan_tags == MatchPlan::unknown_tags) {
            return reject(RejectReason::unsupported_order, "pop_vlan of packets that may have no tag");
        } else if (now_.pops < match_.vlan_tags) {
            ++now_.pops;
        }   // else OVS leaves an untagged packet as it is
        return {};
    }

    /// Whether the device takes this leg's operations, in this order, on this side.
    Compiled<void> check(const Leg& leg) const {
        const bool wire = side_ == Side::wire;
        const char* side = wire ? "from the wire" : "from a vport";
        if (leg.pops != 0 && !wire && !caps_.pops_from_vports()) {
            return reject(RejectReason::device_limit, "pop_vlan of packets from a vport");
        }
        if (!leg.pushes.empty() && wire && !caps_.pushes_from_wire()) {
            return reject(RejectReason::device_limit, "push_vlan onto packets from the wire");
        }
        if (leg.pushes.size() > max_pushes) return reject(RejectReason::too_many_actions, "more than two push_vlan");
        auto state = std::optional(OrderState::counted);
        const auto then = [&](OrderAction action) {
            if (state) state = next_state(side_, *state, action);
        };
        for (unsigned i = 0; i < leg.pops; ++i) then(OrderAction::pop_vlan);
        for (std::size_t i = 0; i < leg.pushes.size(); ++i) then(OrderAction::push_vlan);
        then(leg.outputs.size() > 1 ? OrderAction::array : OrderAction::vport);
        if (!state) return reject(RejectReason::unsupported_order, fmt::format("push_vlan after pop_vlan, {}", side));
        return {};
    }

    const MatchPlan& match_;
    const PortMap& ports_;
    const DeviceCaps& caps_;
    Side side_;
    Leg now_;
    std::vector<Leg> legs_;
};

}  // namespace

Compiled<std::vector<Leg>> compile_actions(std::span<const ovsdr_action> actions, const MatchPlan& match,
                                           const PortMap& ports, const DeviceCaps& caps) noexcept {
    return ActionCompiler(match, ports, caps).run(actions);
}

Compiled<RulePlan> compile(const ovsdr_megaflow& megaflow, const PortMap& ports, const DeviceCaps& caps) noexcept {
    if (megaflow.unsupported_match != nullptr) {
        return reject(RejectReason::unsupported_match, megaflow.unsupported_match);
    }
    if (megaflow.n_actions > OVSDR_MAX_ACTIONS) {
        return reject(RejectReason::too_many_actions, fmt::format("{} actions", megaflow.n_actions));
    }
    auto match = compile_match(megaflow.key, megaflow.mask, ports, caps);
    if (!match) return tl::unexpected(std::move(match.error()));
    auto legs = compile_actions({megaflow.actions, megaflow.n_actions}, *match, ports, caps);
    if (!legs) return tl::unexpected(std::move(legs.error()));

    RulePlan plan{*match, std::move(*legs), 0};
    if (plan.legs.size() == 1 && match->source == uplink_vport && caps.counts_after_pop()) {
        plan.bytes_uncounted = static_cast<std::uint8_t>(plan.legs[0].pops * bytes_per_tag);
    }
    return plan;
}

}  // namespace ovsdr::dr
