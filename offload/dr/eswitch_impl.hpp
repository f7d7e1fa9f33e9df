// The Eswitch behind eswitch.hpp: megaflows in shards, ports in a map, tables in a Pipeline.
//
// Locks, in the order in which they are taken:
//   port_changes_   serialises attach, detach and renumbering
//   ports_mutex_    shared by whoever compiles and installs, exclusive for the moment in which the port map changes: what was
//                   compiled with the old map is installed before the map changes, and compiled again after it
//   Shard::mutex    one per 1/256 of the ufids, held across device calls for a megaflow of that shard
//   then those of the pipeline's parts, the counters and the reasons
#pragma once

#include <array>
#include <atomic>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <unordered_map>

#include "offload/dr/compile.hpp"
#include "offload/dr/eswitch.hpp"
#include "offload/dr/megaflow_store.hpp"
#include "offload/dr/pipeline.hpp"
#include "offload/dr/reason_table.hpp"

namespace ovsdr::dr {

class EswitchImpl final : public Eswitch {
public:
    [[nodiscard]] static Result<std::shared_ptr<EswitchImpl>> create(std::string_view device) noexcept;
    ~EswitchImpl() override;

    std::string_view device() const noexcept override { return device_->name(); }
    ibv_context* context() const noexcept override { return device_->context(); }
    ibv_pd* pd() const noexcept override { return device_->pd(); }

    Result<void> attach_port(const PortSpec& spec) noexcept override;
    void detach_port(VportId vport) noexcept override;
    Result<void> set_odp_port(VportId vport, OdpPort odp_port) noexcept override;
    void close_entrance(VportId vport) noexcept override;

    PutOutcome put(const Ufid& ufid, const ovsdr_megaflow& megaflow) noexcept override;
    std::optional<FlowStats> del(const Ufid& ufid) noexcept override;
    std::optional<Status> status(const Ufid& ufid) noexcept override;
    void flush(std::optional<OdpPort> port) noexcept override;

    std::string show(bool verbose) const override;
    std::optional<FlowReport> explain(const Ufid& ufid) const override;
    std::vector<ReasonCount> reasons() const override;
    Totals totals() const noexcept override;

private:
    struct UfidHash {
        std::size_t operator()(const Ufid& ufid) const noexcept { return ufid[0] ^ (ufid[1] * 0x9E3779B97F4A7C15ULL); }
    };

    /// A known megaflow. Installed: has a rule. Else rejected or failed.
    struct Flow {
        StoredMegaflow megaflow;
        Counter counter;            ///< outlives the rule
        Rule rule;
        std::unique_ptr<FlowStats> carried;   ///< of counters that this megaflow had before, if any
        ReasonTable::Mark mark;
        bool was_installed = false;
        std::uint8_t bytes_uncounted = 0;
    };
    using Flows = std::unordered_map<Ufid, Flow, UfidHash>;
    struct Shard {
        mutable std::mutex mutex;
        Flows flows;
    };

    struct Port {
        PortSpec spec;
        PortRules rules;
    };

    explicit EswitchImpl(std::shared_ptr<Device> device) noexcept;

    [[nodiscard]] Shard& shard_of(const Ufid& ufid) noexcept { return shards_[UfidHash{}(ufid) % shards_.size()]; }
    [[nodiscard]] const Shard& shard_of(const Ufid& ufid) const noexcept {
        return shards_[UfidHash{}(ufid) % shards_.size()];
    }

    // With the flow's shard locked and ports_mutex_ shared.
    [[nodiscard]] PutOutcome bring_up_to_date(Flow& flow, const ovsdr_megaflow& megaflow) noexcept;
    [[nodiscard]] Result<void> install(Flow& flow, const RulePlan& plan) noexcept;
    [[nodiscard]] Result<void> replace_counter(Flow& flow, const RulePlan& plan) noexcept;
    /// Destroys the rules of these flows, waits until the device has let go of them, and settles their counters.
    void stop(std::span<Flow* const> flows) noexcept;
    void stop(Flow& flow) noexcept;
    void mark(Flow& flow, ReasonTable::Kind kind, const std::string& reason, const std::string& detail) noexcept;
    [[nodiscard]] static bool has_failed(const Flow& flow) noexcept;
    /// So many tries in a second, for all megaflows together: a device that is full fails each time.
    [[nodiscard]] bool may_try_again() noexcept;
    void try_again(const Ufid& ufid) noexcept;
    /// stop(), and no counter any more: what it had is carried.
    void retire(Flow& flow) noexcept;
    [[nodiscard]] static FlowStats stats_of(const Flow& flow) noexcept;

    /// ports_mutex_, through a gate: puts that follow each other without a gap do not keep a port change waiting for ever.
    [[nodiscard]] std::shared_lock<std::shared_mutex> read_ports() const noexcept {
        std::lock_guard gate(ports_gate_);
        return std::shared_lock(ports_mutex_);
    }
    [[nodiscard]] std::unique_lock<std::shared_mutex> change_ports() noexcept {
        std::lock_guard gate(ports_gate_);
        return std::unique_lock(ports_mutex_);
    }

    /// Compiles every megaflow that mentions one of these again.
    void recompile(std::initializer_list<OdpPort> ports) noexcept;
    void map_port(const PortSpec& spec) noexcept;
    void unmap_port(const PortSpec& spec) noexcept;
    [[nodiscard]] Port* port_of(VportId vport) const noexcept;

    [[nodiscard]] std::string rule_text(const Flow& flow) const;
    [[nodiscard]] FlowReport report_of(const Ufid& ufid, const Flow& flow) const;

    // Destroyed in reverse: flows and ports before the pipeline, that before the counters.
    std::shared_ptr<Device> device_;
    DeviceCaps caps_;
    std::unique_ptr<CounterPool> counters_;
    std::unique_ptr<Pipeline> pipeline_;
    ReasonTable reasons_;
    MaskPool masks_;

    std::mutex port_changes_;
    mutable std::mutex ports_gate_;
    mutable std::shared_mutex ports_mutex_;
    std::vector<std::unique_ptr<Port>> ports_;
    PortMap port_map_;

    static constexpr std::int64_t between_tries_ms = 20;
    std::atomic<std::int64_t> next_try_ms_{0};

    static constexpr std::size_t shard_length = 256;
    std::array<Shard, shard_length> shards_;
};

}  // namespace ovsdr::dr
