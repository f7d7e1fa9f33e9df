// What one eSwitch has before any megaflow, and the rules that lead a port's packets to the tables of megaflows.
//
//   FDB root      source_port = vport of ours                 → entry table; before that: roce_entrance.hpp
//                 source_port = manager, source_sqn = n       → send table
//   FDB send      source_sqn = n                              → vport of that queue
//   FDB entry     first: TCP with FIN or RST                  → reg_c_1 := mark of the table, miss table
//                 (matchers of the megaflows)
//                 last: everything                            → reg_c_1 := mark of the table, miss table
//   FDB miss      everything                                  → count, default miss (the manager)
//
// Tables behind recirculations: table_set.hpp; NIC_RX: landing.hpp; copies for software: work_set.hpp.
//
// Root rules are one per vport or queue that we own, never a match-all: what is not ours stays the kernel's. The send
// table is apart from the entry table so that forwarded packets do not walk its matcher. default_miss right after a
// modify_header is refused by devices, hence the miss table.
//
// A packet that ends a TCP connection goes up whatever megaflow it belongs to, and the software datapath forwards and
// counts it: OpenFlow's fin_timeout and NetFlow ask for the flags that a flow's packets had, and a counter knows none.
// One such rule for all costs a connection two packets in the slow path; a second and third rule for each megaflow
// would triple their memory and the time to delete them (docs/performance.md), and only megaflows that match TCP could
// have them. NIC_TX has no part in this: it sees none of the vports' traffic. Behind a recirculation there is no need
// for such rules: these packets never get there.
//
// Life cycle. A Pipeline is made whole or not at all; a PortRules lives while its port is attached and dies before the
// Pipeline.
//
// Threads: PortRules may be made and destroyed from any thread. Errors: the device's. Source: docs/architecture.md,
// "Tables".
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "offload/dr/compile/levels.hpp"
#include "offload/dr/device/counter_bulk.hpp"
#include "offload/dr/eswitch.hpp"
#include "offload/dr/graph.hpp"
#include "offload/dr/install/action_cache.hpp"
#include "offload/dr/install/counter.hpp"
#include "offload/dr/install/roce_entrance.hpp"
#include "offload/dr/install/tunnel_rules.hpp"
#include "offload/dr/reject.hpp"

namespace ovsdr::dr {

/// What leads a vport's misses to one slow-path queue, and what that queue sends to the vport.
/// Destroyed from the last to the first.
struct QueueRules {
    std::unique_ptr<CounterBulk> led_up;   ///< one counter: packets that these lead up
    Rule send_to_vport;                    ///< FDB send table
    Rule enter_send;                       ///< FDB root
    Rule to_queue;                         ///< NIC_RX
    std::vector<Rule> by_kind;             ///< NIC_RX, in front of `to_queue`
    std::uint16_t priority = 0;            ///< as Landing::to_queue() takes it
};

/// All rules of an attached vport. Destroyed from the last to the first, so that nothing enters any more when the way
/// out goes; what entered before that is the owner's affair (drain between the two).
struct PortRules {
    QueueRules queue;
    std::optional<QueueRules> old_queue;   ///< of the queue before, whose last packets are under way
    Rule let_down;                         ///< NIC_RX root, perhaps none
    std::map<RoceAddress, RoceEntrance::Rules> roce{};   ///< FDB root, of the uplink
    Rule enter;                            ///< FDB root
};

class Pipeline {
public:
    static constexpr std::uint32_t miss_level = 60;

    [[nodiscard]] static Result<std::unique_ptr<Pipeline>> create(const std::shared_ptr<Device>& device,
                                                                  const DeviceCaps& caps,
                                                                  CounterPool& counters) noexcept;

    struct QueueIn {
        VportId vport;
        Device::VportRegister register_bits;
        ibv_qp* slow_path_qp;
        std::uint32_t slow_path_sqn;
        std::span<const QueuePairFor> by_kind{};
        std::uint16_t priority = 0;   ///< 0 or 1: the one that the queue before does not have
    };
    /// When this returns, what the queue sends reaches the vport, and misses go to it unless a queue of priority 0 gets
    /// them. After an error, or std::bad_alloc, `rules` may hold some of the rules; with priority 0 these may have led
    /// misses to the queue already: stop_leading_up() then.
    [[nodiscard]] Result<void> serve(const QueueIn& queue, QueueRules& rules);
    /// PortRules::let_down: what missed reaches the queue's rule. May throw std::bad_alloc.
    [[nodiscard]] Result<Rule> let_down(Device::VportRegister vport) { return landing_->let_down(vport); }
    /// PortRules::enter: misses of the vport must have a queue to go to already. May throw std::bad_alloc.
    [[nodiscard]] Result<Rule> let_in(VportId vport);
    /// PortRules::roce, of the uplink. May throw std::bad_alloc.
    [[nodiscard]] Result<RoceEntrance::Rules> let_roce_in(const RoceAddress& address) {
        return roce_->let_in(address, miss_level);
    }
    /// Packets of the manager function that its rules have led to it, asked of the device.
    [[nodiscard]] std::uint64_t roce_led() noexcept { return roce_->led(); }
    /// Takes away the rules that lead misses to the queue. No packet is under way to it when this returns; how many it
    /// got in all, as far as the device could be asked.
    std::uint64_t stop_leading_up(QueueRules& rules) noexcept;

    /// What the tables that are there now, and the rules in them, have against the megaflow's plan.
    [[nodiscard]] std::optional<NoWay> obstacle_to(const Ufid& ufid, const RulePlan& plan) const;
    /// Rule of a megaflow, behind `counter`, with `value` instead of that in the plan. ELOOP, EBUSY: obstacle_to() has
    /// something to say since.
    [[nodiscard]] Result<Rule> install(const Ufid& ufid, const RulePlan& plan, const MatchParam& value,
                                       const Counter& counter) noexcept;

    [[nodiscard]] Domain& fdb() noexcept { return *fdb_; }
    [[nodiscard]] Domain& nic_rx() noexcept { return landing_->domain(); }
    [[nodiscard]] TableSet& tables() noexcept { return *tables_; }
    [[nodiscard]] const TableSet& tables() const noexcept { return *tables_; }
    [[nodiscard]] MeterSet& meters() noexcept { return *meters_; }

    /// Such copies for software go to this queue: WorkSet::lead().
    [[nodiscard]] Result<void> lead_copies(CopyKind kind, ibv_qp* queue) {
        return works_->lead(kind, miss_level, queue);
    }
    void stop_copies(CopyKind kind) noexcept { works_->stop(kind); }
    /// Nothing: no work has or had this id.
    [[nodiscard]] std::shared_ptr<const InstalledWork> work_of(std::uint32_t id) const;
    [[nodiscard]] WorkSet& works() noexcept { return *works_; }

    /// As `dr/show` numbers it; 0: it is not there.
    [[nodiscard]] std::uint32_t table_id(TableKey key) const;

    /// Packets that went up, asked of the device.
    [[nodiscard]] FlowStats misses() noexcept { return counters_->read_now(misses_); }

    /// Eswitch::table_use().
    [[nodiscard]] std::vector<Eswitch::TableUse> use() const;
    /// Domains, tables and matchers, for people.
    [[nodiscard]] std::string text() const;
    /// FlowReport::program of a megaflow in the device; `count`: what is said of its counter.
    [[nodiscard]] std::vector<std::string> program_of(const RulePlan& plan, const Rule& rule,
                                                      const std::string& count) const;
    /// Tables, and where those of their rules lead that are no megaflow's.
    void draw(Graph& graph, const FlowStats& misses) const;
    /// What draw() calls the table of megaflows.
    [[nodiscard]] static std::string node_of(TableKey key);
    /// And where the copy goes.
    [[nodiscard]] static std::string node_of_copy(const SoftwareCopy& copy);

private:
    /// In the root, a queue's rule comes before that of the manager's vport, should that be a port of ours as well.
    static constexpr std::uint16_t root_queue_priority = 0, root_vport_priority = 1;
    static_assert(RoceEntrance::priority < root_vport_priority);

    /// A table as people are told of it.
    struct TableView {
        std::string node, name;
        std::shared_ptr<const MatcherSet> table;
    };

    Pipeline() = default;
    [[nodiscard]] std::vector<TableView> views() const;
    [[nodiscard]] Result<void> make_tables(const std::shared_ptr<Device>& device, const DeviceCaps& caps);
    [[nodiscard]] Result<void> make_miss_rules(CounterPool& counters);
    [[nodiscard]] Result<void> lead_kind(const Landing::Place& place, const QueuePairFor& kind,
                                         std::vector<Rule>& rules);
    [[nodiscard]] std::shared_ptr<FlowTable> find(TableKey key) const;
    void lead_in(Graph& graph, const Graph::Matcher& root_matcher) const;

    std::shared_ptr<Device> device_;
    VportId manager_{0};
    std::shared_ptr<Domain> fdb_;
    std::unique_ptr<Landing> landing_;
    std::shared_ptr<MatcherSet> fdb_root_, send_, miss_;
    std::shared_ptr<LandingIds> ids_;
    std::shared_ptr<TableSet> tables_;
    std::shared_ptr<FlowTable> entry_;
    std::shared_ptr<TunnelRules> tunnel_rules_;
    ActionRef to_entry_, to_send_;
    std::unique_ptr<MeterSet> meters_;
    std::shared_ptr<WorkSet> works_;
    std::unique_ptr<ActionCache> actions_;
    std::unique_ptr<RoceEntrance> roce_;
    CounterPool* counters_ = nullptr;
    Counter misses_;
    Rule count_misses_;
};

}  // namespace ovsdr::dr
