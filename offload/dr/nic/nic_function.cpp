#include "offload/dr/nic/nic_function.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <new>

#include "offload/dr/install/make.hpp"

namespace ovsdr::dr {

namespace {

constexpr VportId itself{0};
constexpr OdpPort unknown_odp_port{UINT32_MAX};

/// Runs what may be out of memory. The message fits into a string without memory.
template <typename Body>
auto with_memory(Body&& body) noexcept -> decltype(body()) {
    try {
        return body();
    } catch (const std::bad_alloc&) {
        return tl::unexpected(Error{ENOMEM, "out of memory"});
    }
}

}  // namespace

Result<std::shared_ptr<NicFunction>> NicFunction::create(std::shared_ptr<Device> device,
                                                         const DeviceCaps& caps) noexcept {
    return with_memory([&]() -> Result<std::shared_ptr<NicFunction>> {
        std::shared_ptr<NicFunction> function(new NicFunction(std::move(device), caps));
        if (auto made = function->make(); !made) return tl::unexpected(std::move(made.error()));
        return function;
    });
}

NicFunction::NicFunction(std::shared_ptr<Device> device, const DeviceCaps& caps) noexcept
    : device_(std::move(device)), caps_(caps), backlog_([this](const Ufid& ufid) { return try_again(ufid); }) {}

Result<void> NicFunction::make() {
    auto made = take(drop_counters_, CounterPool::create(device_, caps_));
    if (made) made = take(mark_counters_, CounterPool::create(device_, caps_));
    if (made) made = take(port_counters_, CounterPool::create(device_, caps_));
    if (made) made = take(received_down_, port_counters_->acquire(0, false));
    if (made) made = take(sent_down_, port_counters_->acquire(0, false));
    if (made) made = take(receive_, ReceiveSide::create(device_, caps_));
    if (made) made = take(send_, SendSide::create(device_, caps_));
    return made;
}

NicFunction::~NicFunction() {
    backlog_.end();
    if (drop_counters_ != nullptr) flush(std::nullopt);
}

Result<void> NicFunction::attach_port(const PortSpec& spec) noexcept {
    const std::lock_guard changes(port_changes_);
    if (spec.vport != itself) {
        return tl::unexpected(Error{ENOENT, fmt::format("{} does not manage an eSwitch (not the physical function, or "
                                                        "not in switchdev mode) and has no vport {}: without a vport "
                                                        "the port is the function itself",
                                                        device(), spec.vport.value)});
    }
    if (port_ != nullptr) {
        return tl::unexpected(Error{EBUSY, fmt::format("{} is taken by {}", device(), port_->spec.name)});
    }
    auto attached = with_memory([&] { return attach(spec); });
    if (!attached) detach_locked();
    return attached;
}

/// Last what lets packets in.
Result<void> NicFunction::attach(const PortSpec& spec) {
    port_ = std::make_unique<Port>(Port{spec, {}, {}, {}});
    auto made = take(port_->sent, port_counters_->acquire(0, false));
    if (made) made = send_->let_out(spec.vlan, port_->sent);
    if (made) made = receive_->serve(spec.slow_path_qp, spec.by_kind, 0, port_->queue);
    map_port();
    if (made) made = receive_->let_in(spec.vlan);
    if (made) recompile();
    return made;
}

/// What compile_for_function() knows of the port.
void NicFunction::map_port() noexcept {
    const std::lock_guard lock(ports_mutex_);
    port_map_ = {};
    if (port_ == nullptr || port_->spec.odp_port == unknown_odp_port) return;
    port_map_.set(port_->spec.odp_port, {itself, port_->spec.name, port_->spec.policed});
}

void NicFunction::detach_port(VportId) noexcept {
    const std::lock_guard changes(port_changes_);
    detach_locked();
}

/// Packets that are under way reach the queue; then its rules go, and the caller destroys it.
void NicFunction::detach_locked() noexcept {
    if (port_ == nullptr) return;
    receive_->shut();
    const std::unique_ptr<Port> gone = std::move(port_);
    map_port();
    recompile();
    past_misses_ += receive_->stop(gone->queue);
    send_->shut();
}

QueueSwitch NicFunction::switch_queue(VportId, ibv_qp* qp, std::uint32_t sqn,
                                      std::span<const QueuePairFor> by_kind) noexcept {
    const std::lock_guard changes(port_changes_);
    if (port_ == nullptr) return {tl::unexpected(Error{ENODEV, "not attached"})};
    if (port_->old_queue) return {tl::unexpected(Error{EBUSY, "being switched"})};
    ReceiveSide::QueueRules next;
    const auto range = static_cast<std::uint16_t>(1 - port_->queue.range);
    auto served = with_memory([&] { return receive_->serve(qp, by_kind, range, next); });
    ReceiveSide::QueueRules* gone = &next;
    if (served) {
        gone = &port_->old_queue.emplace(std::exchange(port_->queue, std::move(next)));
        port_->spec.slow_path_qp = qp;
        port_->spec.slow_path_sqn = sqn;
    }
    const std::uint64_t led_up = receive_->stop(*gone);
    past_misses_ += led_up;
    return {std::move(served), led_up};
}

void NicFunction::forget_old_queue(VportId) noexcept {
    const std::lock_guard changes(port_changes_);
    if (port_ == nullptr) return;
    port_->old_queue.reset();
    (void)send_->domain().drain();
}

Result<void> NicFunction::set_odp_port(VportId, OdpPort odp_port) noexcept {
    const std::lock_guard changes(port_changes_);
    if (port_ == nullptr) return {};
    if (port_->spec.odp_port != odp_port) {
        port_->spec.odp_port = odp_port;
        map_port();
        recompile();
    }
    if (receive_->is_open() || odp_port == unknown_odp_port) return {};
    return with_memory([&] { return receive_->let_in(port_->spec.vlan); });
}

Result<void> NicFunction::lead_copies(CopyKind, ibv_qp*) noexcept {
    return tl::unexpected(Error{EOPNOTSUPP, "copies for software: a plain function's packets all go to it"});
}

void NicFunction::set_policed(VportId, bool policed) noexcept {
    const std::lock_guard changes(port_changes_);
    if (port_ == nullptr || port_->spec.policed == policed) return;
    port_->spec.policed = policed;
    map_port();
    recompile();
}

void NicFunction::close_entrance(VportId) noexcept {
    const std::lock_guard changes(port_changes_);
    receive_->shut();
}

Result<void> NicFunction::set_up(bool up) noexcept {
    const std::lock_guard changes(port_changes_);
    if (up_ == up) return {};
    return with_memory([&]() -> Result<void> {
        if (up) {
            closed_ = {};
        } else {
            Closed closed;
            auto made = take(closed.receive, receive_->drop_everything(received_down_));
            if (made) made = take(closed.send, send_->drop_everything(sent_down_));
            if (made) made = receive_->domain().wait_written();
            if (made) made = send_->domain().wait_written();
            if (!made) return made;
            closed_ = std::move(closed);
        }
        up_ = up;
        return {};
    });
}

bool NicFunction::knows(const Ufid& ufid) const noexcept {
    const Shard& shard = shard_of(ufid);
    const std::lock_guard lock(shard.mutex);
    return shard.flows.find(ufid) != nullptr;
}

PutOutcome NicFunction::put(const Ufid& ufid, const ovsdr_megaflow& megaflow, std::uint16_t neighbourhood) noexcept {
    return put_marked(ufid, megaflow, neighbourhood, no_mark);
}

PutOutcome NicFunction::put_marked(const Ufid& ufid, const ovsdr_megaflow& megaflow, std::uint16_t neighbourhood,
                                   std::uint32_t mark) noexcept {
    const std::shared_lock map_lock(ports_mutex_);
    Shard& shard = shard_of(ufid);
    const std::lock_guard lock(shard.mutex);
    Flow& flow = shard.flows.get(ufid);
    flow.megaflow = StoredMegaflow(megaflow, parts_);
    flow.neighbourhood = neighbourhood;
    const HeldMark before = std::exchange(flow.mark, HeldMark(mark));   // its tag may stand for it until we are through
    return bring_up_to_date(flow, true);
}

Compiled<NicPlan> NicFunction::compiled(const Flow& flow) const noexcept {
    auto plan = compile_for_function(flow.megaflow.restore(), port_map_, caps_);
    if (plan && !plan->drops && flow.mark.number() == no_mark) {
        return tl::unexpected(Reject{{{RejectReason::unsupported_action, "no mark for its packets"}}});
    }
    return plan;
}

/// `in_line`: behind those that wait, when the device is full.
PutOutcome NicFunction::bring_up_to_date(Flow& flow, bool in_line) noexcept {
    PutOutcome outcome;
    bool asked = true;
    if (auto plan = compiled(flow); !plan) {
        outcome = std::move(plan.error());
    } else if (flow.now.rule && *flow.plan == *plan) {
        if (flow.now.tag != 0) marks_.change(flow.now.tag, flow.mark.number());
    } else if (in_line && !flow.now.rule && backlog_.is_full()) {
        asked = false;
        outcome = backlog_.full();
    } else if (auto installed = install(flow, *plan); installed) {
        backlog_.taken();
    } else {
        backlog_.refused(installed.error(), !in_line);
        outcome = std::move(installed.error());
    }
    if (!std::holds_alternative<std::monostate>(outcome)) take_out(flow);
    finish(flow, outcome, asked);
    return outcome;
}

/// The new rule goes in before the old one goes out: a packet finds one of them, whichever comes first.
Result<void> NicFunction::install(Flow& flow, const NicPlan& plan) noexcept {
    auto made = with_memory([&] { return make_installation(flow, plan); });
    if (!made) return tl::unexpected(std::move(made.error()));
    auto written = receive_->domain().wait_written();
    if (written) {
        std::swap(flow.now, *made);
        flow.plan = std::make_unique<const NicPlan>(plan);
    }
    if (made->rule) {
        Retirement old{std::move(*made)};
        const bool dropped = old.what.tag == 0;
        retire(std::span(&old, 1));
        if (dropped) {
            flow.carried.packets += old.counted.packets;
            flow.carried.bytes += old.counted.bytes;
            flow.carried.used_ms = std::max(flow.carried.used_ms, old.counted.used_ms);
        }
    }
    return written;
}

Result<NicFunction::Installation> NicFunction::make_installation(Flow& flow, const NicPlan& plan) {
    Installation next;
    CounterPool& counters = plan.drops ? *drop_counters_ : *mark_counters_;
    auto made = take(next.counter, counters.acquire(0, true, flow.neighbourhood));
    if (!made) return tl::unexpected(std::move(made.error()));
    if (!plan.drops) {
        const auto tag = marks_.take(flow.mark.number());
        if (!tag) {
            return tl::unexpected(Error{ENOSPC, fmt::format("{} megaflows are marked already", MarkTable::length),
                                        "flow tag"});
        }
        next.tag = *tag;
    }
    made = take(next.rule, receive_->install(plan.match.mask, plan.match.value, next.counter, next.tag));
    if (made) return next;
    if (next.tag != 0) marks_.give_back(next.tag, false);
    return tl::unexpected(std::move(made.error()));
}

/// Its packets are software's.
void NicFunction::take_out(Flow& flow) noexcept {
    if (!flow.now.rule) return;
    Retirement old{std::exchange(flow.now, {})};
    const bool dropped = old.what.tag == 0;
    retire(std::span(&old, 1));
    flow.plan.reset();
    if (!dropped) return;
    flow.carried.packets += old.counted.packets;
    flow.carried.bytes += old.counted.bytes;
    flow.carried.used_ms = std::max(flow.carried.used_ms, old.counted.used_ms);
}

void NicFunction::finish(Flow& flow, const PutOutcome& outcome, bool asked) noexcept {
    if (const auto* error = std::get_if<Error>(&outcome)) {
        reasons_.mark_failed(flow.reason, *error);
        flow.failure = error->what;
        if (!flow.place) flow.place = backlog_.join(flow.ufid, asked);
        return;
    }
    flow.place.leave();
    flow.failure.clear();
    if (const auto* reject = std::get_if<Reject>(&outcome)) {
        reasons_.mark_rejected(flow.reason, *reject);
        return;
    }
    reasons_.mark_offloaded(flow.reason);
    flow.was_installed = true;
}

Backlog::Attempt NicFunction::try_again(const Ufid& ufid) noexcept {
    const std::shared_lock map_lock(ports_mutex_);
    Shard& shard = shard_of(ufid);
    const std::lock_guard lock(shard.mutex);
    Flow* const flow = shard.flows.find(ufid);
    if (flow == nullptr || !flow->place) return Backlog::Attempt::not_asked;
    const PutOutcome outcome = bring_up_to_date(*flow, false);
    if (std::holds_alternative<Error>(outcome)) return Backlog::Attempt::refused;
    return std::holds_alternative<Reject>(outcome) ? Backlog::Attempt::not_asked : Backlog::Attempt::taken;
}

/// All megaflows: there is one port.
void NicFunction::recompile() noexcept {
    const std::shared_lock map_lock(ports_mutex_);
    for (Shard& shard : shards_) {
        const std::lock_guard lock(shard.mutex);
        shard.flows.for_each([this](Flow& flow) { (void)bring_up_to_date(flow, true); });
    }
}

/// A rule that the device keeps goes on: what it counts and marks must not be another megaflow's.
void NicFunction::end_rule(Installation& installation) noexcept {
    const bool gone = installation.rule.end();
    if (installation.tag != 0) marks_.give_back(installation.tag, !gone);
    if (gone) return;
    if (installation.counter) installation.counter.withhold();
    const std::lock_guard lock(kept_mutex_);
    kept_.push_back(std::move(installation.rule));
}

void NicFunction::retire(std::span<Retirement> retirements) noexcept {
    std::vector<CounterPool::Leaving> drops, marks;
    for (Retirement& retirement : retirements) {
        if (!retirement.what.rule) continue;
        end_rule(retirement.what);
        auto& leaving = retirement.what.tag == 0 ? drops : marks;
        leaving.push_back({&retirement.what.counter, &retirement.counted});
    }
    if (drops.empty() && marks.empty()) return;
    // Should the device fail here, what was counted last is the best that there is.
    (void)receive_->domain().drain();
    if (!drops.empty()) drop_counters_->give_back(drops);
    if (!marks.empty()) mark_counters_->give_back(marks);
    backlog_.room();
}

FlowStats NicFunction::stats_of(const Flow& flow) noexcept {
    FlowStats stats = flow.carried;
    if (!flow.now.counter || flow.now.tag != 0) return stats;
    const FlowStats now = flow.now.counter.read();
    stats.packets += now.packets;
    stats.bytes += now.bytes;
    stats.used_ms = std::max(stats.used_ms, now.used_ms);
    return stats;
}

void NicFunction::del(std::span<Deletion> deletions) noexcept {
    std::vector<std::unique_ptr<Flow>> gone;
    std::vector<Deletion*> answers;
    for (Deletion& deletion : deletions) {
        Shard& shard = shard_of(deletion.ufid);
        const std::lock_guard lock(shard.mutex);
        auto flow = shard.flows.extract(deletion.ufid);
        if (flow == nullptr) continue;
        flow->place.leave();
        gone.push_back(std::move(flow));
        answers.push_back(&deletion);
    }
    forget(gone, answers);
}

/// `answers`: one for each, or none.
void NicFunction::forget(std::span<const std::unique_ptr<Flow>> gone, std::span<Deletion* const> answers) noexcept {
    std::vector<Retirement> retirements(gone.size());
    std::vector<ReasonTable::Mark*> marks;
    for (std::size_t i = 0; i < gone.size(); ++i) {
        retirements[i].what = std::move(gone[i]->now);
        marks.push_back(&gone[i]->reason);
    }
    retire(retirements);
    for (std::size_t i = 0; i < answers.size(); ++i) {
        if (!gone[i]->was_installed) continue;
        FlowStats last = gone[i]->carried;
        if (retirements[i].what.tag == 0) {
            last.packets += retirements[i].counted.packets;
            last.bytes += retirements[i].counted.bytes;
            last.used_ms = std::max(last.used_ms, retirements[i].counted.used_ms);
        }
        answers[i]->last = last;
    }
    reasons_.forget(marks);
}

std::optional<Eswitch::Status> NicFunction::status(const Ufid& ufid) noexcept {
    Shard& shard = shard_of(ufid);
    const std::lock_guard lock(shard.mutex);
    const Flow* const flow = shard.flows.find(ufid);
    if (flow == nullptr || !flow->was_installed) return std::nullopt;
    if (flow->now.counter && flow->now.tag == 0) flow->now.counter.bring_up_to_date();
    return Status{.stats = stats_of(*flow), .offloaded = bool(flow->now.rule), .partly = flow->now.tag != 0};
}

void NicFunction::flush(std::optional<OdpPort> port) noexcept {
    std::vector<std::unique_ptr<Flow>> gone;
    for (Shard& shard : shards_) {
        const std::lock_guard lock(shard.mutex);
        std::vector<Ufid> going;
        shard.flows.for_each([&](Flow& flow) {
            if (!port || flow.megaflow.in_port() == *port) going.push_back(flow.ufid);
        });
        for (const Ufid& ufid : going) {
            gone.push_back(shard.flows.extract(ufid));
            gone.back()->place.leave();
        }
    }
    forget(gone, {});
}

}  // namespace ovsdr::dr
