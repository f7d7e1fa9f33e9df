#include "datapath/steering/dr_rule.hpp"

#include <algorithm>
#include <cerrno>

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

int Rule::make(Matcher& matcher, std::span<const std::uint8_t> given, std::span<Action* const> actions, bool unique,
               std::unique_ptr<Rule>& rule) {
    Key value;
    if (const int error = make_value(matcher.mask(), given, value); error != 0) return error;
    matcher.view().rules.prefetch(value);
    const std::uint8_t sides = sides_of(matcher, value);
    if (const int error = check_actions(matcher, sides, actions); error != 0) return error;
    Steering::Impl& impl = matcher.table().domain().steering().impl();
    Room::Share room = impl.room.take(Resource::rules);
    if (!room) return ENOMEM;
    std::unique_ptr<Rule> made(new (actions.size()) Rule(matcher, actions));
    for (const Action* action : actions) {
        if (action->type != ActionType::qp) continue;
        if (const int error = impl.acquire_destination(action->more().queue.sink, made->destination_); error != 0) {
            return error;
        }
    }
    if (const int error = made->take_links(); error != 0) return error;
    const RuleContext context{.sides = sides,
                              .queue = made->destination_,
                              .linked = made->linked_ != nullptr ? &made->linked_->use() : nullptr};
    RulePlan plan;
    compile_actions(matcher, actions, context, plan);
    std::unique_ptr<RuleNode> node = make_node(matcher, value, plan);
    node->sides = sides;
    if (const int error = made->install(std::move(node), unique); error != 0) return error;
    room.keep();
    rule = std::move(made);
    return 0;
}

Rule::Rule(Matcher& matcher, std::span<Action* const> actions)
    : matcher_(matcher),
      action_count_(static_cast<std::uint32_t>(actions.size())),
      reaches_queue_(reaches_queue(actions)) {
    std::copy(actions.begin(), actions.end(), reinterpret_cast<Action**>(this + 1));
    matcher.refer();
    for (Action* action : actions) action->refer();
    hold_queues(actions);
}

int Rule::take_links() {
    const Domain& domain = matcher_.table().domain();
    for (const Action* action : actions()) {
        if (action->type != ActionType::aso_ct || action->more().aso_domain == &domain) continue;
        AsoUse use = action->more().aso_use;
        if (const int error = action->more().aso_bulk->take_link(domain, use); error != 0) return error;
        linked_ = std::make_unique<LinkedConnection>(action->more().aso_bulk, use);
    }
    return 0;
}

int Rule::install(std::unique_ptr<RuleNode> node, bool unique) {
    Domain& domain = matcher_.table().domain();
    Steering::Impl& impl = domain.steering().impl();
    const std::lock_guard chain(domain.tables_mutex());
    RuleNode* inserted = node.get();
    Steering::Impl::RuleComes coming(impl, matcher_.view(), *inserted);
    if (unique && matcher_.view().rules.contains(*inserted)) return EEXIST;
    matcher_.view().rules.insert(node, impl.rcu);
    coming.stay();
    node_ = inserted;
    link();
    return 0;
}

void Rule::link() noexcept {
    next_ = matcher_.rules();
    if (next_ != nullptr) next_->previous_ = this;
    matcher_.rules() = this;
}

/// What a rule's end touches, fetched at once: with many rules none of it is in the cache.
void Rule::prefetch() const noexcept {
    __builtin_prefetch(node_, 1);
    for (const Action* action : actions()) __builtin_prefetch(action, 1);
}

Rule::~Rule() {
    prefetch();
    Domain& domain = matcher_.table().domain();
    Steering::Impl& impl = domain.steering().impl();
    if (node_ != nullptr) {
        const std::lock_guard chain(domain.tables_mutex());
        __builtin_prefetch(previous_, 1);
        __builtin_prefetch(next_, 1);
        (previous_ == nullptr ? matcher_.rules() : previous_->next_) = next_;
        if (next_ != nullptr) next_->previous_ = previous_;
        const Steering::Impl::RuleGoes going(impl, matcher_.view(), *node_);
        RuleTable& rules = matcher_.view().rules;
        rules.remove(node_, impl.rcu);
        if (domain.reclaims_memory() && rules.sparse()) rules.shrink(impl.rcu);
        impl.room.give_back(Resource::rules);
    }
    if (reaches_queue_) {
        if (node_ != nullptr) domain.steering().synchronize();
        if (destination_ != 0) impl.release_destination(destination_);
        release_queues(actions());
    }
    for (Action* action : actions()) action->forget();
    matcher_.forget();
}

}  // namespace ovsdr::soft
