#include "offload/dr/install/action_cache.hpp"

#include <fmt/format.h>

namespace ovsdr::dr {

ActionCache::ActionCache(std::shared_ptr<Domain> fdb, std::uint32_t branch_level) noexcept
    : fdb_(std::move(fdb)), branch_level_(branch_level) {}

namespace {

/// Once there are `limit` entries; the next time when they have doubled.
void forget_expired(auto& known, std::size_t& limit) {
    if (known.size() < limit) return;
    std::erase_if(known, [](const auto& entry) { return entry.second.expired(); });
    limit = 2 * known.size() + 64;
}

}  // namespace

/// Called with mutex_ held. The key is the action's text, which says all that it does.
template <typename Make>
Result<ActionRef> ActionCache::cached(const Key& key, Make&& make) {
    if (const auto found = actions_.find(key); found != actions_.end()) {
        if (ActionRef action = found->second.lock()) return action;
    }
    Result<ActionRef> made = make();
    if (!made) return made;
    forget_expired(actions_, prune_at_);
    actions_[key] = *made;
    return made;
}

Result<ActionList> ActionCache::actions_for(const RulePlan& plan) noexcept {
    ListKey key{plan.legs.size() > 1 ? plan.match.source : VportId{0}, plan.legs};
    std::lock_guard lock(mutex_);
    if (const auto found = lists_.find(key); found != lists_.end()) {
        if (ActionList list = found->second.lock()) return list;
    }
    auto made = make_list(plan);
    if (!made) return tl::unexpected(std::move(made.error()));
    auto list = std::make_shared<const std::vector<ActionRef>>(std::move(*made));
    forget_expired(lists_, prune_lists_at_);
    lists_[std::move(key)] = list;
    return list;
}

Result<std::vector<ActionRef>> ActionCache::make_list(const RulePlan& plan) {
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
    auto rule =
        Rule::create(std::move(*matcher), value, std::make_shared<const std::vector<ActionRef>>(std::move(*actions)));
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
