// What may follow what in a rule's list of actions, per side of the FDB: the device's rules as a table.
//
// Model. An FDB rule exists twice in hardware, for packets from the wire and for packets from vports; each side starts
// in `none` and every action must have a row for the state it finds. Only the actions that we use have rows here.
//
// Threads: constants. Source: rdma-core 44 dr_action.c, next_action_state.
#pragma once

#include <cstdint>
#include <optional>

namespace ovsdr::dr {

enum class Side : std::uint8_t { wire, vports };   ///< rdma-core's FDB ingress and egress
enum class OrderState : std::uint8_t {
    none, counted, decapsulated, popped, pushed, modified, encapsulated, metered, done,
};
enum class OrderAction : std::uint8_t {
    count, decapsulate, pop_vlan, push_vlan, modify_header, encapsulate, meter, vport, table, array, drop, miss,
};

struct OrderRow {
    OrderState state;
    OrderAction action;
    OrderState next;
    bool wire;     ///< allowed on the wire's side
    bool vports;   ///< allowed on the vports' side
};

inline constexpr OrderRow action_order[] = {
    {OrderState::none, OrderAction::count, OrderState::counted, true, true},
    {OrderState::none, OrderAction::decapsulate, OrderState::decapsulated, true, false},
    {OrderState::none, OrderAction::pop_vlan, OrderState::popped, true, true},
    {OrderState::none, OrderAction::push_vlan, OrderState::pushed, true, true},
    {OrderState::none, OrderAction::modify_header, OrderState::modified, true, true},
    {OrderState::none, OrderAction::encapsulate, OrderState::encapsulated, true, true},
    {OrderState::none, OrderAction::meter, OrderState::metered, true, true},
    {OrderState::none, OrderAction::vport, OrderState::done, true, true},
    {OrderState::none, OrderAction::table, OrderState::done, true, true},
    {OrderState::none, OrderAction::array, OrderState::done, true, true},
    {OrderState::none, OrderAction::drop, OrderState::done, true, true},
    {OrderState::none, OrderAction::miss, OrderState::done, true, true},
    {OrderState::counted, OrderAction::count, OrderState::counted, true, true},
    {OrderState::counted, OrderAction::decapsulate, OrderState::decapsulated, true, false},
    {OrderState::counted, OrderAction::pop_vlan, OrderState::popped, true, true},
    {OrderState::counted, OrderAction::push_vlan, OrderState::pushed, true, true},
    {OrderState::counted, OrderAction::modify_header, OrderState::modified, true, true},
    {OrderState::counted, OrderAction::encapsulate, OrderState::encapsulated, true, true},
    {OrderState::counted, OrderAction::meter, OrderState::metered, true, true},
    {OrderState::counted, OrderAction::vport, OrderState::done, true, true},
    {OrderState::counted, OrderAction::table, OrderState::done, true, true},
    {OrderState::counted, OrderAction::array, OrderState::done, true, true},
    {OrderState::counted, OrderAction::drop, OrderState::done, true, true},
    {OrderState::counted, OrderAction::miss, OrderState::done, true, true},
    {OrderState::decapsulated, OrderAction::count, OrderState::decapsulated, true, false},
    {OrderState::decapsulated, OrderAction::pop_vlan, OrderState::popped, true, false},
    {OrderState::decapsulated, OrderAction::push_vlan, OrderState::pushed, true, false},
    {OrderState::decapsulated, OrderAction::modify_header, OrderState::modified, true, false},
    {OrderState::decapsulated, OrderAction::encapsulate, OrderState::encapsulated, true, false},
    {OrderState::decapsulated, OrderAction::meter, OrderState::metered, true, false},
    {OrderState::decapsulated, OrderAction::vport, OrderState::done, true, false},
    {OrderState::decapsulated, OrderAction::table, OrderState::done, true, false},
    {OrderState::decapsulated, OrderAction::array, OrderState::done, true, false},
    {OrderState::popped, OrderAction::count, OrderState::popped, true, true},
    {OrderState::popped, OrderAction::pop_vlan, OrderState::popped, true, true},
    {OrderState::popped, OrderAction::push_vlan, OrderState::pushed, false, true},
    {OrderState::popped, OrderAction::modify_header, OrderState::modified, true, true},
    {OrderState::popped, OrderAction::encapsulate, OrderState::encapsulated, true, true},
    {OrderState::popped, OrderAction::meter, OrderState::metered, true, false},
    {OrderState::popped, OrderAction::vport, OrderState::done, true, true},
    {OrderState::popped, OrderAction::table, OrderState::done, true, true},
    {OrderState::popped, OrderAction::array, OrderState::done, true, true},
    {OrderState::pushed, OrderAction::count, OrderState::pushed, true, true},
    {OrderState::pushed, OrderAction::push_vlan, OrderState::pushed, true, true},
    {OrderState::pushed, OrderAction::encapsulate, OrderState::encapsulated, true, true},
    {OrderState::pushed, OrderAction::meter, OrderState::metered, true, false},
    {OrderState::pushed, OrderAction::vport, OrderState::done, true, true},
    {OrderState::pushed, OrderAction::table, OrderState::done, true, true},
    {OrderState::pushed, OrderAction::array, OrderState::done, true, true},
    {OrderState::modified, OrderAction::count, OrderState::modified, true, true},
    {OrderState::modified, OrderAction::push_vlan, OrderState::pushed, true, true},
    {OrderState::modified, OrderAction::encapsulate, OrderState::encapsulated, true, true},
    {OrderState::modified, OrderAction::meter, OrderState::metered, true, false},
    {OrderState::modified, OrderAction::vport, OrderState::done, true, true},
    {OrderState::modified, OrderAction::table, OrderState::done, true, true},
    {OrderState::modified, OrderAction::array, OrderState::done, true, true},
    {OrderState::encapsulated, OrderAction::count, OrderState::encapsulated, true, true},
    {OrderState::encapsulated, OrderAction::vport, OrderState::done, true, true},
    {OrderState::encapsulated, OrderAction::table, OrderState::done, true, true},
    {OrderState::encapsulated, OrderAction::array, OrderState::done, true, true},
    {OrderState::metered, OrderAction::count, OrderState::metered, true, true},
    {OrderState::metered, OrderAction::push_vlan, OrderState::pushed, false, true},
    {OrderState::metered, OrderAction::modify_header, OrderState::modified, false, true},
    {OrderState::metered, OrderAction::encapsulate, OrderState::encapsulated, false, true},
    {OrderState::metered, OrderAction::meter, OrderState::metered, true, true},
    {OrderState::metered, OrderAction::vport, OrderState::done, true, true},
    {OrderState::metered, OrderAction::table, OrderState::done, true, true},
    {OrderState::metered, OrderAction::array, OrderState::done, true, true},
    {OrderState::done, OrderAction::count, OrderState::done, true, true},
};

/// The state after `action`; nothing when the device refuses it there.
[[nodiscard]] constexpr std::optional<OrderState> next_state(Side side, OrderState state, OrderAction action) noexcept {
    for (const OrderRow& row : action_order) {
        if (row.state != state || row.action != action) continue;
        if (side == Side::wire ? row.wire : row.vports) return row.next;
    }
    return std::nullopt;
}

}  // namespace ovsdr::dr
