#include "offload/dr/install/pipeline.hpp"

#include <cerrno>

#include "offload/dr/install/make.hpp"

namespace ovsdr::dr {

namespace {

/// The same list; who has it has `hold` too. Few rules have one.
ActionList kept_with(ActionList actions, std::shared_ptr<void> hold) {
    using Both = std::pair<std::shared_ptr<void>, ActionList>;
    const auto both = std::make_shared<Both>(std::move(hold), std::move(actions));
    return ActionList(both, both->second.get());
}

}  // namespace

Result<std::unique_ptr<Pipeline>> Pipeline::create(const std::shared_ptr<Device>& device, const DeviceCaps& caps,
                                                   CounterPool& counters) noexcept {
    std::unique_ptr<Pipeline> pipeline(new Pipeline);
    pipeline->device_ = device;
    pipeline->manager_ = caps.manager_vport;
    pipeline->counters_ = &counters;
    if (auto made = pipeline->make_tables(device, caps); !made) return tl::unexpected(std::move(made.error()));
    if (auto made = pipeline->make_miss_rules(counters); !made) return tl::unexpected(std::move(made.error()));
    return pipeline;
}

Result<void> Pipeline::make_tables(const std::shared_ptr<Device>& device, const DeviceCaps& caps) {
    ActionRef to_miss;
    Result<void> made = take(fdb_, Domain::create(device, DomainType::fdb));
    if (made) made = take(landing_, Landing::create(device, caps));
    if (made) made = take_table(fdb_root_, fdb_, 0);
    if (made) made = take_table(send_, fdb_, Levels::entry);
    if (made) made = take_table(miss_, fdb_, miss_level);
    if (made) made = take(to_send_, Action::to_table(send_->shared_table()));
    if (made) made = take(to_miss, Action::to_table(miss_->shared_table()));
    if (!made) return made;
    ids_ = std::make_shared<LandingIds>();
    tables_ = std::make_shared<TableSet>(fdb_, std::move(to_miss), *landing_, ids_);
    tunnel_rules_ = std::make_shared<TunnelRules>(device, tables_);
    made = take(entry_, tables_->make_entry());
    if (made) made = take(to_entry_, Action::to_table(entry_->matchers().shared_table()));
    meters_ = std::make_unique<MeterSet>(device, fdb_, *counters_, caps.meters_end_rules);
    works_ = std::make_shared<WorkSet>(fdb_, *landing_, ids_, *counters_);
    actions_ = std::make_unique<ActionCache>(fdb_, tables_, *meters_, works_);
    roce_ = std::make_unique<RoceEntrance>(fdb_, fdb_root_, to_entry_, caps, *counters_);
    return made;
}

Result<void> Pipeline::make_miss_rules(CounterPool& counters) {
    ActionRef miss;
    Result<void> made = take(misses_, counters.acquire(0, false));
    if (made) made = take(miss, Action::default_miss());
    if (made) made = take(count_misses_, make_rule(*miss_, {{}, 0}, {}, {miss}, misses_.action()));
    return made;
}

Result<void> Pipeline::serve(const QueueIn& queue, QueueRules& rules) {
    rules.priority = queue.priority;
    ActionRef to_queue, to_vport;
    auto made = take(rules.led_up, CounterBulk::create(device_, CounterBulk::single_counter));
    std::uint32_t slot = 0;
    if (made) made = take(slot, rules.led_up->take(0, false));
    if (made) made = take(to_queue, Action::to_queue_pair(queue.slow_path_qp));
    if (made) made = take(to_vport, actions_->to_vport(queue.vport));
    if (!made) return made;

    MatchParam queue_mask, queue_value, send_mask, send_value;
    send_mask.set(field::source_sqn, 0xFFFFFF);
    send_value.set(field::source_sqn, queue.slow_path_sqn);
    queue_mask = send_mask;
    queue_value = send_value;
    queue_mask.set(field::source_port, 0xFFFF);
    queue_value.set(field::source_port, manager_.value);

    // First what the device may fail at without a packet in the queue.
    made = take(rules.send_to_vport, make_rule(*send_, {send_mask, 0}, send_value, {to_vport}));
    if (made) {
        made = take(rules.enter_send,
                    make_rule(*fdb_root_, {queue_mask, root_queue_priority}, queue_value, {to_send_}));
    }
    if (made) made = fdb_->wait_written();
    // Priority 1 is behind what leads packets to the queue before, until that goes. Priority 0 is in front of it: each
    // of these rules takes packets over as it comes, the first one all of them.
    const Landing::Place place{queue.register_bits, queue.priority, rules.led_up->action(slot), !queue.by_kind.empty()};
    if (made) made = take(rules.to_queue, landing_->to_queue(place, std::move(to_queue)));
    for (const QueuePairFor& kind : queue.by_kind) {
        if (made) made = lead_kind(place, kind, rules.by_kind);
    }
    if (made) made = landing_->domain().wait_written();
    return made;
}

Result<void> Pipeline::lead_kind(const Landing::Place& place, const QueuePairFor& kind, std::vector<Rule>& rules) {
    ActionRef action;
    if (auto made = take(action, Action::to_queue_pair(kind.qp)); !made) return made;
    auto rule = landing_->to_queue_of_kind(place, kind.ip_version, kind.ip_protocol, std::move(action));
    if (!rule) return tl::unexpected(std::move(rule.error()));
    rules.push_back(std::move(*rule));
    return {};
}

std::uint64_t Pipeline::stop_leading_up(QueueRules& rules) noexcept {
    if (!rules.to_queue) return 0;
    rules.by_kind.clear();
    rules.to_queue = Rule();
    // A device that fails here has been asked twice: what it has counted so far is the best that there is.
    (void)landing_->domain().drain();
    constexpr std::uint32_t only = 0;
    if (!rules.led_up->read_now(only)) (void)rules.led_up->read_now(only);
    return rules.led_up->read(only).packets;
}

Result<Rule> Pipeline::let_in(VportId vport) {
    MatchParam mask, value;
    mask.set(field::source_port, 0xFFFF);
    value.set(field::source_port, vport.value);
    return make_rule(*fdb_root_, {mask, root_vport_priority}, value, {to_entry_});
}

std::shared_ptr<FlowTable> Pipeline::find(TableKey key) const {
    return key == TableKey{} ? entry_ : tables_->find(key);
}

std::shared_ptr<const InstalledWork> Pipeline::work_of(std::uint32_t id) const {
    const auto meaning = ids_->find(id);
    const auto* work = meaning ? std::get_if<std::shared_ptr<const InstalledWork>>(&*meaning) : nullptr;
    return work == nullptr ? nullptr : *work;
}

std::uint32_t Pipeline::table_id(TableKey key) const {
    const auto table = find(key);
    return table == nullptr ? 0 : table->id();
}

std::optional<NoWay> Pipeline::obstacle_to(const Ufid& ufid, const RulePlan& plan) const {
    if (plan.match.table == TableKey{} && plan.path.tables.empty() && plan.path.branches.empty()) return std::nullopt;
    auto no_way = no_way_for(plan, [this](TableKey key) -> std::optional<std::uint32_t> {
        const auto table = find(key);
        return table == nullptr ? std::nullopt : std::optional(table->level());
    });
    if (!no_way && plan.match.in_tunnel()) no_way = tunnel_rules_->obstacle_to(ufid, plan);
    return no_way;
}

Result<Rule> Pipeline::install(const Ufid& ufid, const RulePlan& plan, const MatchParam& value,
                               const Counter& counter) noexcept {
    auto table = find(plan.match.table);
    if (table == nullptr) return tl::unexpected(Error{ELOOP, "its table has gone", "recirc"});
    std::shared_ptr<FlowTable> hold;
    if (plan.match.in_tunnel()) {
        if (auto held = take(hold, tunnel_rules_->hold(ufid, plan, table)); !held) {
            return tl::unexpected(std::move(held.error()));
        }
    }
    auto actions = actions_->actions_for(plan.path, plan.match.source, table->level());
    if (!actions) return tl::unexpected(std::move(actions.error()));
    MatcherSet& matchers = table->matchers();
    auto matcher = matchers.acquire(plan.match.mask, FlowTable::megaflow_priority, std::move(table));
    if (!matcher) return tl::unexpected(std::move(matcher.error()));
    if (hold != nullptr) *actions = kept_with(std::move(*actions), std::move(hold));
    return Rule::create(std::move(*matcher), value, std::move(*actions), counter.action());
}

}  // namespace ovsdr::dr
