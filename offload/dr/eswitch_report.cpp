#include <fmt/format.h>

#include "offload/dr/eswitch_impl.hpp"
#include "offload/dr/device/leak.hpp"

namespace ovsdr::dr {

namespace {

std::string text_of(const Ufid& ufid) {
    return fmt::format("ufid:{:08x}-{:04x}-{:04x}-{:04x}-{:012x}", ufid[0] >> 32, (ufid[0] >> 16) & 0xFFFF,
                       ufid[0] & 0xFFFF, ufid[1] >> 48, ufid[1] & 0xFFFFFFFFFFFFULL);
}

}  // namespace

std::string EswitchImpl::count_text(const Flow& flow) {
    const FlowStats stats = stats_of(flow);
    return fmt::format("count#{}(packets={}, bytes={})", flow.now.counter.id(), stats.packets, stats.bytes);
}

/// With the flow's shard locked and ports_mutex_ shared.
std::string EswitchImpl::rule_text(const Flow& flow) const {
    const auto plan = compiled(flow.megaflow.restore());
    if (!plan) return "being changed";
    return fmt::format("FDB table {} matcher #{} {} actions: {}, {}", pipeline_->table_id(plan->match.table),
                       flow.now.rule.matcher().number(), dr::text_of(plan->match.mask, plan->match.value),
                       count_text(flow), dr::text_of(plan->path));
}

/// Reasons are not kept: the compiler says them again, with the values. With the flow's shard locked and ports_mutex_
/// shared.
FlowReport EswitchImpl::report_of(const Flow& flow, const PortNames& names) const {
    flow.now.counter.bring_up_to_date();
    FlowReport report{flow.ufid, static_cast<bool>(flow.now.rule), {}, {}, {}, stats_of(flow)};
    if (flow.now.rule) {
        report.text = rule_text(flow);
        return report;
    }
    if (flow.troubles != nullptr && !flow.troubles->failure.empty()) {
        report.reasons.push_back("device error: " + flow.troubles->failure);
    } else if (const auto plan = compiled(flow.megaflow.restore()); !plan) {
        for (const Obstacle& obstacle : plan.error().obstacles) report.reasons.push_back(dr::text_of(obstacle, names));
    } else if (const auto no_way = pipeline_->obstacle_to(flow.ufid, *plan)) {
        for (const Obstacle& obstacle : no_way->reject.obstacles) {
            report.reasons.push_back(dr::text_of(obstacle, names));
        }
    }
    report.text = fmt::format("{}", fmt::join(report.reasons, "; "));
    return report;
}

std::optional<FlowReport> EswitchImpl::explain(const Ufid& ufid, const PortNames& names) const {
    const auto map_lock = read_ports();
    const FlowShard& shard = shard_of(ufid);
    std::lock_guard lock(shard.mutex);
    const Flow* const flow = shard.flows.find(ufid);
    if (flow == nullptr) return std::nullopt;
    FlowReport report = report_of(*flow, names);
    if (!flow->now.rule) return report;
    if (const auto plan = compiled(flow->megaflow.restore())) {
        report.program = pipeline_->program_of(*plan, flow->now.rule, count_text(*flow));
    }
    return report;
}

std::vector<Eswitch::ReasonCount> EswitchImpl::reasons(std::span<const InSoftware> in_software) const {
    ReasonTable::Packets packets;
    for (const InSoftware& megaflow : in_software) {
        const FlowShard& shard = shard_of(megaflow.ufid);
        std::lock_guard lock(shard.mutex);
        const Flow* const flow = shard.flows.find(megaflow.ufid);
        if (flow != nullptr) reasons_.add(flow->mark, megaflow.packets, packets);
    }
    return reasons_.counts(packets);
}

Eswitch::Totals EswitchImpl::totals() const noexcept {
    const FlowStats misses = pipeline_->misses();
    counters_->bring_up_to_date();
    const FlowStats all = counters_->total();
    std::uint64_t copies = 0;
    for (const CopyKind kind : copy_kinds) copies += pipeline_->works().copies(kind);
    std::lock_guard lock(kept_mutex_);
    return {reasons_.count(ReasonTable::Kind::offloaded),
            reasons_.count(ReasonTable::Kind::rejected),
            reasons_.count(ReasonTable::Kind::failed),
            all.packets,
            all.bytes,
            misses.packets,
            kept_.size(),
            copies};
}

std::string EswitchImpl::show(bool verbose, const PortNames& names) const {
    const Totals sums = totals();
    std::string text = fmt::format(
        "device {}: steering format {}, manager vport {}\n"
        "megaflows: {} offloaded, {} rejected, {} failed\n"
        "hits: {} packets, {} bytes; misses: {} packets\n",
        device(), caps_.steering_format, caps_.manager_vport.value, sums.offloaded, sums.rejected, sums.failed,
        sums.packets, sums.bytes, sums.misses);
    if (sums.copies != 0) text += fmt::format("copies for software: {} packets\n", sums.copies);
    for (const CopyKind kind : all_copy_kinds) {
        const std::uint64_t led = is_mirror(kind) ? copies(kind) : 0, filtered = filtered_copies(kind);
        if (led + filtered == 0) continue;
        text += fmt::format("copies for {}: {} packets, {} dropped by its filter\n", name_of(kind), led, filtered);
    }
    if (const std::uint64_t led = pipeline_->roce_led(); led != 0) {
        text += fmt::format("the manager function's own RoCE: {} packets\n", led);
    }
    if (leaked_objects() != 0) text += fmt::format("objects that the device would not destroy: {}\n", leaked_objects());
    if (counters_->failed_polls() != 0) text += fmt::format("failed counter queries: {}\n", counters_->failed_polls());
    const auto map_lock = read_ports();
    for (const auto& port : ports_) {
        text += fmt::format("port {}: vport {}, slow-path SQ {:#x}", port->spec.name, port->spec.vport.value,
                            port->spec.slow_path_sqn);
        text += port->spec.odp_port.value == UINT32_MAX
                    ? "\n"
                    : fmt::format(", datapath port {}\n", port->spec.odp_port.value);
    }
    text += text_of_meters();
    text += pipeline_->text();
    if (!verbose) return text;
    for (const FlowShard& shard : shards_) {
        std::lock_guard lock(shard.mutex);
        shard.flows.for_each([&](const Flow& flow) {
            const FlowReport report = report_of(flow, names);
            text += fmt::format("{} {}{}\n", text_of(flow.ufid), report.offloaded ? "" : "not offloaded: ",
                                report.text);
        });
    }
    return text;
}

}  // namespace ovsdr::dr
