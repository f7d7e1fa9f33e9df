#include "datapath/steering/dr_rule.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "datapath/steering/rule_compile.hpp"
#include "datapath/steering/steering_impl.hpp"

namespace ovsdr::soft {
namespace {

void hold_queues(std::span<Action* const> actions) noexcept {
    for (const Action* action : actions) {
        if (action->more().queue.hold != nullptr) action->more().queue.hold(action->more().queue.object);
        hold_queues(action->more().branches);
    }
}

void release_queues(std::span<Action* const> actions) noexcept {
    for (const Action* action : actions) {
        if (action->more().queue.release != nullptr) action->more().queue.release(action->more().queue.object);
        release_queues(action->more().branches);
    }
}

[[nodiscard]] bool reaches_queue(std::span<Action* const> actions) noexcept {
    return std::any_of(actions.begin(), actions.end(), [](const Action* action) {
        return action->type == ActionType::qp || reaches_queue(action->more().branches);
    });
}

}  // namespace

int Rule::create(Matcher& matcher, std::span<const std::uint8_t> given, std::span<Action* const> actions,
                 std::unique_ptr<Rule>& rule) {
    const bool unique = matcher.table().root() || !matcher.table().domain().duplicates_allowed();
    return make(matcher, given, actions, unique, rule);
}

int Rule::create_successor(Rule& old, std::span<const std::uint8_t> given, std::span<Action* const> actions,
                           std::unique_ptr<Rule>& rule) {
    return make(old.matcher(), given, actions, false, rule);
}

/// What a rule takes before there is one; given back unless the rule has taken it over.
struct Rule::Claims {
    explicit Claims(Steering::Impl& steering) noexcept : impl(steering) {}
    ~Claims() {
        if (destination != 0) impl.release_destination(destination);
    }
    Claims(const Claims&) = delete;
    Claims& operator=(const Claims&) = delete;

    [[nodiscard]] int take(const Domain& domain, std::span<Action* const> actions) {
        for (const Action* action : actions) {
            if (action->type != ActionType::qp) continue;
            // A rule that no packet can meet may name several queues.
            if (destination != 0) impl.release_destination(std::exchange(destination, std::uint16_t{0}));
            if (const int error = impl.acquire_destination(action->more().queue.sink, destination); error != 0) {
                return error;
            }
        }
        for (const Action* action : actions) {
            if (action->type != ActionType::aso_ct || action->more().aso_domain == &domain) continue;
            AsoUse use = action->more().aso_use;
            if (const int error = action->more().aso_bulk->take_link(domain, use); error != 0) return error;
            linked = std::make_unique<LinkedConnection>(action->more().aso_bulk, use);
        }
        return 0;
    }

    Steering::Impl& impl;
    std::uint16_t destination = 0;  ///< of the queue that the rule leads to
    std::unique_ptr<LinkedConnection> linked;
};

int Rule::make(Matcher& matcher, std::span<const std::uint8_t> given, std::span<Action* const> actions, bool unique,
               std::unique_ptr<Rule>& rule) {
    Key value;
    if (const int error = make_value(matcher.mask(), given, value); error != 0) return error;
    const std::uint8_t sides = sides_of(matcher, value);
    if (const int error = check_actions(matcher, sides, actions); error != 0) return error;
    if (actions.size() > UINT8_MAX) return ENOMEM;  // of a rule that no packet can meet: others have a few
    Domain& domain = matcher.table().domain();
    Steering::Impl& impl = domain.steering().impl();
    Room::Share room = impl.room.take(Resource::rules);
    if (!room) return ENOMEM;
    Claims claims(impl);
    if (const int error = claims.take(domain, actions); error != 0) return error;
    const RuleContext context{.sides = sides,
                              .queue = claims.destination,
                              .linked = claims.linked != nullptr ? &claims.linked->use() : nullptr};
    RulePlan plan;
    compile_actions(matcher, actions, context, plan);
    const RuleTable& rules = matcher.view().rules;
    const Lengths lengths{.ops = plan.ops.length(),
                          .words = static_cast<std::uint8_t>(rules.mask().length),
                          .actions = static_cast<std::uint8_t>(actions.size())};
    const std::size_t behind = size_behind(lengths) + (claims.linked != nullptr ? sizeof(LinkedConnection*) : 0);
    void* const block = impl.rule_blocks.take(sizeof(Rule) + behind);
    std::unique_ptr<Rule> made(::new (block) Rule(matcher, lengths, actions, plan, claims));
    made->sides = sides & side_both;
    rules.set_value(*made, value);
    if (const int error = made->install(unique); error != 0) return error;
    room.keep();
    rule = std::move(made);
    return 0;
}

Rule::Rule(Matcher& of, const Lengths& lengths, std::span<Action* const> listed, RulePlan& plan,
           Claims& claims) noexcept
    : RuleNode(lengths) {
    RuleNode::matcher = &of;
    end = plan.end;
    std::ranges::copy(plan.ops.all(), ops().begin());
    std::ranges::copy(listed, RuleNode::actions().begin());
    if (end.kind == EndKind::destination) claims.destination = 0;
    linked = claims.linked != nullptr;
    if (linked) link() = claims.linked.release();
    of.refer();
    for (Action* action : listed) action->refer();
    hold_queues(listed);
}

int Rule::install(bool unique) {
    Domain& domain = matcher().table().domain();
    Steering::Impl& impl = domain.steering().impl();
    RuleTable& rules = matcher().view().rules;
    const std::lock_guard chain(domain.tables_mutex());
    rules.prefetch(*this);
    // Before lanes stop caching for the change: this may take a while.
    rules.make_room(hash, impl.rcu);
    Steering::Impl::RuleComes coming(impl, matcher().view(), *this);
    if (unique && rules.contains(*this)) return EEXIST;
    rules.insert(*this);
    installed = true;
    coming.stay();
    return 0;
}

/// What a rule's end touches, fetched at once: with many rules none of it is in the cache.
void Rule::prefetch() const noexcept {
    for (const Action* action : actions()) __builtin_prefetch(action, 1);
}

void Rule::uninstall() noexcept {
    Domain& domain = matcher().table().domain();
    Steering::Impl& impl = domain.steering().impl();
    RuleTable& rules = matcher().view().rules;
    const std::lock_guard chain(domain.tables_mutex());
    rules.prefetch(*this);
    {
        const Steering::Impl::RuleGoes going(impl, matcher().view(), *this);
        rules.remove(*this);
    }
    if (domain.reclaims_memory()) rules.shrink_around(hash, impl.rcu);
    impl.room.give_back(Resource::rules);
}

void Rule::end_and_free() noexcept {
    prefetch();
    Matcher& of = matcher();
    Steering& steering = of.table().domain().steering();
    Steering::Impl& impl = steering.impl();
    if (installed) uninstall();
    if (reaches_queue(actions())) {
        if (installed) steering.synchronize();
        if (end.kind == EndKind::destination) impl.release_destination(end.destination);
        release_queues(actions());
    }
    if (linked) delete link();
    for (Action* action : actions()) {
        if (installed) action->keep_for_lanes(impl.rcu);
        action->forget();
    }
    if (installed) {
        impl.rcu.retire(this, BlockPool::give_back);
    } else {
        BlockPool::give_back(this);
    }
    of.forget();
}

}  // namespace ovsdr::soft
