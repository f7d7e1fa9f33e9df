#include "datapath/steering/rule_compile.hpp"

#include <array>
#include <cerrno>

#include "datapath/steering/vport_metadata.hpp"

namespace ovsdr::soft {
namespace {

constexpr unsigned max_vlans = 2;

[[nodiscard]] ActionSide action_side(DomainType domain, bool wire) noexcept {
    switch (domain) {
        case DomainType::nic_rx: return ActionSide::nic_ingress;
        case DomainType::nic_tx: return ActionSide::nic_egress;
        default: return wire ? ActionSide::fdb_ingress : ActionSide::fdb_egress;
    }
}

/// What depends on the action's own arguments, in the order in which libmlx5 looks.
[[nodiscard]] int check_action(const Matcher& matcher, bool receives, const Action& action) noexcept {
    const Domain& domain = matcher.table().domain();
    const bool old_format = matcher.table().domain().steering().profile().steering_format == 0;
    switch (action.type) {
        case ActionType::table:
            return &action.destination->domain() != &domain || action.destination->level() <= matcher.table().level()
                       ? EINVAL
                       : 0;
        case ActionType::root_table: return &action.destination->domain() != &domain ? EINVAL : 0;
        case ActionType::qp: return action.queue.sink.deliver == nullptr ? EINVAL : 0;
        case ActionType::modify_header: return action.root_level || action.domain != &domain ? EINVAL : 0;
        case ActionType::vport:
        case ActionType::dest_array: return action.domain != &domain ? EINVAL : 0;
        case ActionType::pop_vlan: return !receives && old_format ? EINVAL : 0;
        case ActionType::push_vlan: return receives && old_format ? EINVAL : 0;
        default: return 0;
    }
}

[[nodiscard]] int check_side(const Matcher& matcher, bool wire, std::span<Action* const> actions) noexcept {
    const DomainType domain = matcher.table().domain().type();
    const bool receives = domain == DomainType::nic_rx || (domain == DomainType::fdb && wire);
    const ActionSide side = action_side(domain, wire);
    ActionState state = ActionState::no_action;
    std::array<unsigned, action_types> times{};
    for (const Action* action : actions) {
        if (const int error = check_action(matcher, receives, *action); error != 0) return error;
        const bool vlan = action->type == ActionType::pop_vlan || action->type == ActionType::push_vlan;
        if (++times[static_cast<unsigned>(action->type)] > (vlan ? max_vlans : 1)) {
            return action->type == ActionType::push_vlan ? ENOTSUP : EINVAL;
        }
        state = next_state(side, state, action->type);
        if (state == ActionState::refused) return EOPNOTSUPP;
    }
    return 0;
}

enum class RootUse : std::uint8_t { refused, other, destination, queue, tag, default_miss, drop };

[[nodiscard]] RootUse root_use(ActionType type) noexcept {
    switch (type) {
        case ActionType::table:
        case ActionType::dest_array: return RootUse::destination;
        case ActionType::qp: return RootUse::queue;
        case ActionType::tag: return RootUse::tag;
        case ActionType::default_miss: return RootUse::default_miss;
        case ActionType::drop: return RootUse::drop;
        case ActionType::counter:
        case ActionType::modify_header: return RootUse::other;
        default: return RootUse::refused;
    }
}

/// libmlx5's dr_actions_build_attr(), then what the kernel's flow command takes in each namespace.
[[nodiscard]] int check_root(const Matcher& matcher, std::span<Action* const> actions) noexcept {
    const Domain& domain = matcher.table().domain();
    std::array<unsigned, action_types> times{};
    unsigned ends = 0;
    bool queue_or_tag = false;
    bool misses = false;
    for (const Action* action : actions) {
        const RootUse use = root_use(action->type);
        if (use == RootUse::refused) return ENOTSUP;
        const Domain* bound = action->destination != nullptr ? &action->destination->domain() : action->domain;
        if (bound != nullptr && bound != &domain) return EINVAL;
        if (action->type == ActionType::modify_header && !action->root_level) return EINVAL;
        if (use == RootUse::queue && action->queue.sink.deliver == nullptr) return EINVAL;
        if (++times[static_cast<unsigned>(action->type)] > 1) return EINVAL;
        if (use != RootUse::other && use != RootUse::tag) ++ends;
        queue_or_tag = queue_or_tag || use == RootUse::queue || use == RootUse::tag;
        misses = misses || use == RootUse::default_miss;
    }
    if (ends > 1 || (ends == 0 && domain.type() != DomainType::nic_tx)) return EINVAL;
    return domain.type() != DomainType::nic_rx && (queue_or_tag || misses) ? EINVAL : 0;
}

/// Packets whose bytes a counter sees with the tag that the same rule pops. STE v0 counts first. STE v1 does so only
/// where it transmits: there the counter sits in the popping STE, while receiving it moves on to the next one
/// (rdma-core, dr_ste_v1_set_actions_tx and _rx).
[[nodiscard]] std::uint8_t sides_counted_before_pop(Domain& domain) noexcept {
    if (domain.steering().profile().counts_before_pop || domain.type() == DomainType::nic_tx) return side_both;
    return domain.type() == DomainType::fdb ? side_vports : 0;
}

/// Appends one op per action of `type`, in the list's order, for the packets of `sides`.
void append(std::span<Action* const> actions, ActionType type, OpCode code, RuleNode& node,
            std::uint8_t sides = side_both) {
    if (sides == 0) return;
    for (const Action* action : actions) {
        if (action->type != type) continue;
        Op op{.code = code, .sides = sides, .value = action->value};
        if (type == ActionType::counter) {
            op.object = action->bulk.get();
            node.kept.push_back(action->bulk);
        } else if (type == ActionType::modify_header) {
            op.object = action->edits.get();
            node.kept.push_back(action->edits);
        }
        node.program.ops[node.program.length++] = op;
    }
}

[[nodiscard]] bool set_end(const Action& action, std::uint16_t queue, RuleNode& node) {
    End& end = node.program.end;
    switch (action.type) {
        case ActionType::drop: end.kind = EndKind::drop; return true;
        case ActionType::default_miss: end.kind = EndKind::miss; return true;
        case ActionType::table:
            end.kind = EndKind::table;
            end.table = &action.destination->view();
            return true;
        case ActionType::root_table:
            end.kind = EndKind::root_table;
            end.priority = static_cast<std::uint16_t>(action.value);
            return true;
        case ActionType::vport:
            end.kind = EndKind::vport;
            end.vport = VportId{static_cast<std::uint16_t>(action.value)};
            return true;
        case ActionType::qp:
            end.kind = EndKind::destination;
            end.destination = queue;
            return true;
        case ActionType::dest_array:
            end.kind = EndKind::array;
            end.array = action.array.get();
            node.kept.push_back(action.array);
            return true;
        default: return false;
    }
}

}  // namespace

std::uint8_t sides_of(const Matcher& matcher, const Key& value) noexcept {
    if (matcher.table().domain().type() != DomainType::fdb) return side_both;
    const Key& mask = matcher.mask().key;
    std::uint8_t sides = side_both;
    if (load_be16(mask.bytes() + key_offset::source_port) != 0) {
        const bool wire = load_be16(value.bytes() + key_offset::source_port) == uplink_vport.value;
        sides &= wire ? side_wire : side_vports;
    }
    if ((load_be32(mask.bytes() + key_offset::reg_c_0) & vport_metadata_mask) != 0) {
        const std::uint32_t bits = load_be32(value.bytes() + key_offset::reg_c_0) & vport_metadata_mask;
        sides &= bits == vport_metadata(uplink_vport) ? side_wire : side_vports;
    }
    return sides;
}

int check_actions(const Matcher& matcher, std::uint8_t sides, std::span<Action* const> actions) noexcept {
    if (matcher.table().root()) return check_root(matcher, actions);
    if (matcher.table().domain().type() != DomainType::fdb) return check_side(matcher, false, actions);
    if ((sides & side_wire) != 0) {
        if (const int error = check_side(matcher, true, actions); error != 0) return error;
    }
    return (sides & side_vports) != 0 ? check_side(matcher, false, actions) : 0;
}

void compile_actions(const Matcher& matcher, std::span<Action* const> actions, std::uint16_t queue, RuleNode& node) {
    const std::uint8_t counted_whole = sides_counted_before_pop(matcher.table().domain());
    append(actions, ActionType::counter, OpCode::count, node, counted_whole);
    append(actions, ActionType::pop_vlan, OpCode::pop_vlan, node);
    append(actions, ActionType::counter, OpCode::count, node, side_both & ~counted_whole);
    append(actions, ActionType::modify_header, OpCode::edit, node);
    append(actions, ActionType::push_vlan, OpCode::push_vlan, node);
    append(actions, ActionType::tag, OpCode::tag, node);
    for (const Action* action : actions) {
        if (set_end(*action, queue, node)) break;
    }
}

}  // namespace ovsdr::soft
