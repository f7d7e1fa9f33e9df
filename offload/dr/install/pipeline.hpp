// The tables of one eSwitch that are there before any megaflow, and the rules that lead a port's packets through them.
//
//   FDB root      source_port = vport of ours                 → megaflow table
//                 source_port = manager, source_sqn = n       → send table
//   FDB send      source_sqn = n                              → vport of that queue
//   FDB megaflow  first: TCP with FIN or RST                  → reg_c_1 := megaflow table's id, miss table
//                 (matchers of the megaflows)
//                 last: everything                            → reg_c_1 := megaflow table's id, miss table
//   FDB miss      everything                                  → count, default miss (the manager)
//   NIC_RX root   vport bits of reg_c_0, reg_c_1 = table's id → count, tag(table's id), the port's slow-path QP
//
// A port's queue may be replaced while packets go up. Two rules with one match would give both queues a copy (the
// kernel adds the second destination to the first rule), so the new queue's rule has the other of two priorities: at
// any moment a packet finds exactly one of them, and none after the old one has gone but the new one.
//
// Root rules are one per vport or queue that we own, never a match-all: what is not ours stays the kernel's. The send
// table is apart from the megaflow table so that forwarded packets do not walk its matcher. default_miss right after a
// modify_header is refused by devices, hence the miss table.
//
// A packet that ends a TCP connection goes up whatever megaflow it belongs to, and the software datapath forwards and
// counts it: OpenFlow's fin_timeout and NetFlow ask for the flags that a flow's packets had, and a counter knows none.
// One such rule for all costs a connection two packets in the slow path; a second and third rule for each megaflow
// would triple their memory and the time to delete them (docs/performance.md), and only megaflows that match TCP could
// have them. NIC_TX has no part in this: it sees none of the vports' traffic.
//
// Life cycle. A Pipeline is made whole or not at all; a PortRules lives while its port is attached and dies before the
// Pipeline.
//
// Threads: PortRules may be made and destroyed from any thread. Errors: the device's. Source: docs/architecture.md,
// "Tables".
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "offload/dr/install/action_cache.hpp"
#include "offload/dr/device/caps.hpp"
#include "offload/dr/install/counter.hpp"
#include "offload/dr/device/counter_bulk.hpp"
#include "offload/dr/device/rule.hpp"

namespace ovsdr::dr {

/// What leads a vport's misses to one slow-path queue, and what that queue sends to the vport.
/// Destroyed from the last to the first.
struct QueueRules {
    std::unique_ptr<CounterBulk> led_up;   ///< one counter: packets that `to_queue` led to the queue
    Rule send_to_vport;                    ///< FDB send table
    Rule enter_send;                       ///< FDB root
    Rule to_queue;                         ///< NIC_RX root
    std::uint16_t priority = 0;            ///< of `to_queue`
};

/// All rules of an attached vport. Destroyed from the last to the first, so that nothing enters any more when the way
/// out goes; what entered before that is the owner's affair (drain between the two).
struct PortRules {
    QueueRules queue;
    std::optional<QueueRules> old_queue;   ///< of the queue before, whose last packets are under way
    Rule enter;                            ///< FDB root
};

class Pipeline {
public:
    static constexpr std::uint32_t megaflow_level = 1, branch_level = 2, miss_level = 60;
    /// In reg_c_1 and in the flow tag: the table that a packet missed in. 0 would be "no table".
    static constexpr std::uint32_t megaflow_table_id = 1;
    static constexpr std::uint16_t end_priority = 0, megaflow_priority = 1, last_priority = 2;

    [[nodiscard]] static Result<std::unique_ptr<Pipeline>> create(const std::shared_ptr<Device>& device,
                                                                  const DeviceCaps& caps,
                                                                  CounterPool& counters) noexcept;

    struct QueueIn {
        VportId vport;
        Device::VportRegister register_bits;
        ibv_qp* slow_path_qp;
        std::uint32_t slow_path_sqn;
        std::uint16_t priority = 0;   ///< 0 or 1: the one that the queue before does not have
    };
    /// When this returns, what the queue sends reaches the vport, and misses go to it unless a queue of priority 0 gets
    /// them. May throw std::bad_alloc; leaves nothing behind then.
    [[nodiscard]] Result<QueueRules> serve(const QueueIn& queue);
    /// PortRules::enter: misses of the vport must have a queue to go to already. May throw std::bad_alloc.
    [[nodiscard]] Result<Rule> let_in(VportId vport);
    /// Takes away the rule that leads misses to the queue. No packet is under way to it when this returns; how many it
    /// got in all, as far as the device could be asked.
    std::uint64_t stop_leading_up(QueueRules& rules) noexcept;

    /// Rule of a megaflow, behind `counter`.
    [[nodiscard]] Result<Rule> install(const RulePlan& plan, const Counter& counter) noexcept;

    [[nodiscard]] Domain& fdb() noexcept { return *fdb_; }
    [[nodiscard]] Domain& nic_rx() noexcept { return *nic_rx_; }

    /// Packets that went up, asked of the device.
    [[nodiscard]] FlowStats misses() noexcept { return counters_->settle(misses_); }

    /// Domains, tables and matchers, for people.
    [[nodiscard]] std::string text() const;

private:
    Pipeline() = default;
    [[nodiscard]] Result<void> make_tables(const std::shared_ptr<Device>& device) noexcept;
    [[nodiscard]] Result<void> make_miss_rules(CounterPool& counters) noexcept;
    [[nodiscard]] Result<void> mark_connection_ends(const std::vector<ActionRef>& to_miss);
    [[nodiscard]] Result<Rule> add(MatcherSet& table, MatcherSpec spec, const MatchParam& value,
                                   std::vector<ActionRef> actions);

    std::shared_ptr<Device> device_;
    VportId manager_{0};
    std::shared_ptr<Domain> fdb_, nic_rx_;
    std::shared_ptr<MatcherSet> fdb_root_, send_, megaflows_, miss_, nic_rx_root_;
    ActionRef to_megaflows_, to_send_, tag_;
    std::unique_ptr<ActionCache> actions_;
    CounterPool* counters_ = nullptr;
    Counter misses_;
    Rule count_misses_, mark_misses_;
    std::vector<Rule> mark_ends_;
};

}  // namespace ovsdr::dr
