#include "offload/dr/action_cache.hpp"

#include <fmt/format.h>

namespace ovsdr::dr {

ActionCache::ActionCache(std::shared_ptr<Domain> fdb, std::uint32_t branch_level) noexcept
    : fdb_(std::move(fdb)), branch_level_(branch_level) {}

/// Called with mutex_ held. The key is the action's text, which says all that it does.
template <typename Make>
Result<ActionRef> ActionCache::cached(const Key& key, Make&& make) {
    if (const auto found = actions_.find(key); found != actions_.end()) {
        if (ActionRef action = found->second.lock()) return action;
    }
    Result<ActionRef> made = make();
    if (!made) return made;
    if (actions_.size() >= prune_at_) {
        std::erase_if(actions_, [](const auto& known) { return known.second.expired(); });
        prune_at_ = 2 * actions_.size() + 64;
    }
    actions_[key] = *made;
    return made;
}

Result<std::vector<ActionRef>> ActionCache::actions_for(const RulePlan& plan) noexcept {
    std::lock_guard lock(mutex_);
    if (plan.legs.size() == 1) return leg_actions(plan.legs[0]);
    Result<ActionRef> only =
        plan.legs.empty() ? cached("drop", [] { return Action::drop(); }) : to_legs(plan);
    if (!only) return tl::unexpected(std::move(only.error()));
    return std::vector<ActionRef>{std::move(*only)};
}

Result<ActionRef> ActionCache::to_vport(VportId vport) {
    std::lock_guard lock(mutex_);
    return to_vport_locked(vport);
}

Result<ActionRef> ActionCache::to_vport_locked(VportId vport) {
    return cached(fmt::format("dest_vport {}", vport.value), [&] { return Action::to_vport(fdb_, vport); });
}

Result<ActionRef> ActionCache::to_outputs(const std::vector<VportId>& outputs) {
    if (outputs.size() == 1) return to_vport_locked(outputs[0]);
    return cached(text_of(Leg{0, {}, outputs}), [&]() -> Result<ActionRef> {
        std::vector<ActionRef> destinations;
        for (const VportId vport : outputs) {
            auto destination = to_vport_locked(vport);
            if (!destination) return destination;
            destinations.push_back(std::move(*destination));
        }
        return Action::to_all(fdb_, destinations);
    });
}

Result<std::vector<ActionRef>> ActionCache::leg_actions(const Leg& leg) {
    std::vector<ActionRef> actions;
    const auto add = [&actions](Result<ActionRef> action) -> Result<void> {
        if (!action) return tl::unexpected(std::move(action.error()));
        actions.push_back(std::move(*action));
        return {};
    };
    for (unsigned i = 0; i < leg.pops; ++i) {
        auto done = add(cached("pop_vlan", [] { return Action::pop_vlan(); }));
        if (!done) return tl::unexpected(std::move(done.error()));
    }
    for (const VlanTag& tag : leg.pushes) {
        auto done = add(cached(fmt::format("push_vlan {:#x} {:#x}", tag.tpid, tag.tci),
                               [&] { return Action::push_vlan(fdb_, tag.tpid, tag.tci); }));
        if (!done) return tl::unexpected(std::move(done.error()));
    }
    if (auto done = add(to_outputs(leg.outputs)); !done) return tl::unexpected(std::move(done.error()));
    return actions;
}

Result<ActionRef> ActionCache::branch(const Leg& leg, VportId source) {
    return cached(fmt::format("branch from vport {}: {}", source.value, text_of(leg)),
                  [&] { return make_branch(leg, source); });
}

Result<ActionRef> ActionCache::make_branch(const Leg& leg, VportId source) {
    struct Branch {
        std::shared_ptr<MatcherSet> matchers;
        Rule rule;
    };
    auto table = Table::create(fdb_, branch_level_);
    if (!table) return tl::unexpected(std::move(table.error()));
    auto branch = std::make_shared<Branch>();
    branch->matchers = MatcherSet::create(*table);
    MatchParam mask, value;
    mask.set(field::source_port, 0xFFFF);
    value.set(field::source_port, source.value);
    auto matcher = branch->matchers->acquire({mask, 0});
    if (!matcher) return tl::unexpected(std::move(matcher.error()));
    auto actions = leg_actions(leg);
    if (!actions) return tl::unexpected(std::move(actions.error()));
    auto rule = Rule::create(std::move(*matcher), value, std::move(*actions));
    if (!rule) return tl::unexpected(std::move(rule.error()));
    branch->rule = std::move(*rule);
    return Action::to_table(std::move(*table), std::move(branch));
}

Result<ActionRef> ActionCache::to_legs(const RulePlan& plan) {
    std::vector<ActionRef> destinations;
    for (const Leg& leg : plan.legs) {
        if (leg.changes_packet()) {
            auto destination = branch(leg, plan.match.source);
            if (!destination) return destination;
            destinations.push_back(std::move(*destination));
            continue;
        }
        for (const VportId vport : leg.outputs) {
            auto destination = to_vport_locked(vport);
            if (!destination) return destination;
            destinations.push_back(std::move(*destination));
        }
    }
    return cached(fmt::format("from vport {}: {}", plan.match.source.value, text_of(plan)),
                  [&] { return Action::to_all(fdb_, destinations); });
}

}  // namespace ovsdr::dr
