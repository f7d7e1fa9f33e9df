#include "offload/dr/install/pipeline.hpp"

#include <fmt/format.h>

namespace ovsdr::dr {

namespace {

/// Assigns a Result's value or leaves with its Error.
template <typename T>
Result<void> take(T& place, Result<T> result) {
    if (!result) return tl::unexpected(std::move(result.error()));
    place = std::move(*result);
    return {};
}

Result<void> take_table(std::shared_ptr<MatcherSet>& place, const std::shared_ptr<Domain>& domain,
                        std::uint32_t level) {
    auto table = Table::create(domain, level);
    if (!table) return tl::unexpected(std::move(table.error()));
    place = MatcherSet::create(std::move(*table));
    return {};
}

/// In the root, a queue's rule comes before that of the manager's vport, should that be a port of ours as well.
constexpr std::uint16_t root_queue_priority = 0, root_vport_priority = 1;

}  // namespace

Result<std::unique_ptr<Pipeline>> Pipeline::create(const std::shared_ptr<Device>& device, const DeviceCaps& caps,
                                                   CounterPool& counters) noexcept {
    std::unique_ptr<Pipeline> pipeline(new Pipeline);
    pipeline->device_ = device;
    pipeline->manager_ = caps.manager_vport;
    pipeline->counters_ = &counters;
    if (auto made = pipeline->make_tables(device); !made) return tl::unexpected(std::move(made.error()));
    if (auto made = pipeline->make_miss_rules(counters); !made) return tl::unexpected(std::move(made.error()));
    return pipeline;
}

Result<void> Pipeline::make_tables(const std::shared_ptr<Device>& device) noexcept {
    if (auto made = take(fdb_, Domain::create(device, DomainType::fdb)); !made) return made;
    if (auto made = take(nic_rx_, Domain::create(device, DomainType::nic_rx)); !made) return made;
    if (auto made = take_table(fdb_root_, fdb_, 0); !made) return made;
    if (auto made = take_table(send_, fdb_, megaflow_level); !made) return made;
    if (auto made = take_table(megaflows_, fdb_, megaflow_level); !made) return made;
    if (auto made = take_table(miss_, fdb_, miss_level); !made) return made;
    if (auto made = take_table(nic_rx_root_, nic_rx_, 0); !made) return made;
    if (auto made = take(to_megaflows_, Action::to_table(megaflows_->shared_table())); !made) return made;
    if (auto made = take(to_send_, Action::to_table(send_->shared_table())); !made) return made;
    if (auto made = take(tag_, Action::tag(megaflow_table_id)); !made) return made;
    actions_ = std::make_unique<ActionCache>(fdb_, branch_level);
    return {};
}

Result<void> Pipeline::make_miss_rules(CounterPool& counters) noexcept {
    if (auto made = take(misses_, counters.acquire(0, false)); !made) return made;
    ActionRef miss, mark, to_miss;
    if (auto made = take(miss, Action::default_miss()); !made) return made;
    if (auto made = take(mark, Action::set_reg_c_1(fdb_, megaflow_table_id)); !made) return made;
    if (auto made = take(to_miss, Action::to_table(miss_->shared_table())); !made) return made;
    if (auto made = take(count_misses_, add(*miss_, {{}, 0}, {}, {misses_.action(), miss})); !made) return made;
    if (auto made = take(mark_misses_, add(*megaflows_, {{}, last_priority}, {}, {mark, to_miss})); !made) return made;
    return mark_connection_ends({mark, to_miss});
}

Result<void> Pipeline::mark_connection_ends(const std::vector<ActionRef>& to_miss) {
    constexpr std::uint32_t tcp = 6, fin = 1, rst = 4;
    for (const std::uint32_t version : {4U, 6U}) {
        for (const std::uint32_t flag : {fin, rst}) {
            MatchParam mask, value;
            mask.set(field::ip_version, version);
            value.set(field::ip_version, version);
            mask.set(field::ip_protocol, 0xFF);
            value.set(field::ip_protocol, tcp);
            mask.set(field::tcp_flags, flag);
            value.set(field::tcp_flags, flag);
            auto rule = add(*megaflows_, {mask, end_priority}, value, to_miss);
            if (!rule) return tl::unexpected(std::move(rule.error()));
            mark_ends_.push_back(std::move(*rule));
        }
    }
    return {};
}

Result<Rule> Pipeline::add(MatcherSet& table, MatcherSpec spec, const MatchParam& value,
                           std::vector<ActionRef> actions) {
    auto matcher = table.acquire(spec);
    if (!matcher) return tl::unexpected(std::move(matcher.error()));
    return Rule::create(std::move(*matcher), value, std::make_shared<const std::vector<ActionRef>>(std::move(actions)));
}

Result<QueueRules> Pipeline::serve(const QueueIn& queue) {
    QueueRules rules;
    rules.priority = queue.priority;
    ActionRef to_queue, to_vport;
    auto made = take(rules.led_up, CounterBulk::create(device_, CounterBulk::single_counter, 0));
    std::uint32_t slot = 0;
    if (made) made = take(slot, rules.led_up->take(0));
    if (made) made = take(to_queue, Action::to_queue_pair(queue.slow_path_qp));
    if (made) made = take(to_vport, actions_->to_vport(queue.vport));
    if (!made) return tl::unexpected(std::move(made.error()));

    MatchParam up_mask, up_value, queue_mask, queue_value, send_mask, send_value;
    up_mask.set(field::metadata_reg_c_0, queue.register_bits.mask);
    up_value.set(field::metadata_reg_c_0, queue.register_bits.value & queue.register_bits.mask);
    up_mask.set(field::metadata_reg_c_1, UINT32_MAX);
    up_value.set(field::metadata_reg_c_1, megaflow_table_id);
    send_mask.set(field::source_sqn, 0xFFFFFF);
    send_value.set(field::source_sqn, queue.slow_path_sqn);
    queue_mask = send_mask;
    queue_value = send_value;
    queue_mask.set(field::source_port, 0xFFFF);
    queue_value.set(field::source_port, manager_.value);

    // Where the device may fail, a queue that gets no packet yet loses none.
    made = take(rules.send_to_vport, add(*send_, {send_mask, 0}, send_value, {to_vport}));
    if (made) {
        made = take(rules.enter_send, add(*fdb_root_, {queue_mask, root_queue_priority}, queue_value, {to_send_}));
    }
    if (made) made = fdb_->wait_written();
    if (made) {
        made = take(rules.to_queue, add(*nic_rx_root_, {up_mask, queue.priority}, up_value,
                                        {rules.led_up->action(slot), tag_, to_queue}));
    }
    if (made) made = nic_rx_->wait_written();
    if (!made) return tl::unexpected(std::move(made.error()));
    return rules;
}

std::uint64_t Pipeline::stop_leading_up(QueueRules& rules) noexcept {
    rules.to_queue = Rule();
    // A device that fails here has been asked twice: what it has counted so far is the best that there is.
    (void)nic_rx_->drain();
    constexpr std::uint32_t only = 0;
    if (!rules.led_up->settle(only)) (void)rules.led_up->settle(only);
    return rules.led_up->read(only).packets;
}

Result<Rule> Pipeline::let_in(VportId vport) {
    MatchParam mask, value;
    mask.set(field::source_port, 0xFFFF);
    value.set(field::source_port, vport.value);
    return add(*fdb_root_, {mask, root_vport_priority}, value, {to_megaflows_});
}

Result<Rule> Pipeline::install(const RulePlan& plan, const Counter& counter) noexcept {
    auto actions = actions_->actions_for(plan);
    if (!actions) return tl::unexpected(std::move(actions.error()));
    auto matcher = megaflows_->acquire({plan.match.mask, megaflow_priority});
    if (!matcher) return tl::unexpected(std::move(matcher.error()));
    return Rule::create(std::move(*matcher), plan.match.value, std::move(*actions), counter.action().get());
}

namespace {

void append(std::string& text, const char* name, const MatcherSet& table) {
    const auto rows = table.rows();
    text += fmt::format("{} level {}: {} ({} matchers)\n", name_of(table.table().domain()->type()),
                        table.table().level(), name, rows.size());
    for (const MatcherSet::Row& row : rows) {
        text += fmt::format("  matcher #{} priority {}, {} rules: {}\n", row.number, row.spec.priority, row.rules,
                            text_of(row.spec.mask));
    }
}

}  // namespace

std::string Pipeline::text() const {
    std::string text;
    append(text, "root, what enters", *fdb_root_);
    append(text, "what the slow path sends", *send_);
    append(text, "megaflows", *megaflows_);
    append(text, "misses", *miss_);
    append(text, "root, what goes up", *nic_rx_root_);
    return text;
}

}  // namespace ovsdr::dr
