// Which action may follow which in a rule's list: a state machine per domain and direction.
//
// A list begins in no_action; an action that its state has no row for is EOPNOTSUPP. A list need not end in term: the
// packet then meets the domain's default behaviour. Rules of the FDB are two rules, one for packets from the wire
// (fdb_ingress) and one for packets from vports (fdb_egress), and each must be valid.
//
// Source: next_action_state in rdma-core 44's dr_action.c.
#pragma once

#include <cstdint>

namespace ovsdr::soft {

enum class ActionType : std::uint8_t {
    drop, qp, table, root_table, vport, dest_array, default_miss, tag, counter, modify_header, pop_vlan, push_vlan,
    decap_l2, decap_l3, encap_l2, encap_l3, meter, sampler, aso_first_hit, aso_flow_meter, aso_ct,
};
inline constexpr unsigned action_types = 21;

enum class ActionSide : std::uint8_t { nic_ingress, nic_egress, fdb_ingress, fdb_egress };

enum class ActionState : std::uint8_t { no_action, decap, encap, modify, pop, push, aso, non_term, term, refused };
inline constexpr unsigned action_states = 9;

/// ActionState::refused when `action` may not come next. `state` is not refused.
[[nodiscard]] ActionState next_state(ActionSide side, ActionState state, ActionType action) noexcept;

}  // namespace ovsdr::soft
