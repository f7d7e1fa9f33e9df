// The Eswitch of a device that has none: one port, the function itself (plain_function.hpp says what is different).
//
// Model. attach_port() takes vport 0 and puts in the rules that lead what comes in to the port's queue; put() compiles
// a megaflow (nic_plan.hpp) and makes its rule in NIC_RX, which drops or marks. What is refused stays in software, with
// the reason; what the device failed to take is tried again (backlog.hpp).
//
// Statistics: those of a megaflow that drops are the rule's; one that marks has none here, since its packets are
// counted where they are processed. Meters, tunnels and choices are software's, too.
//
// Locks, in the order in which they are taken: port_changes_, ports_mutex_ (shared by whoever compiles and installs), a
// shard's. Puts that follow each other without a gap do not keep a port change waiting: it goes before the next one.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <vector>

#include "common/writer_first_mutex.hpp"
#include "offload/dr/backlog.hpp"
#include "offload/dr/eswitch.hpp"
#include "offload/dr/flow_map.hpp"
#include "offload/dr/megaflow_store.hpp"
#include "offload/dr/nic/held_mark.hpp"
#include "offload/dr/nic/mark_table.hpp"
#include "offload/dr/nic/nic_plan.hpp"
#include "offload/dr/nic/plain_function.hpp"
#include "offload/dr/nic/receive_side.hpp"
#include "offload/dr/nic/send_side.hpp"
#include "offload/dr/reason_table.hpp"

namespace ovsdr::dr {

class NicFunction final : public Eswitch, public PlainFunction {
public:
    [[nodiscard]] static Result<std::shared_ptr<NicFunction>> create(std::shared_ptr<Device> device,
                                                                     const DeviceCaps& caps) noexcept;
    ~NicFunction() override;

    std::string_view device() const noexcept override { return device_->name(); }
    ibv_context* context() const noexcept override { return device_->context(); }
    ibv_pd* pd() const noexcept override { return device_->pd(); }
    PlainFunction* plain_function() noexcept override { return this; }

    Result<void> attach_port(const PortSpec& spec) noexcept override;
    void detach_port(VportId vport) noexcept override;
    using Eswitch::switch_queue;
    QueueSwitch switch_queue(VportId vport, ibv_qp* qp, std::uint32_t sqn,
                             std::span<const QueuePairFor> by_kind) noexcept override;
    void forget_old_queue(VportId vport) noexcept override;
    Result<void> set_odp_port(VportId vport, OdpPort odp_port) noexcept override;
    void set_policed(VportId vport, bool policed) noexcept override;
    void close_entrance(VportId vport) noexcept override;

    void set_tunnel_port(const TunnelPort&) noexcept override {}
    void remove_tunnel_port(OdpPort) noexcept override {}
    void choose(const Choices&) noexcept override {}
    void set_meter(std::uint32_t, const meter::Spec&) noexcept override {}
    MeterStats remove_meter(std::uint32_t) noexcept override { return {}; }
    bool has_meter(std::uint32_t) noexcept override { return false; }
    void on_meter_use(std::function<void()>) noexcept override {}
    Result<void> lower_meter(std::uint32_t, std::uint32_t) noexcept override { return {}; }
    MeterStats meter_stats(std::uint32_t) noexcept override { return {}; }

    bool knows(const Ufid& ufid) const noexcept override;
    using Eswitch::put;
    PutOutcome put(const Ufid& ufid, const ovsdr_megaflow& megaflow, std::uint16_t neighbourhood) noexcept override;
    PutOutcome put_marked(const Ufid& ufid, const ovsdr_megaflow& megaflow, std::uint16_t neighbourhood,
                          std::uint32_t mark) noexcept override;
    using Eswitch::del;
    void del(std::span<Deletion> deletions) noexcept override;
    std::optional<Status> status(const Ufid& ufid) noexcept override;
    /// What comes up begins anew, marked or not.
    std::optional<TableKey> table_of(std::uint32_t) const noexcept override { return TableKey{}; }
    Result<void> lead_copies(CopyKind, ibv_qp*) noexcept override;
    void stop_copies(CopyKind) noexcept override {}
    std::shared_ptr<const InstalledWork> work_of(std::uint32_t) const noexcept override { return nullptr; }
    void flush(std::optional<OdpPort> port) noexcept override;

    std::string show(bool verbose, const PortNames& names) const override;
    Graph graph() const override;
    std::optional<FlowReport> explain(const Ufid& ufid, const PortNames& names) const override;
    using Eswitch::reasons;
    std::vector<ReasonCount> reasons(std::span<const InSoftware> in_software) const override;
    Totals totals() const noexcept override;
    std::vector<TableUse> table_use() const override;

    std::uint32_t mark_of(std::uint32_t tag) const noexcept override { return marks_.mark_of(tag); }
    Result<void> set_up(bool up) noexcept override;
    bool is_up() const noexcept override { return up_.load(std::memory_order_relaxed); }
    Counts counts() noexcept override;

private:
    /// What the device has of a megaflow. retire() is the only way out.
    struct Installation {
        Counter counter;           ///< outlives the rule
        Rule rule;
        std::uint32_t tag = 0;     ///< 0: it drops
    };
    struct Flow {
        explicit Flow(const Ufid& its_ufid) noexcept : ufid(its_ufid) {}

        const Ufid ufid;
        StoredMegaflow megaflow;
        HeldMark mark;                  ///< outlives the tag that stands for it
        std::uint16_t neighbourhood = 0;
        Installation now;
        std::unique_ptr<const NicPlan> plan;   ///< of `now`
        FlowStats carried;                ///< what rules before have dropped
        bool was_installed = false;
        std::string failure;              ///< what the device said, when it did not take the megaflow last
        Backlog::Place place;
        ReasonTable::Mark reason;
    };
    struct Shard {
        mutable std::mutex mutex;
        FlowMap<Flow> flows;
    };
    struct Port {
        PortSpec spec;
        ReceiveSide::QueueRules queue;
        std::optional<ReceiveSide::QueueRules> old_queue;
        Counter sent;   ///< outlives the rules that count
    };
    /// While the function is down. The counters outlive the rules.
    struct Closed {
        Rule receive, send;
    };

    NicFunction(std::shared_ptr<Device> device, const DeviceCaps& caps) noexcept;
    [[nodiscard]] Result<void> make();

    [[nodiscard]] Shard& shard_of(const Ufid& ufid) noexcept { return shards_[UfidHash{}(ufid) % shards_.size()]; }
    [[nodiscard]] const Shard& shard_of(const Ufid& ufid) const noexcept {
        return shards_[UfidHash{}(ufid) % shards_.size()];
    }

    // With the shard locked and ports_mutex_ shared.
    [[nodiscard]] Compiled<NicPlan> compiled(const Flow& flow) const noexcept;
    PutOutcome bring_up_to_date(Flow& flow, bool in_line) noexcept;
    [[nodiscard]] Result<void> install(Flow& flow, const NicPlan& plan) noexcept;
    [[nodiscard]] Result<Installation> make_installation(Flow& flow, const NicPlan& plan);
    void take_out(Flow& flow) noexcept;
    void finish(Flow& flow, const PutOutcome& outcome, bool asked) noexcept;
    [[nodiscard]] Backlog::Attempt try_again(const Ufid& ufid) noexcept;
    void recompile() noexcept;

    struct Retirement {
        Installation what;
        FlowStats counted{};
    };
    /// One drain for all. The counters are free then, and so are the tags.
    void retire(std::span<Retirement> retirements) noexcept;
    void end_rule(Installation& installation) noexcept;
    void forget(std::span<const std::unique_ptr<Flow>> gone, std::span<Deletion* const> answers) noexcept;

    // With port_changes_ locked.
    [[nodiscard]] Result<void> attach(const PortSpec& spec);
    void map_port() noexcept;
    void detach_locked() noexcept;
    [[nodiscard]] std::uint64_t sent_up() const noexcept;

    [[nodiscard]] static FlowStats stats_of(const Flow& flow) noexcept;
    [[nodiscard]] std::string rule_text(const Flow& flow) const;
    [[nodiscard]] FlowReport report_of(const Flow& flow, const PortNames& names) const;

    // Destroyed in reverse: megaflows, then the backlog, the port, the rules' tables, the counters.
    std::shared_ptr<Device> device_;
    DeviceCaps caps_;
    std::unique_ptr<CounterPool> drop_counters_, mark_counters_, port_counters_;
    Counter received_down_, sent_down_;
    std::unique_ptr<ReceiveSide> receive_;
    std::unique_ptr<SendSide> send_;
    MarkTable marks_;
    ReasonTable reasons_;
    MegaflowParts parts_;

    mutable std::mutex port_changes_;
    mutable WriterFirstMutex ports_mutex_;    ///< port_map_; held for long by nobody who changes it
    PortMap port_map_;
    std::unique_ptr<Port> port_;
    Closed closed_;
    std::atomic<bool> up_{true};
    std::uint64_t past_misses_ = 0;           ///< of queues that are gone

    mutable std::mutex kept_mutex_;
    std::vector<Rule> kept_;                  ///< the device would not destroy them

    Backlog backlog_;
    static constexpr std::size_t shard_length = 64;
    std::array<Shard, shard_length> shards_;
};

}  // namespace ovsdr::dr
