// The Eswitch behind eswitch.hpp: megaflows in shards, ports in a map, tables in a Pipeline.
//
// Locks, in the order in which they are taken:
//   port_changes_   serialises attach, detach and renumbering
//   ports_gate_     held by whoever waits for the next one to change ports, for a moment by who comes meanwhile
//   ports_mutex_    shared by whoever compiles and installs, exclusive for the moment in which the port map changes:
//                   what was compiled with the old map is installed before the map changes, and compiled again after it
//   FlowShard::mutex  one per 1/256 of the ufids, held across device calls for a megaflow of that shard
//   then those of the pipeline's parts, the counters, the reasons and the backlog
//
// Deletions take their megaflows out of the shards first and the rules out of the device after that, with no shard
// locked but ports_mutex_ shared: a port that is gone has no rules left.
#pragma once

#include <array>
#include <atomic>
#include <cerrno>
#include <map>
#include <mutex>
#include <new>
#include <optional>
#include <set>
#include <shared_mutex>
#include <span>

#include "offload/dr/compile/compile.hpp"
#include "offload/dr/eswitch.hpp"
#include "offload/dr/flow.hpp"
#include "offload/dr/install/pipeline.hpp"
#include "offload/dr/plan_cache.hpp"

namespace ovsdr::dr {

class EswitchImpl final : public Eswitch {
public:
    [[nodiscard]] static Result<std::shared_ptr<EswitchImpl>> create(std::shared_ptr<Device> device,
                                                                     const DeviceCaps& caps) noexcept;
    ~EswitchImpl() override;

    std::string_view device() const noexcept override { return device_->name(); }
    ibv_context* context() const noexcept override { return device_->context(); }
    ibv_pd* pd() const noexcept override { return device_->pd(); }

    Result<void> attach_port(const PortSpec& spec) noexcept override;
    void detach_port(VportId vport) noexcept override;
    Result<void> set_odp_port(VportId vport, OdpPort odp_port) noexcept override;
    void set_policed(VportId vport, bool policed) noexcept override;
    void close_entrance(VportId vport) noexcept override;
    void set_tunnel_port(const TunnelPort& port) noexcept override;
    void remove_tunnel_port(OdpPort odp_port) noexcept override;
    void choose(const Choices& choices) noexcept override;
    void set_meter(std::uint32_t number, const meter::Spec& spec) noexcept override;
    MeterStats remove_meter(std::uint32_t number) noexcept override;
    MeterStats meter_stats(std::uint32_t number) noexcept override;
    bool has_meter(std::uint32_t number) noexcept override { return pipeline_->meters().is_used(number); }
    void on_meter_use(std::function<void()> used) noexcept override { pipeline_->meters().on_use(std::move(used)); }
    Result<void> lower_meter(std::uint32_t number, std::uint32_t rate) noexcept override;
    using Eswitch::switch_queue;
    QueueSwitch switch_queue(VportId vport, ibv_qp* qp, std::uint32_t sqn,
                             std::span<const QueuePairFor> by_kind) noexcept override;
    void forget_old_queue(VportId vport) noexcept override;

    bool knows(const Ufid& ufid) const noexcept override;
    using Eswitch::put;
    PutOutcome put(const Ufid& ufid, const ovsdr_megaflow& megaflow, std::uint16_t neighbourhood) noexcept override;
    void del(std::span<Deletion> deletions) noexcept override;
    std::optional<Status> status(const Ufid& ufid) noexcept override;
    std::optional<TableKey> table_of(std::uint32_t tag) const noexcept override {
        return pipeline_->tables().key_of(tag);
    }
    void set_host_port(OdpPort odp_port, bool is_host) noexcept override;
    void set_gone_port(OdpPort odp_port, bool gone) noexcept override;
    Result<void> set_mirror_port(OdpPort odp_port, CopyKind kind, const MirrorSteering& steering) noexcept override;
    void remove_mirror_port(OdpPort odp_port) noexcept override;
    std::uint64_t filtered_copies(CopyKind kind) const noexcept override;
    Result<void> lead_copies(CopyKind kind, ibv_qp* qp) noexcept override;
    void stop_copies(CopyKind kind) noexcept override;
    std::shared_ptr<const InstalledWork> work_of(std::uint32_t tag) const noexcept override;
    std::uint64_t copies(CopyKind kind) const noexcept override;
    std::vector<WorkReport> works() const override;
    std::vector<std::shared_ptr<const SamplerCount>> samplers() const override;
    Result<void> let_roce_in(const RoceAddress& address) noexcept override;
    Result<void> retry_roce(const RoceAddress& address) noexcept override;
    void forget_roce(const RoceAddress& address) noexcept override;

    void flush(std::optional<OdpPort> port) noexcept override;

    std::string show(bool verbose, const PortNames& names) const override;
    Graph graph() const override;
    std::optional<FlowReport> explain(const Ufid& ufid, const PortNames& names) const override;
    using Eswitch::reasons;
    std::vector<ReasonCount> reasons(std::span<const InSoftware> in_software) const override;
    Totals totals() const noexcept override;
    std::vector<TableUse> table_use() const override { return pipeline_->use(); }

private:
    struct Port {
        PortSpec spec;
        PortRules rules;
    };

    explicit EswitchImpl(std::shared_ptr<Device> device) noexcept;

    [[nodiscard]] Compiled<RulePlan> compiled(const ovsdr_megaflow& megaflow) const noexcept {
        return compile(megaflow, port_map_, caps_, choices_);
    }

    [[nodiscard]] FlowShard& shard_of(const Ufid& ufid) noexcept { return shards_[UfidHash{}(ufid) % shards_.size()]; }
    [[nodiscard]] const FlowShard& shard_of(const Ufid& ufid) const noexcept {
        return shards_[UfidHash{}(ufid) % shards_.size()];
    }

    /// A megaflow on its way to what it asks for.
    struct Update {
        Flow* flow;
        const ovsdr_megaflow* given = nullptr;   ///< the flow's megaflow, where it need not be restored
        std::shared_ptr<const RulePlan> known{};   ///< a plan of one like it
        bool asked = true;        ///< the device was, or need not be
        bool in_line = true;      ///< behind those that wait, when the device is full
        PutOutcome outcome{};
        std::optional<Backlog::Awaited> waits_for{};   ///< rejected until one of these tables comes or goes
        std::optional<NoWay::Time> again_at{};   ///< then too
        std::uint64_t table_changes = 0;       ///< TableSet::changes() when that was found
        Installation next{};      ///< shares the counter of the present one when it has none of its own
    };

    // With the flows' shard locked and ports_mutex_ shared.
    void bring_up_to_date(std::span<Update> updates) noexcept;
    void prepare(Update& update) noexcept;
    /// The tables have something against it.
    [[nodiscard]] bool must_wait(Update& update, const RulePlan& plan) noexcept;
    [[nodiscard]] Result<void> install(Flow& flow, const PlanCache::Planned& planned, Installation& next) noexcept;
    void wait_for_replacements(std::span<Update> updates) noexcept;
    void finish(Update& update) noexcept;
    void park(Update& update) noexcept;

    /// Takes the rule out of the device.
    void end(Rule& rule, Counter& counter) noexcept;
    /// A rule that goes, and the megaflow that inherits what it counted.
    struct Retirement {
        Flow* flow;
        Installation what;
        FlowStats counted{};
    };
    /// Destroys the rules, waits until the device has let go of them, and reads their counters for good. One drain and
    /// one query per counter bulk, however many they are. The counters are free then.
    void retire(std::span<Retirement> retirements) noexcept;
    [[nodiscard]] static std::vector<Retirement> retirements_of(std::span<const std::unique_ptr<Flow>> gone);
    void forget(std::span<const std::unique_ptr<Flow>> gone) noexcept;
    /// The megaflows of packets from `port`, or all.
    void take_out(std::optional<OdpPort> port) noexcept;
    [[nodiscard]] static FlowStats stats_of(const Flow& flow) noexcept;
    [[nodiscard]] Backlog::Attempt try_again(const Ufid& ufid) noexcept;

    /// ports_mutex_. Whoever comes while a change waits for it lets the change go first, at the gate: puts that follow
    /// each other without a gap do not keep a port change waiting for ever.
    [[nodiscard]] std::shared_lock<std::shared_mutex> read_ports() const noexcept {
        if (change_waits_.load(std::memory_order_acquire)) std::lock_guard gate(ports_gate_);
        return std::shared_lock(ports_mutex_);
    }
    /// Plans are of the ports and choices that there were.
    [[nodiscard]] std::unique_lock<std::shared_mutex> change_ports() noexcept {
        std::lock_guard gate(ports_gate_);
        change_waits_.store(true, std::memory_order_release);
        std::unique_lock lock(ports_mutex_);
        change_waits_.store(false, std::memory_order_release);
        plans_.forget();
        return lock;
    }

    /// Compiles every megaflow that mentions one of these again.
    void recompile(std::span<const OdpPort> ports) noexcept;
    void recompile_metered(std::uint32_t number) noexcept;
    /// Of show(); with the ports' lock.
    [[nodiscard]] std::string text_of_meters() const;
    [[nodiscard]] std::set<std::uint32_t> metered_in_device(const Flow& flow) const;
    /// By another one, with port_changes_ locked.
    void replace_meter(std::uint32_t number, const meter::Spec& spec,
                       const tl::expected<meter::Parameters, meter::Refusal>& parameters) noexcept;
    /// With their shard locked and ports_mutex_ shared.
    void recompile(std::span<Flow* const> flows) noexcept;
    /// Runs what may be out of memory. The message fits into a string without memory.
    template <typename Body>
    static auto with_memory(Body&& body) noexcept -> decltype(body()) {
        try {
            return body();
        } catch (const std::bad_alloc&) {
            return tl::unexpected(Error{ENOMEM, "out of memory"});
        }
    }
    void let_copies(CopyKind kind, bool lead) noexcept;   ///< with port_changes_ locked
    void map_port(const PortSpec& spec);
    void unmap_port(const PortSpec& spec) noexcept;
    [[nodiscard]] Port* port_of(VportId vport) const noexcept;
    // With port_changes_ locked.
    [[nodiscard]] Result<void> open_entrance(Port& port) noexcept;
    [[nodiscard]] Result<void> let_in_by_uplink(const RoceAddress& address);
    /// No packet that came in by it is under way when this returns.
    void shut_entrance(Port& port) noexcept;
    void detach_locked(VportId vport) noexcept;

    [[nodiscard]] static std::string count_text(const Flow& flow);
    [[nodiscard]] std::string rule_text(const Flow& flow) const;
    [[nodiscard]] FlowReport report_of(const Flow& flow, const PortNames& names) const;

    // Destroyed in reverse: flows and what kept rules lead to, then the backlog, ports before the pipeline, that before
    // the counters.
    std::shared_ptr<Device> device_;
    DeviceCaps caps_;
    std::unique_ptr<CounterPool> counters_;
    std::unique_ptr<Pipeline> pipeline_;
    ReasonTable reasons_;
    MegaflowParts parts_;
    PlanCache plans_;

    std::mutex port_changes_;
    mutable std::mutex ports_gate_;
    std::atomic<bool> change_waits_{false};   ///< changes with the gate
    mutable std::shared_mutex ports_mutex_;
    std::vector<std::unique_ptr<Port>> ports_;
    std::map<RoceAddress, unsigned> roce_;   ///< how often each was let in; with port_changes_
    PortMap port_map_;
    std::uint32_t meter_serial_ = 0;   ///< of the last; with port_changes_
    Choices choices_;          ///< with ports_mutex_ too

    static constexpr std::size_t shard_length = 256;
    Backlog backlog_;
    mutable std::mutex kept_mutex_;
    std::vector<Rule> kept_;   ///< the device would not destroy them, and packets go on by them
    std::array<FlowShard, shard_length> shards_;
};

}  // namespace ovsdr::dr
