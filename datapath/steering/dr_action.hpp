// DR actions: what rules may list. One object serves any number of rules.
//
// An action refers to what it leads to (domain, table, branches of an array); EBUSY while a rule or an array lists it.
// What a packet in flight may still need (counters, edits) is shared with the rules' nodes and outlives the action.
//
// Errors of the factories are libmlx5's.
// Threads: any.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "datapath/packet.hpp"
#include "datapath/steering/action_order.hpp"
#include "datapath/steering/counter.hpp"
#include "datapath/steering/dr_table.hpp"
#include "datapath/steering/edit.hpp"
#include "datapath/steering/program.hpp"

namespace ovsdr::soft {

/// A queue that rules deliver to. hold() and release() keep its owner from destroying it while a rule reaches it.
struct Receiver {
    Sink sink;
    void* object = nullptr;
    void (*hold)(void* object) noexcept = nullptr;
    void (*release)(void* object) noexcept = nullptr;
};

class Action : public Referenced {
public:
    using Created = std::unique_ptr<Action>;

    [[nodiscard]] static Created drop();
    [[nodiscard]] static Created default_miss();
    [[nodiscard]] static Created pop_vlan();
    /// The lower 24 bits count.
    [[nodiscard]] static Created tag(std::uint32_t value);
    /// `header` in host order, ethertype first; EINVAL for other ethertypes than 0x8100 and 0x88a8.
    [[nodiscard]] static int push_vlan(std::uint32_t header, Created& action);
    /// An empty sink makes rules fail with EINVAL, not the action.
    [[nodiscard]] static Created receiver(const Receiver& receiver);
    /// EINVAL for an offset past the bulk.
    [[nodiscard]] static int counter(std::shared_ptr<CounterBulk> bulk, std::uint32_t offset, Created& action);
    /// EINVAL for a root table.
    [[nodiscard]] static int table(Table& table, Created& action);
    /// Root matchers from `priority` on; EINVAL for a table that is not a root.
    [[nodiscard]] static int root_table(Table& table, std::uint16_t priority, Created& action);
    /// EOPNOTSUPP outside the FDB, EINVAL past 0xFFFF. That the vport exists is the caller's to check.
    [[nodiscard]] static int vport(Domain& domain, std::uint32_t vport, Created& action);
    /// `commands` big-endian; see EditList. `root_level`: for root tables only, as others are for the rest.
    [[nodiscard]] static int modify_header(Domain& domain, bool root_level, std::span<const std::uint64_t> commands,
                                           Created& action);
    /// Every branch gets the packet, counters count it once. EINVAL below two branches; EOPNOTSUPP in NIC_TX and for
    /// branches that an array cannot have; ENOSPC.
    [[nodiscard]] static int dest_array(Domain& domain, std::span<Action* const> branches, Created& action);

    ~Action();
    Action(const Action&) = delete;
    Action& operator=(const Action&) = delete;

    const ActionType type;
    Domain* domain = nullptr;                ///< vport, modify_header, dest_array
    Table* destination = nullptr;            ///< table, root_table
    std::uint32_t value = 0;                 ///< tag, VLAN header, vport, counter's offset, root_table's priority
    bool root_level = false;
    Receiver queue;
    std::shared_ptr<CounterBulk> bulk;
    std::shared_ptr<const EditList> edits;
    std::shared_ptr<ArrayProgram> array;
    std::vector<Action*> branches;

private:
    explicit Action(ActionType its_type) noexcept : type(its_type) {}
    [[nodiscard]] int add_branch(Action& branch);

    std::vector<std::uint16_t> destinations_;  // of an array's queues, given back with it
};

}  // namespace ovsdr::soft
