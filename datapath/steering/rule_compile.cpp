#include "datapath/steering/rule_compile.hpp"

#include <algorithm>
#include <array>
#include <bit>
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
    const Profile& profile = matcher.table().domain().steering().profile();
    const auto leads_down = [&](const Table& next) {
        return &next.domain() == &domain && next.level() > matcher.table().level();
    };
    switch (action.type) {
        case ActionType::root_table: return &action.more().destination->domain() != &domain ? EINVAL : 0;
        case ActionType::qp: return action.more().queue.sink.deliver == nullptr ? EINVAL : 0;
        case ActionType::modify_header: return action.root_level || action.more().domain != &domain ? EINVAL : 0;
        case ActionType::vport:
        case ActionType::dest_array: return action.more().domain != &domain ? EINVAL : 0;
        case ActionType::table:
        case ActionType::meter:
        case ActionType::sampler: return leads_down(*action.more().destination) ? 0 : EINVAL;
        case ActionType::aso_first_hit:
        case ActionType::aso_flow_meter: return action.more().aso_bulk->owner() != domain.owner() ? EINVAL : 0;
        case ActionType::aso_ct:
            return action.more().aso_domain != &domain && !action.more().aso_bulk->linked() ? EINVAL : 0;
        case ActionType::pop_vlan: return !receives && !profile.pops_when_sending ? EINVAL : 0;
        case ActionType::push_vlan: return receives && !profile.pushes_when_receiving ? EINVAL : 0;
        case ActionType::decap_l3: return action.root_level ? EINVAL : 0;
        case ActionType::encap_l2:
        case ActionType::encap_l3:
            return action.root_level || (receives && !profile.encapsulates_when_receiving) ? EINVAL : 0;
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
        case ActionType::modify_header:
        case ActionType::decap_l2:
        case ActionType::decap_l3:
        case ActionType::encap_l2:
        case ActionType::encap_l3: return RootUse::other;
        default: return RootUse::refused;
    }
}

/// libmlx5's dr_actions_build_attr(), its flow command, and then what the kernel takes in each namespace, in this
/// order.
[[nodiscard]] int check_root(const Matcher& matcher, std::span<Action* const> actions) noexcept {
    const Domain& domain = matcher.table().domain();
    std::array<unsigned, action_types> times{};
    constexpr unsigned most_objects = 2;
    constexpr std::uint16_t last_priority = 15;
    unsigned ends = 0, objects = 0, reformats = 0;
    bool queue_or_tag = false;
    bool misses = false;
    int of_command = 0;
    const auto refuse = [&of_command](int error) { of_command = of_command != 0 ? of_command : error; };
    for (const Action* action : actions) {
        const RootUse use = root_use(action->type);
        if (use == RootUse::refused) return ENOTSUP;
        const Action::More& more = action->more();
        const Domain* bound = more.destination != nullptr ? &more.destination->domain() : more.domain;
        if (bound != nullptr && bound != &domain) return EINVAL;
        const bool is_object = action->type == ActionType::modify_header || action->more().reformat != nullptr;
        if (is_object && !action->root_level) return EINVAL;
        if (use == RootUse::queue && action->more().queue.sink.deliver == nullptr) return EINVAL;
        const bool again = ++times[static_cast<unsigned>(action->type)] > 1;
        if (again && use == RootUse::tag) refuse(EINVAL);
        if (again && action->type == ActionType::counter) refuse(EOPNOTSUPP);
        if (use != RootUse::other && use != RootUse::tag && ++ends > 1) refuse(EOPNOTSUPP);
        if (is_object && ++objects > most_objects) refuse(EOPNOTSUPP);
        reformats += action->more().reformat != nullptr && action->type != ActionType::decap_l2;
        queue_or_tag = queue_or_tag || use == RootUse::queue || use == RootUse::tag;
        misses = misses || use == RootUse::default_miss;
    }
    if (of_command != 0) return of_command;
    const auto twice = [&times](ActionType type) { return times[static_cast<unsigned>(type)] > 1; };
    if (reformats > 1 || twice(ActionType::decap_l2) || twice(ActionType::modify_header)) return EINVAL;
    if (ends == 0 && domain.type() != DomainType::nic_tx) return EINVAL;
    if (domain.type() != DomainType::nic_rx && (queue_or_tag || misses)) return EINVAL;
    return matcher.priority() > last_priority ? ENOMEM : 0;
}

/// Packets whose bytes a counter sees with the tag or tunnel that the same rule takes away. STE v0 counts first. STE v1
/// does so only where it transmits: there the counter sits in the popping STE, while receiving it moves on to the next
/// one (rdma-core, dr_ste_v1_set_actions_tx and _rx).
[[nodiscard]] std::uint8_t sides_counted_before_pop(Domain& domain) noexcept {
    if (domain.steering().profile().counts_before_pop || domain.type() == DomainType::nic_tx) return side_both;
    return domain.type() == DomainType::fdb ? side_vports : 0;
}

/// Appends ops to a plan. Ops of no side that the rule has are left out.
class Planner {
public:
    Planner(std::span<Action* const> actions, const RuleContext& context, RulePlan& plan) noexcept
        : actions_(actions), context_(context), plan_(plan) {}

    /// One op per action of `type`, in the list's order, for the packets of `sides`.
    void append(ActionType type, OpCode code, std::uint8_t sides) {
        if ((sides & context_.sides) == 0) return;
        for (const Action* action : actions_) {
            if (action->type == type) add(op_of(*action, code), sides);
        }
    }

    void add(Op op, std::uint8_t sides) {
        if ((sides & context_.sides) == 0) return;
        op.sides = sides;
        plan_.ops.push_back(op);
    }

private:
    [[nodiscard]] Op op_of(const Action& action, OpCode code) const noexcept {
        Op op{.code = code, .value = action.value};
        const AsoUse& use = action.more().aso_use;
        switch (action.type) {
            case ActionType::counter: op.object = action.bulk(); break;
            case ActionType::modify_header: op.object = action.more().edits.get(); break;
            case ActionType::sampler: op.object = action.more().sampling.get(); break;
            case ActionType::meter: op.object = action.more().metering.get(); break;
            case ActionType::decap_l2:
            case ActionType::decap_l3:
            case ActionType::encap_l2:
            case ActionType::encap_l3: op.object = action.more().reformat.get(); break;
            case ActionType::aso_first_hit:
                op.object = action.more().aso_bulk.get();
                op.value = use.offset;
                op.argument = static_cast<std::uint16_t>(use.reg_c << 8 | (use.set ? 1 : 0));
                break;
            case ActionType::aso_flow_meter:
                op.object = &action.more().aso_bulk->meter(use.offset);
                op.argument = static_cast<std::uint16_t>(use.reg_c << 8 | static_cast<unsigned>(use.colour));
                break;
            case ActionType::aso_ct: {
                const AsoUse& asked = context_.linked != nullptr ? *context_.linked : use;
                op.object = &action.more().aso_bulk->connection(asked.offset);
                op.argument = static_cast<std::uint16_t>(asked.reg_c << 8 | static_cast<unsigned>(asked.direction));
                break;
            }
            default: break;
        }
        return op;
    }

    std::span<Action* const> actions_;
    const RuleContext& context_;
    RulePlan& plan_;
};

/// Packets that an op is for: all, those that are sent or received, those that are counted with what a rule takes away
/// from them or without.
enum class OpSides : std::uint8_t { all, sending, receiving, counted_whole, counted_bare };

struct OrderedOp {
    ActionType type;
    OpCode code;
    OpSides sides = OpSides::all;
};

/// The order in which the hardware works.
constexpr OrderedOp op_order[] = {
    {ActionType::aso_flow_meter, OpCode::meter, OpSides::sending},
    {ActionType::aso_ct, OpCode::connection, OpSides::sending},
    {ActionType::counter, OpCode::count, OpSides::counted_whole},
    {ActionType::decap_l2, OpCode::reformat},
    {ActionType::decap_l3, OpCode::reformat},
    {ActionType::pop_vlan, OpCode::pop_vlan},
    {ActionType::aso_first_hit, OpCode::first_hit, OpSides::receiving},
    {ActionType::counter, OpCode::count, OpSides::counted_bare},
    {ActionType::modify_header, OpCode::edit},
    {ActionType::push_vlan, OpCode::push_vlan},
    {ActionType::encap_l2, OpCode::reformat},
    {ActionType::encap_l3, OpCode::reformat},
    {ActionType::tag, OpCode::tag},
    {ActionType::aso_first_hit, OpCode::first_hit, OpSides::sending},
    {ActionType::aso_flow_meter, OpCode::meter, OpSides::receiving},
    {ActionType::aso_ct, OpCode::connection, OpSides::receiving},
    {ActionType::meter, OpCode::flow_meter},
    {ActionType::sampler, OpCode::sample},
};

/// By action type, a bit for each of its places in op_order.
constexpr std::array<std::uint32_t, action_types> op_places = [] {
    static_assert(std::size(op_order) <= 32);
    std::array<std::uint32_t, action_types> places{};
    for (unsigned i = 0; i < std::size(op_order); ++i) places[static_cast<unsigned>(op_order[i].type)] |= 1U << i;
    return places;
}();

/// Sides that work in the order of a transmitting STE.
[[nodiscard]] std::uint8_t transmitting_sides(DomainType domain) noexcept {
    switch (domain) {
        case DomainType::nic_rx: return 0;
        case DomainType::nic_tx: return side_both;
        default: return side_vports;
    }
}

void set_end(const Action& action, std::uint16_t queue, End& end) {
    switch (action.type) {
        case ActionType::drop: end.kind = EndKind::drop; break;
        case ActionType::table:
        case ActionType::meter:
        case ActionType::sampler:
            end.kind = EndKind::table;
            end.table = &action.more().destination->view();
            break;
        case ActionType::root_table:
            end.kind = EndKind::root_table;
            end.rank = rank::of_priority(static_cast<std::uint16_t>(action.value));
            break;
        case ActionType::vport:
            end.kind = EndKind::vport;
            end.vport = VportId{static_cast<std::uint16_t>(action.value)};
            break;
        case ActionType::qp:
            end.kind = EndKind::destination;
            end.destination = queue;
            break;
        case ActionType::dest_array:
            end.kind = EndKind::array;
            end.array = action.more().array.get();
            break;
        default: break;  // a list without an end, or with default_miss, misses
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

void compile_actions(const Matcher& matcher, std::span<Action* const> actions, const RuleContext& context,
                     RulePlan& plan) {
    Domain& domain = matcher.table().domain();
    const std::uint8_t counted_whole = sides_counted_before_pop(domain);
    const std::uint8_t sending = transmitting_sides(domain.type());
    const std::uint8_t receiving = side_both & ~sending;
    Planner planner(actions, context, plan);
    std::uint32_t places = 0;
    for (const Action* action : actions) places |= op_places[static_cast<unsigned>(action->type)];
    for (; places != 0; places &= places - 1) {
        const OrderedOp& op = op_order[std::countr_zero(places)];
        switch (op.sides) {
            case OpSides::all: planner.append(op.type, op.code, side_both); break;
            case OpSides::sending: planner.append(op.type, op.code, sending); break;
            case OpSides::receiving: planner.append(op.type, op.code, receiving); break;
            case OpSides::counted_whole: planner.append(op.type, op.code, counted_whole); break;
            case OpSides::counted_bare: planner.append(op.type, op.code, side_both & ~counted_whole); break;
        }
    }
    for (const Action* action : actions) {
        // ConnectX-5 restores reg_c_0 behind the sampler, where packets come from vports.
        if (action->type == ActionType::sampler && action->more().edits != nullptr) {
            planner.add({.code = OpCode::edit, .object = action->more().edits.get()}, sending);
        }
        set_end(*action, context.queue, plan.end);
    }
}

}  // namespace ovsdr::soft
