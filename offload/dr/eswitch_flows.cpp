#include <algorithm>
#include <cerrno>

#include "offload/dr/eswitch_impl.hpp"

namespace ovsdr::dr {

namespace {

void add(FlowStats& sum, const FlowStats& part) noexcept {
    sum.packets += part.packets;
    sum.bytes += part.bytes;
    sum.used_ms = std::max(sum.used_ms, part.used_ms);
}

}  // namespace

/// A rule that the device keeps goes on: what it counts must not be another megaflow's, and where it leads must stay.
void EswitchImpl::end(Rule& rule, Counter& counter) noexcept {
    if (rule.end()) return;
    if (counter) counter.withhold();
    std::lock_guard lock(kept_mutex_);
    kept_.push_back(std::move(rule));
}

PutOutcome EswitchImpl::put(const Ufid& ufid, const ovsdr_megaflow& megaflow, std::uint16_t neighbourhood) noexcept {
    const auto map_lock = read_ports();
    FlowShard& shard = shard_of(ufid);
    std::lock_guard lock(shard.mutex);
    shard.flows.prefetch(ufid);
    auto [given, plan] = plans_.store(megaflow, parts_);
    Flow& flow = shard.flows.get(ufid);
    if (flow.now.rule && flow.megaflow == given) return std::monostate{};
    if (flow.megaflow) shard.ports.remove(flow.megaflow);
    flow.megaflow = std::move(given);
    flow.neighbourhood = neighbourhood;
    shard.ports.add(flow.megaflow);
    Update update{.flow = &flow, .given = &megaflow, .known = std::move(plan)};
    bring_up_to_date(std::span(&update, 1));
    return std::move(update.outcome);
}

/// Where there was a rule already, the new one goes in before the old one goes out, and both count: at any moment a
/// packet finds exactly one of them, never the slow path, whichever of two equal matches the device tries first.
void EswitchImpl::bring_up_to_date(std::span<Update> updates) noexcept {
    for (Update& update : updates) prepare(update);
    wait_for_replacements(updates);
    std::vector<Retirement> retirements;
    bool any_replaced = false;
    for (Update& update : updates) {
        Flow& flow = *update.flow;
        if (std::holds_alternative<std::monostate>(update.outcome)) {
            std::swap(flow.now.rule, update.next.rule);
            if (!update.next.counter) {
                any_replaced = any_replaced || update.next.rule;
                end(update.next.rule, flow.now.counter);   // its successor counts into the same counter
                continue;
            }
            std::swap(flow.now.counter, update.next.counter);
        } else if (flow.now.counter) {
            // A new rule that shares the counter goes first: should the device keep it, nobody else gets that counter.
            if (!update.next.counter) end(update.next.rule, flow.now.counter);
            retirements.push_back({&flow, std::exchange(flow.now, Installation{})});
        }
        if (update.next.counter) retirements.push_back({&flow, std::move(update.next)});
    }
    retire(retirements);
    // Packets may be on their way to what the old rules led to, which goes with the updates.
    if (any_replaced) {
        (void)pipeline_->fdb().drain();
        backlog_.room();
    }
    for (const auto& [flow, what, counted] : retirements) {
        add(flow->in_trouble().carried, counted);
    }
    for (Update& update : updates) finish(update);
}

/// Compiles the megaflow and makes its new rule, beside the present one if there is one.
void EswitchImpl::prepare(Update& update) noexcept {
    Flow& flow = *update.flow;
    auto planned = plans_.plan_for(flow.megaflow, std::move(update.known), [&] {
        return update.given != nullptr ? compiled(*update.given) : compiled(flow.megaflow.restore());
    });
    if (!planned) {
        update.outcome = std::move(planned.error());
        return;
    }
    const RulePlan& plan = *planned->plan;
    update.table_changes = pipeline_->tables().changes();
    if (must_wait(update, plan)) return;
    if (update.in_line && !flow.now.rule && backlog_.is_full()) {
        update.asked = false;
        update.outcome = backlog_.full();
        return;
    }
    if (auto installed = install(flow, *planned, update.next); !installed) {
        if (must_wait(update, plan)) return;   // what it needs has become another's meanwhile
        backlog_.refused(installed.error(), !update.in_line);
        update.outcome = std::move(installed.error());
        return;
    }
    backlog_.taken();
}

bool EswitchImpl::must_wait(Update& update, const RulePlan& plan) noexcept {
    auto no_way = pipeline_->obstacle_to(update.flow->ufid, plan);
    if (!no_way) return false;
    update.waits_for = {no_way->because, plan.match.table};
    update.again_at = no_way->again_at;
    update.outcome = std::move(no_way->reject);
    return true;
}

Result<void> EswitchImpl::install(Flow& flow, const PlanCache::Planned& planned, Installation& next) noexcept {
    const RulePlan& plan = *planned.plan;
    if (!flow.now.counter || flow.now.counter.bytes_uncounted() != plan.bytes_uncounted) {
        auto counter = counters_->acquire(plan.bytes_uncounted, true, flow.neighbourhood);
        if (!counter) return tl::unexpected(std::move(counter.error()));
        next.counter = std::move(*counter);
    }
    auto rule = pipeline_->install(flow.ufid, plan, planned.value, next.counter ? next.counter : flow.now.counter);
    if (!rule && rule.error().code == EEXIST && flow.now.rule) {
        // A device that has no two rules with one value: the old one must go first.
        end(flow.now.rule, flow.now.counter);
        (void)pipeline_->fdb().drain();   // what it led to goes with this update
        rule = pipeline_->install(flow.ufid, plan, planned.value, next.counter ? next.counter : flow.now.counter);
    }
    if (!rule) {
        next.counter = Counter();   // nothing has counted into it
        return tl::unexpected(std::move(rule.error()));
    }
    next.rule = std::move(*rule);
    return {};
}

/// The old rules may go when the new ones are in the device's memory.
void EswitchImpl::wait_for_replacements(std::span<Update> updates) noexcept {
    const auto replaces = [](const Update& update) { return update.next.rule && update.flow->now.rule; };
    if (std::ranges::none_of(updates, replaces)) return;
    auto written = pipeline_->fdb().wait_written();
    if (written) return;
    for (Update& update : updates) {
        if (replaces(update)) update.outcome = written.error();
    }
}

/// Says of the megaflow what became of it.
void EswitchImpl::finish(Update& update) noexcept {
    Flow& flow = *update.flow;
    if (const auto* error = std::get_if<Error>(&update.outcome)) {
        reasons_.mark_failed(flow.mark, *error);
        FlowTroubles& troubles = flow.in_trouble();
        troubles.failure = error->what;
        // One that waited for a table waits for the device now.
        if (!troubles.place || troubles.place.is_parked()) troubles.place = backlog_.join(flow.ufid, update.asked);
        return;
    }
    flow.leave_line();
    if (flow.troubles != nullptr) flow.troubles->failure.clear();
    if (const auto* reject = std::get_if<Reject>(&update.outcome)) {
        reasons_.mark_rejected(flow.mark, *reject);
        if (update.waits_for) park(update);
        return;
    }
    reasons_.mark_offloaded(flow.mark);
    flow.was_installed = true;
}

/// Until a table that the megaflow waits for comes or goes, which may have happened since it was looked at, or until it
/// is worth another look.
void EswitchImpl::park(Update& update) noexcept {
    update.flow->in_trouble().place = backlog_.park(update.flow->ufid, *update.waits_for, update.again_at);
    if (pipeline_->tables().changes() != update.table_changes) backlog_.unpark(update.waits_for->table);
}

void EswitchImpl::retire(std::span<Retirement> retirements) noexcept {
    std::vector<CounterPool::Leaving> counters;
    counters.reserve(retirements.size());
    for (Retirement& retirement : retirements) {
        end(retirement.what.rule, retirement.what.counter);
        if (retirement.what.counter) counters.push_back({&retirement.what.counter, &retirement.counted});
    }
    if (counters.empty()) return;
    // Should the device fail here, what was counted last is the best that there is.
    (void)pipeline_->fdb().drain();
    counters_->give_back(counters);
    backlog_.room();
}

std::vector<EswitchImpl::Retirement> EswitchImpl::retirements_of(std::span<const std::unique_ptr<Flow>> gone) {
    std::vector<Retirement> retirements;
    retirements.reserve(gone.size());
    for (const auto& flow : gone) {
        flow->now.rule.prefetch();
        retirements.push_back({flow.get(), std::move(flow->now)});
    }
    return retirements;
}

FlowStats EswitchImpl::stats_of(const Flow& flow) noexcept {
    FlowStats stats = flow.troubles != nullptr ? flow.troubles->carried : FlowStats{};
    if (flow.now.counter) add(stats, flow.now.counter.read());
    return stats;
}

void EswitchImpl::del(std::span<Deletion> deletions) noexcept {
    const auto map_lock = read_ports();
    std::vector<std::unique_ptr<Flow>> gone;
    std::vector<Deletion*> answers;
    gone.reserve(deletions.size());
    answers.reserve(deletions.size());
    for (Deletion& deletion : deletions) {
        FlowShard& shard = shard_of(deletion.ufid);
        std::lock_guard lock(shard.mutex);
        std::unique_ptr<Flow> flow = shard.flows.extract(deletion.ufid);
        if (flow == nullptr) continue;
        shard.ports.remove(flow->megaflow);
        flow->leave_line();   // whoever looks for it now finds no such megaflow
        gone.push_back(std::move(flow));
        answers.push_back(&deletion);
    }
    std::vector<Retirement> retirements = retirements_of(gone);
    retire(retirements);
    for (std::size_t i = 0; i < gone.size(); ++i) {
        const Flow& flow = *retirements[i].flow;
        if (!flow.was_installed) continue;
        answers[i]->last = stats_of(flow);
        add(*answers[i]->last, retirements[i].counted);
    }
    forget(gone);
}

/// What a megaflow's destruction would do one by one.
void EswitchImpl::forget(std::span<const std::unique_ptr<Flow>> gone) noexcept {
    std::vector<ReasonTable::Mark*> marks;
    marks.reserve(gone.size());
    for (const auto& flow : gone) marks.push_back(&flow->mark);
    reasons_.forget(marks);
}

bool EswitchImpl::knows(const Ufid& ufid) const noexcept {
    const FlowShard& shard = shard_of(ufid);
    std::lock_guard lock(shard.mutex);
    return shard.flows.find(ufid) != nullptr;
}

std::optional<Eswitch::Status> EswitchImpl::status(const Ufid& ufid) noexcept {
    FlowShard& shard = shard_of(ufid);
    std::lock_guard lock(shard.mutex);
    const Flow* const flow = shard.flows.find(ufid);
    if (flow == nullptr) return std::nullopt;
    flow->now.counter.prefetch();
    if (!flow->was_installed) return std::nullopt;
    flow->now.counter.bring_up_to_date();
    return Status{.stats = stats_of(*flow), .offloaded = bool(flow->now.rule)};
}

Backlog::Attempt EswitchImpl::try_again(const Ufid& ufid) noexcept {
    const auto map_lock = read_ports();
    FlowShard& shard = shard_of(ufid);
    std::lock_guard lock(shard.mutex);
    Flow* const flow = shard.flows.find(ufid);
    if (flow == nullptr || !flow->is_in_line()) return Backlog::Attempt::not_asked;
    Update update{.flow = flow, .in_line = false};
    bring_up_to_date(std::span(&update, 1));
    if (std::holds_alternative<Error>(update.outcome)) return Backlog::Attempt::refused;
    return std::holds_alternative<Reject>(update.outcome) ? Backlog::Attempt::not_asked : Backlog::Attempt::taken;
}

void EswitchImpl::flush(std::optional<OdpPort> port) noexcept {
    take_out(port);
    Flow::memory().trim();   // behind the locks: each slab is a system call
}

void EswitchImpl::take_out(std::optional<OdpPort> port) noexcept {
    const auto map_lock = read_ports();
    std::vector<std::unique_ptr<Flow>> gone;
    for (FlowShard& shard : shards_) {
        std::lock_guard lock(shard.mutex);
        if (port && !shard.ports.mentions_any(std::span(&*port, 1))) continue;
        std::vector<Flow*> going;
        shard.flows.for_each([&](Flow& flow) {
            if (!port || flow.megaflow.in_port() == *port) going.push_back(&flow);
        });
        for (Flow* const flow : going) {
            shard.ports.remove(flow->megaflow);
            flow->leave_line();
            gone.push_back(shard.flows.extract(flow->ufid));
        }
    }
    std::vector<Retirement> retirements = retirements_of(gone);
    retire(retirements);
    forget(gone);
}

}  // namespace ovsdr::dr
