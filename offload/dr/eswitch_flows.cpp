#include <cerrno>
#include <chrono>

#include "offload/dr/eswitch_impl.hpp"

namespace ovsdr::dr {

PutOutcome EswitchImpl::put(const Ufid& ufid, const ovsdr_megaflow& megaflow) noexcept {
    const auto map_lock = read_ports();
    Shard& shard = shard_of(ufid);
    std::lock_guard lock(shard.mutex);
    Flow& flow = shard.flows[ufid];
    if (flow.rule && flow.megaflow.is(megaflow)) return std::monostate{};
    flow.megaflow = StoredMegaflow(megaflow, masks_);
    return bring_up_to_date(flow, megaflow);
}

PutOutcome EswitchImpl::bring_up_to_date(Flow& flow, const ovsdr_megaflow& megaflow) noexcept {
    auto plan = compile(megaflow, port_map_, caps_);
    if (!plan) {
        retire(flow);
        mark(flow, ReasonTable::Kind::rejected, name_of(plan.error().reason), plan.error().detail);
        return std::move(plan.error());
    }
    if (auto installed = install(flow, *plan); !installed) {
        retire(flow);
        mark(flow, ReasonTable::Kind::failed, "device error", installed.error().what);
        return std::move(installed.error());
    }
    mark(flow, ReasonTable::Kind::offloaded, "offloaded", "");
    flow.was_installed = true;
    return std::monostate{};
}

/// A megaflow that fails again for the same reason is not counted again.
void EswitchImpl::mark(Flow& flow, ReasonTable::Kind kind, const std::string& reason, const std::string& detail) noexcept {
    const ReasonTable::Row* row = flow.mark.row();
    if (row != nullptr && row->kind == kind && row->reason == reason && row->detail == detail) return;
    flow.mark = reasons_.mark(kind, reason, detail);
}

/// Where there was a rule already, the new one goes in before the old one goes out, and both count into one counter: at any
/// moment a packet finds exactly one of them, never the slow path, whichever of two equal matches the device tries first.
Result<void> EswitchImpl::install(Flow& flow, const RulePlan& plan) noexcept {
    if (flow.counter && flow.bytes_uncounted != plan.bytes_uncounted) return replace_counter(flow, plan);
    if (!flow.counter) {
        auto counter = counters_->acquire(plan.bytes_uncounted);
        if (!counter) return tl::unexpected(std::move(counter.error()));
        flow.counter = std::move(*counter);
        flow.bytes_uncounted = plan.bytes_uncounted;
    }
    auto rule = pipeline_->install(plan, flow.counter);
    if (!rule && rule.error().code == EEXIST && flow.rule) {
        // A device that has no two rules with one value: the old one must go first.
        flow.rule = Rule();
        rule = pipeline_->install(plan, flow.counter);
    }
    if (!rule) return tl::unexpected(std::move(rule.error()));
    if (flow.rule) {
        if (auto written = pipeline_->fdb().wait_written(); !written) return written;
    }
    flow.rule = std::move(*rule);
    return {};
}

/// For a modification after which packets are counted with another correction of their bytes.
Result<void> EswitchImpl::replace_counter(Flow& flow, const RulePlan& plan) noexcept {
    Flow next;
    if (auto installed = install(next, plan); !installed) return installed;
    if (auto written = pipeline_->fdb().wait_written(); !written) return written;
    retire(flow);
    flow.counter = std::move(next.counter);
    flow.rule = std::move(next.rule);
    flow.bytes_uncounted = next.bytes_uncounted;
    return {};
}

void EswitchImpl::stop(std::span<Flow* const> flows) noexcept {
    bool any = false;
    for (Flow* flow : flows) {
        any = any || flow->rule;
        flow->rule = Rule();
    }
    if (!any) return;
    // Should the device fail here, what was counted last is the best that there is.
    (void)pipeline_->fdb().drain();
    for (Flow* flow : flows) {
        if (flow->counter) flow->counter.settle();
    }
}

void EswitchImpl::stop(Flow& flow) noexcept {
    Flow* const one[] = {&flow};
    stop(one);
}

void EswitchImpl::retire(Flow& flow) noexcept {
    stop(flow);
    if (flow.counter) {
        flow.carried = std::make_unique<FlowStats>(stats_of(flow));
        flow.counter = Counter();
    }
}

FlowStats EswitchImpl::stats_of(const Flow& flow) noexcept {
    FlowStats stats = flow.carried != nullptr ? *flow.carried : FlowStats{};
    if (flow.counter) {
        const FlowStats counted = flow.counter.read();
        stats.packets += counted.packets;
        stats.bytes += counted.bytes;
        if (counted.used_ms != 0) stats.used_ms = counted.used_ms;
    }
    return stats;
}

std::optional<FlowStats> EswitchImpl::del(const Ufid& ufid) noexcept {
    Shard& shard = shard_of(ufid);
    std::lock_guard lock(shard.mutex);
    const auto found = shard.flows.find(ufid);
    if (found == shard.flows.end()) return std::nullopt;
    Flow& flow = found->second;
    retire(flow);
    std::optional<FlowStats> final;
    if (flow.was_installed) final = stats_of(flow);
    shard.flows.erase(found);
    return final;
}

std::optional<Eswitch::Status> EswitchImpl::status(const Ufid& ufid) noexcept {
    Shard& shard = shard_of(ufid);
    std::unique_lock lock(shard.mutex);
    auto found = shard.flows.find(ufid);
    if (found != shard.flows.end() && has_failed(found->second) && may_try_again()) {
        // The port map is locked before the shard.
        lock.unlock();
        try_again(ufid);
        lock.lock();
        found = shard.flows.find(ufid);
    }
    if (found == shard.flows.end() || !found->second.was_installed) return std::nullopt;
    found->second.counter.bring_up_to_date();
    return Status{.stats = stats_of(found->second), .offloaded = bool(found->second.rule)};
}

bool EswitchImpl::has_failed(const Flow& flow) noexcept {
    const ReasonTable::Row* row = flow.mark.row();
    return row != nullptr && row->kind == ReasonTable::Kind::failed;
}

bool EswitchImpl::may_try_again() noexcept {
    using namespace std::chrono;
    const std::int64_t now = duration_cast<milliseconds>(steady_clock::now().time_since_epoch()).count();
    std::int64_t next = next_try_ms_.load(std::memory_order_relaxed);
    return now >= next && next_try_ms_.compare_exchange_strong(next, now + between_tries_ms, std::memory_order_relaxed);
}

void EswitchImpl::try_again(const Ufid& ufid) noexcept {
    const auto map_lock = read_ports();
    Shard& shard = shard_of(ufid);
    std::lock_guard lock(shard.mutex);
    const auto found = shard.flows.find(ufid);
    if (found == shard.flows.end() || !has_failed(found->second)) return;
    (void)bring_up_to_date(found->second, found->second.megaflow.restore());
}

void EswitchImpl::flush(std::optional<OdpPort> port) noexcept {
    for (Shard& shard : shards_) {
        std::lock_guard lock(shard.mutex);
        const auto leaves = [port](const Flow& flow) { return !port || flow.megaflow.in_port() == *port; };
        std::vector<Flow*> leaving;
        for (auto& [ufid, flow] : shard.flows) {
            if (leaves(flow)) leaving.push_back(&flow);
        }
        stop(leaving);
        std::erase_if(shard.flows, [&leaves](const auto& entry) { return leaves(entry.second); });
    }
}

}  // namespace ovsdr::dr
