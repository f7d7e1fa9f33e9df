#include "datapath/steering/action_order.hpp"

#include <array>

namespace ovsdr::soft {
namespace {

using enum ActionType;
using enum ActionSide;
using State = ActionState;

[[nodiscard]] constexpr std::uint32_t bit(ActionType type) noexcept { return 1U << static_cast<unsigned>(type); }

/// Each action of the set leads from one state to the other.
struct Row {
    ActionSide side;
    State from, to;
    std::uint32_t actions;
};

constexpr Row rows[] = {
    {nic_ingress, State::no_action, State::term, bit(drop) | bit(qp) | bit(table) | bit(meter) | bit(sampler)
         | bit(dest_array) | bit(default_miss) | bit(root_table)},
    {nic_ingress, State::no_action, State::non_term, bit(tag) | bit(counter) | bit(aso_first_hit)},
    {nic_ingress, State::no_action, State::decap, bit(decap_l2) | bit(decap_l3)},
    {nic_ingress, State::no_action, State::encap, bit(encap_l2) | bit(encap_l3)},
    {nic_ingress, State::no_action, State::modify, bit(modify_header)},
    {nic_ingress, State::no_action, State::pop, bit(pop_vlan)},
    {nic_ingress, State::no_action, State::push, bit(push_vlan)},
    {nic_ingress, State::no_action, State::aso, bit(aso_flow_meter) | bit(aso_ct)},
    {nic_ingress, State::decap, State::term, bit(qp) | bit(table) | bit(meter) | bit(sampler) | bit(dest_array)
         | bit(root_table)},
    {nic_ingress, State::decap, State::decap, bit(tag) | bit(counter) | bit(aso_first_hit)},
    {nic_ingress, State::decap, State::modify, bit(modify_header)},
    {nic_ingress, State::decap, State::pop, bit(pop_vlan)},
    {nic_ingress, State::decap, State::push, bit(push_vlan)},
    {nic_ingress, State::decap, State::aso, bit(aso_flow_meter) | bit(aso_ct)},
    {nic_ingress, State::decap, State::encap, bit(encap_l2) | bit(encap_l3)},
    {nic_ingress, State::encap, State::term, bit(qp) | bit(table) | bit(sampler) | bit(dest_array) | bit(meter)
         | bit(root_table)},
    {nic_ingress, State::encap, State::encap, bit(tag) | bit(counter)},
    {nic_ingress, State::encap, State::aso, bit(aso_first_hit)},
    {nic_ingress, State::modify, State::term, bit(qp) | bit(table) | bit(meter) | bit(sampler) | bit(dest_array)
         | bit(root_table)},
    {nic_ingress, State::modify, State::modify, bit(tag) | bit(counter) | bit(aso_first_hit)},
    {nic_ingress, State::modify, State::aso, bit(aso_flow_meter) | bit(aso_ct)},
    {nic_ingress, State::modify, State::push, bit(push_vlan)},
    {nic_ingress, State::modify, State::encap, bit(encap_l2) | bit(encap_l3)},
    {nic_ingress, State::pop, State::term, bit(qp) | bit(table) | bit(meter) | bit(sampler) | bit(dest_array)
         | bit(root_table)},
    {nic_ingress, State::pop, State::pop, bit(tag) | bit(counter) | bit(aso_first_hit) | bit(pop_vlan)},
    {nic_ingress, State::pop, State::modify, bit(modify_header)},
    {nic_ingress, State::pop, State::aso, bit(aso_flow_meter) | bit(aso_ct)},
    {nic_ingress, State::pop, State::encap, bit(encap_l2) | bit(encap_l3)},
    {nic_ingress, State::push, State::term, bit(qp) | bit(table) | bit(meter) | bit(sampler) | bit(dest_array)
         | bit(root_table)},
    {nic_ingress, State::push, State::push, bit(tag) | bit(counter) | bit(aso_first_hit) | bit(push_vlan)},
    {nic_ingress, State::push, State::encap, bit(encap_l2) | bit(encap_l3)},
    {nic_ingress, State::aso, State::term, bit(qp) | bit(table) | bit(sampler) | bit(dest_array) | bit(root_table)},
    {nic_ingress, State::aso, State::aso, bit(counter) | bit(aso_first_hit) | bit(aso_flow_meter) | bit(aso_ct)},
    {nic_ingress, State::non_term, State::term, bit(drop) | bit(qp) | bit(table) | bit(meter) | bit(sampler)
         | bit(dest_array) | bit(default_miss) | bit(root_table)},
    {nic_ingress, State::non_term, State::non_term, bit(tag) | bit(counter) | bit(aso_first_hit)},
    {nic_ingress, State::non_term, State::decap, bit(decap_l2) | bit(decap_l3)},
    {nic_ingress, State::non_term, State::modify, bit(modify_header)},
    {nic_ingress, State::non_term, State::pop, bit(pop_vlan)},
    {nic_ingress, State::non_term, State::push, bit(push_vlan)},
    {nic_ingress, State::non_term, State::aso, bit(aso_flow_meter) | bit(aso_ct)},
    {nic_ingress, State::non_term, State::encap, bit(encap_l2) | bit(encap_l3)},
    {nic_ingress, State::term, State::term, bit(counter)},
    {nic_egress, State::no_action, State::term, bit(drop) | bit(table) | bit(meter) | bit(default_miss)
         | bit(root_table)},
    {nic_egress, State::no_action, State::non_term, bit(counter) | bit(aso_first_hit)},
    {nic_egress, State::no_action, State::encap, bit(encap_l2) | bit(encap_l3)},
    {nic_egress, State::no_action, State::modify, bit(modify_header)},
    {nic_egress, State::no_action, State::push, bit(push_vlan)},
    {nic_egress, State::no_action, State::pop, bit(pop_vlan)},
    {nic_egress, State::no_action, State::aso, bit(aso_flow_meter) | bit(aso_ct)},
    {nic_egress, State::encap, State::term, bit(table) | bit(meter) | bit(root_table)},
    {nic_egress, State::encap, State::encap, bit(counter) | bit(aso_first_hit)},
    {nic_egress, State::modify, State::term, bit(table) | bit(meter) | bit(root_table)},
    {nic_egress, State::modify, State::modify, bit(counter) | bit(aso_first_hit)},
    {nic_egress, State::modify, State::encap, bit(encap_l2) | bit(encap_l3)},
    {nic_egress, State::modify, State::push, bit(push_vlan)},
    {nic_egress, State::pop, State::term, bit(table) | bit(meter) | bit(root_table)},
    {nic_egress, State::pop, State::pop, bit(counter) | bit(aso_first_hit) | bit(pop_vlan)},
    {nic_egress, State::pop, State::push, bit(push_vlan)},
    {nic_egress, State::pop, State::modify, bit(modify_header)},
    {nic_egress, State::pop, State::encap, bit(encap_l2) | bit(encap_l3)},
    {nic_egress, State::push, State::term, bit(table) | bit(meter) | bit(root_table)},
    {nic_egress, State::push, State::push, bit(counter) | bit(aso_first_hit) | bit(push_vlan)},
    {nic_egress, State::push, State::encap, bit(encap_l2) | bit(encap_l3)},
    {nic_egress, State::aso, State::encap, bit(encap_l2) | bit(encap_l3)},
    {nic_egress, State::aso, State::modify, bit(modify_header)},
    {nic_egress, State::aso, State::push, bit(push_vlan)},
    {nic_egress, State::aso, State::aso, bit(counter) | bit(aso_first_hit) | bit(aso_flow_meter) | bit(aso_ct)},
    {nic_egress, State::aso, State::term, bit(drop) | bit(table) | bit(default_miss) | bit(root_table)},
    {nic_egress, State::non_term, State::term, bit(drop) | bit(table) | bit(meter) | bit(default_miss)
         | bit(root_table)},
    {nic_egress, State::non_term, State::non_term, bit(counter) | bit(aso_first_hit)},
    {nic_egress, State::non_term, State::encap, bit(encap_l2) | bit(encap_l3)},
    {nic_egress, State::non_term, State::modify, bit(modify_header)},
    {nic_egress, State::non_term, State::push, bit(push_vlan)},
    {nic_egress, State::non_term, State::pop, bit(pop_vlan)},
    {nic_egress, State::non_term, State::aso, bit(aso_flow_meter) | bit(aso_ct)},
    {nic_egress, State::term, State::term, bit(counter)},
    {fdb_ingress, State::no_action, State::term, bit(drop) | bit(table) | bit(meter) | bit(sampler)
         | bit(dest_array) | bit(vport) | bit(default_miss) | bit(root_table)},
    {fdb_ingress, State::no_action, State::non_term, bit(counter) | bit(aso_first_hit)},
    {fdb_ingress, State::no_action, State::decap, bit(decap_l2) | bit(decap_l3)},
    {fdb_ingress, State::no_action, State::modify, bit(modify_header)},
    {fdb_ingress, State::no_action, State::pop, bit(pop_vlan)},
    {fdb_ingress, State::no_action, State::push, bit(push_vlan)},
    {fdb_ingress, State::no_action, State::aso, bit(aso_flow_meter) | bit(aso_ct)},
    {fdb_ingress, State::no_action, State::encap, bit(encap_l2) | bit(encap_l3)},
    {fdb_ingress, State::decap, State::term, bit(table) | bit(meter) | bit(sampler) | bit(dest_array) | bit(vport)
         | bit(root_table)},
    {fdb_ingress, State::decap, State::decap, bit(counter) | bit(aso_first_hit)},
    {fdb_ingress, State::decap, State::modify, bit(modify_header)},
    {fdb_ingress, State::decap, State::pop, bit(pop_vlan)},
    {fdb_ingress, State::decap, State::push, bit(push_vlan)},
    {fdb_ingress, State::decap, State::aso, bit(aso_flow_meter) | bit(aso_ct)},
    {fdb_ingress, State::decap, State::encap, bit(encap_l2) | bit(encap_l3)},
    {fdb_ingress, State::encap, State::term, bit(table) | bit(sampler) | bit(dest_array) | bit(vport) | bit(meter)
         | bit(root_table)},
    {fdb_ingress, State::encap, State::encap, bit(counter)},
    {fdb_ingress, State::encap, State::aso, bit(aso_first_hit)},
    {fdb_ingress, State::modify, State::term, bit(table) | bit(meter) | bit(sampler) | bit(dest_array) | bit(vport)
         | bit(root_table)},
    {fdb_ingress, State::modify, State::modify, bit(counter) | bit(aso_first_hit)},
    {fdb_ingress, State::modify, State::aso, bit(aso_flow_meter) | bit(aso_ct)},
    {fdb_ingress, State::modify, State::push, bit(push_vlan)},
    {fdb_ingress, State::modify, State::encap, bit(encap_l2) | bit(encap_l3)},
    {fdb_ingress, State::pop, State::term, bit(table) | bit(vport) | bit(meter) | bit(sampler) | bit(dest_array)
         | bit(root_table)},
    {fdb_ingress, State::pop, State::pop, bit(pop_vlan) | bit(counter) | bit(aso_first_hit)},
    {fdb_ingress, State::pop, State::modify, bit(modify_header)},
    {fdb_ingress, State::pop, State::aso, bit(aso_flow_meter) | bit(aso_ct)},
    {fdb_ingress, State::pop, State::encap, bit(encap_l2) | bit(encap_l3)},
    {fdb_ingress, State::push, State::term, bit(table) | bit(vport) | bit(meter) | bit(sampler) | bit(dest_array)
         | bit(root_table)},
    {fdb_ingress, State::push, State::push, bit(push_vlan) | bit(counter) | bit(aso_first_hit)},
    {fdb_ingress, State::push, State::aso, bit(aso_flow_meter)},
    {fdb_ingress, State::push, State::encap, bit(encap_l2) | bit(encap_l3)},
    {fdb_ingress, State::aso, State::term, bit(vport) | bit(table) | bit(sampler) | bit(dest_array)
         | bit(root_table)},
    {fdb_ingress, State::aso, State::aso, bit(counter) | bit(aso_first_hit) | bit(aso_flow_meter) | bit(aso_ct)},
    {fdb_ingress, State::non_term, State::term, bit(drop) | bit(table) | bit(meter) | bit(sampler) | bit(dest_array)
         | bit(vport) | bit(default_miss) | bit(root_table)},
    {fdb_ingress, State::non_term, State::non_term, bit(counter) | bit(aso_first_hit)},
    {fdb_ingress, State::non_term, State::decap, bit(decap_l2) | bit(decap_l3)},
    {fdb_ingress, State::non_term, State::modify, bit(modify_header)},
    {fdb_ingress, State::non_term, State::pop, bit(pop_vlan)},
    {fdb_ingress, State::non_term, State::push, bit(push_vlan)},
    {fdb_ingress, State::non_term, State::aso, bit(aso_flow_meter) | bit(aso_ct)},
    {fdb_ingress, State::non_term, State::encap, bit(encap_l2) | bit(encap_l3)},
    {fdb_ingress, State::term, State::term, bit(counter)},
    {fdb_egress, State::no_action, State::term, bit(drop) | bit(table) | bit(meter) | bit(sampler) | bit(dest_array)
         | bit(vport) | bit(default_miss) | bit(root_table)},
    {fdb_egress, State::no_action, State::non_term, bit(counter) | bit(aso_first_hit)},
    {fdb_egress, State::no_action, State::modify, bit(modify_header)},
    {fdb_egress, State::no_action, State::encap, bit(encap_l2) | bit(encap_l3)},
    {fdb_egress, State::no_action, State::push, bit(push_vlan)},
    {fdb_egress, State::no_action, State::pop, bit(pop_vlan)},
    {fdb_egress, State::no_action, State::aso, bit(aso_flow_meter) | bit(aso_ct)},
    {fdb_egress, State::encap, State::term, bit(table) | bit(meter) | bit(sampler) | bit(dest_array) | bit(vport)
         | bit(root_table)},
    {fdb_egress, State::encap, State::encap, bit(counter) | bit(aso_first_hit)},
    {fdb_egress, State::modify, State::term, bit(table) | bit(meter) | bit(sampler) | bit(dest_array) | bit(vport)
         | bit(root_table)},
    {fdb_egress, State::modify, State::modify, bit(counter) | bit(aso_first_hit)},
    {fdb_egress, State::modify, State::encap, bit(encap_l2) | bit(encap_l3)},
    {fdb_egress, State::modify, State::push, bit(push_vlan)},
    {fdb_egress, State::pop, State::term, bit(table) | bit(meter) | bit(sampler) | bit(dest_array) | bit(vport)
         | bit(root_table)},
    {fdb_egress, State::pop, State::pop, bit(counter) | bit(aso_first_hit) | bit(pop_vlan)},
    {fdb_egress, State::pop, State::push, bit(push_vlan)},
    {fdb_egress, State::pop, State::modify, bit(modify_header)},
    {fdb_egress, State::pop, State::encap, bit(encap_l2) | bit(encap_l3)},
    {fdb_egress, State::push, State::term, bit(table) | bit(meter) | bit(sampler) | bit(dest_array) | bit(vport)
         | bit(root_table)},
    {fdb_egress, State::push, State::push, bit(push_vlan) | bit(counter) | bit(aso_first_hit)},
    {fdb_egress, State::push, State::encap, bit(encap_l2) | bit(encap_l3)},
    {fdb_egress, State::aso, State::encap, bit(encap_l2) | bit(encap_l3)},
    {fdb_egress, State::aso, State::modify, bit(modify_header)},
    {fdb_egress, State::aso, State::push, bit(push_vlan)},
    {fdb_egress, State::aso, State::term, bit(vport) | bit(table) | bit(sampler) | bit(dest_array) | bit(root_table)},
    {fdb_egress, State::aso, State::aso, bit(counter) | bit(aso_first_hit) | bit(aso_flow_meter) | bit(aso_ct)},
    {fdb_egress, State::non_term, State::term, bit(drop) | bit(table) | bit(meter) | bit(sampler) | bit(dest_array)
         | bit(vport) | bit(default_miss) | bit(root_table)},
    {fdb_egress, State::non_term, State::non_term, bit(counter) | bit(aso_first_hit)},
    {fdb_egress, State::non_term, State::modify, bit(modify_header)},
    {fdb_egress, State::non_term, State::encap, bit(encap_l2) | bit(encap_l3)},
    {fdb_egress, State::non_term, State::push, bit(push_vlan)},
    {fdb_egress, State::non_term, State::pop, bit(pop_vlan)},
    {fdb_egress, State::non_term, State::aso, bit(aso_flow_meter) | bit(aso_ct)},
    {fdb_egress, State::term, State::term, bit(counter)},
};

using Orders = std::array<std::array<std::array<State, action_types>, action_states>, 4>;

constexpr Orders orders = [] {
    Orders made{};
    for (auto& side : made) {
        for (auto& state : side) state.fill(State::refused);
    }
    for (const Row& row : rows) {
        for (unsigned action = 0; action < action_types; ++action) {
            if ((row.actions >> action & 1) == 0) continue;
            made[static_cast<unsigned>(row.side)][static_cast<unsigned>(row.from)][action] = row.to;
        }
    }
    return made;
}();

}  // namespace

ActionState next_state(ActionSide side, ActionState state, ActionType action) noexcept {
    return orders[static_cast<unsigned>(side)][static_cast<unsigned>(state)][static_cast<unsigned>(action)];
}

}  // namespace ovsdr::soft
