// A plain function's NIC_RX: from what the NIC gives the function to the queues of its port.
//
//   root       everything, or what has the port's VLAN tag   → VLAN, or megaflows
//   VLAN       everything                                    → pop_vlan, megaflows
//   megaflows  first, while the function is down: everything → count, drop
//              TCP with FIN or RST                           → queues
//              (matchers of megaflows)                       → count, drop; or count, tag, queues
//              last: everything                              → queues
//   queues     IP version, TCP or UDP; IP version            → count, the TIR of the kind
//              everything                                    → count, the QP
//
// What ends a TCP connection goes up with no megaflow's mark, as in the FDB (pipeline.hpp). A queue is replaced behind
// the megaflows, by rules of the other of two ranges of priorities.
//
// A device whose NIC_RX has no table but its root (DeviceCaps::recirculates) has one rule there: everything → the QP.
//
// Threads: any; those that change the entrance or the queue one at a time. Errors: the device's; may throw
// std::bad_alloc and leaves nothing behind then.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "offload/dr/device/counter_bulk.hpp"
#include "offload/dr/device/rule.hpp"
#include "offload/dr/eswitch.hpp"
#include "offload/dr/install/counter.hpp"

namespace ovsdr::dr {

class ReceiveSide {
public:
    [[nodiscard]] static Result<std::unique_ptr<ReceiveSide>> create(const std::shared_ptr<Device>& device,
                                                                     const DeviceCaps& caps);

    /// What leads to one queue. Destroyed from the last to the first.
    struct QueueRules {
        std::unique_ptr<CounterBulk> led_up;   ///< one counter
        Rule to_queue;
        std::vector<Rule> by_kind;
        std::uint16_t range = 0;               ///< 0 or 1
    };
    /// `range`: the one that the queue before does not have. EOPNOTSUPP: several queues, and only a root. After an
    /// error, or std::bad_alloc, `rules` may hold some of the rules; with range 0 these may have led packets to the
    /// queue already: stop() then.
    [[nodiscard]] Result<void> serve(ibv_qp* qp, std::span<const QueuePairFor> by_kind, std::uint16_t range,
                                     QueueRules& rules);
    /// How many packets went to the queue in all; none is under way to it when this returns.
    std::uint64_t stop(QueueRules& rules) noexcept;
    /// How many have gone so far.
    [[nodiscard]] static std::uint64_t led_up(QueueRules& rules) noexcept;

    /// Lets packets in that have this VLAN's tag, which they lose; 0: all. The queue's rules are there.
    [[nodiscard]] Result<void> let_in(std::uint16_t vlan);
    /// No packet is under way when this returns.
    void shut() noexcept;
    [[nodiscard]] bool is_open() const noexcept { return static_cast<bool>(enter_); }

    /// Drops all that comes in, counted by `counter`, until the rule is gone.
    [[nodiscard]] Result<Rule> drop_everything(const Counter& counter);

    /// A megaflow's rule: with a tag it marks, with 0 it drops.
    [[nodiscard]] Result<Rule> install(const MatchParam& mask, const MatchParam& value, const Counter& counter,
                                       std::uint32_t tag);

    [[nodiscard]] Domain& domain() noexcept { return *domain_; }
    /// For people, in the order in which packets see them.
    [[nodiscard]] std::vector<std::pair<const char*, const MatcherSet*>> tables() const;

private:
    ReceiveSide() = default;
    [[nodiscard]] Result<void> make_tables(const DeviceCaps& caps);
    [[nodiscard]] Result<void> make_fixed_rules();

    std::shared_ptr<Device> device_;
    std::shared_ptr<Domain> domain_;
    std::shared_ptr<MatcherSet> root_, vlan_, megaflows_, queues_;   ///< but for the root perhaps none
    ActionRef to_vlan_, to_megaflows_, to_queues_, pop_, drop_;
    Rule untag_;
    std::vector<Rule> connection_ends_;
    Rule miss_;
    Rule enter_;
};

}  // namespace ovsdr::dr
