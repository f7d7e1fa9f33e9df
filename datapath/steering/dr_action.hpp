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
#include <optional>
#include <span>
#include <vector>

#include "datapath/packet.hpp"
#include "datapath/steering/action_order.hpp"
#include "datapath/steering/aso.hpp"
#include "datapath/steering/counter.hpp"
#include "datapath/steering/dr_table.hpp"
#include "datapath/steering/edit.hpp"
#include "datapath/steering/program.hpp"
#include "datapath/steering/rcu.hpp"
#include "datapath/steering/reformat.hpp"

namespace ovsdr::soft {

/// A queue that rules deliver to. hold() and release() keep its owner from destroying it while a rule reaches it.
struct Receiver {
    Sink sink;
    void* object = nullptr;
    void (*hold)(void* object) noexcept = nullptr;
    void (*release)(void* object) noexcept = nullptr;
};

class Action;

struct FlowMeterSpec {
    bool active;
    std::uint8_t reg_c;
    std::span<const std::uint8_t> parameters;  ///< flow_meter_parameters; what is missing is 0
};

struct SamplerSpec {
    std::uint32_t ratio;
    Table* next;
    std::span<Action* const> actions;
    std::uint64_t restore;  ///< a modify-header command, big-endian; only ConnectX-5 looks at it
};

/// The meter behind a flow_meter action, and whether it is switched on.
struct FlowMeter {
    Meter meter;
    std::atomic<bool> active{false};
    std::uint8_t reg_c = 0;
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
    /// `commands` big-endian; see EditList. `root_level`: for root tables only, as others are for the rest. EOPNOTSUPP
    /// for more commands than a root action has room for, EINVAL for more than any other has.
    [[nodiscard]] static int modify_header(Domain& domain, bool root_level, std::span<const std::uint64_t> commands,
                                           Created& action);
    /// `root_level` as for modify_header, and EOPNOTSUPP in the FDB. EINVAL for an encapsulation in NIC_RX, a
    /// decapsulation in NIC_TX, and Reformat's.
    [[nodiscard]] static int packet_reformat(Domain& domain, bool root_level, Reformat::Kind kind,
                                             std::span<const std::uint8_t> data, Created& action);

    /// What one branch of an array does: an encapsulation, where given, before the destination.
    struct Branch {
        Action* destination;
        Action* reformat = nullptr;
    };
    /// Every branch gets the packet, counters count it once. EINVAL below two branches and above 32; EOPNOTSUPP in
    /// NIC_TX and for branches that an array cannot have; EINVAL for an encapsulated one that leads to no vport or
    /// table; ENOSPC.
    [[nodiscard]] static int dest_array(Domain& domain, std::span<const Branch> branches, Created& action);
    /// Destinations without encapsulation.
    [[nodiscard]] static int dest_array(Domain& domain, std::span<Action* const> branches, Created& action);

    /// What a flow of verbs leads to: every receiver gets the packet, each counter counts it once, and where
    /// `next_rank` is given the packet goes on at matchers of the root from that rank on; without any of these it is
    /// dropped. In any domain. ENOSPC.
    [[nodiscard]] static int flow_array(Domain& domain, std::span<Action* const> branches,
                                        std::optional<std::uint32_t> next_rank, Created& action);
    /// ASO objects of `bulk` for rules of `domain`'s context, a connection for rules of `domain` and one that the bulk
    /// is linked to. EOPNOTSUPP on ConnectX-5 and without a bulk; errors of make_aso_use().
    [[nodiscard]] static int aso(Domain& domain, std::shared_ptr<AsoBulk> bulk, std::uint32_t offset,
                                 std::uint32_t flags, std::uint8_t reg_c, Created& action);
    /// For rules to come; those that there are keep what they have. EINVAL for other actions; EOPNOTSUPP for another
    /// direction or register of a connection whose bulk is linked.
    [[nodiscard]] int modify_aso(std::uint32_t offset, std::uint32_t flags, std::uint8_t reg_c) noexcept;
    /// A meter of its own that ends in `next`: colours packets into reg_c. EOPNOTSUPP for a root table; EINVAL for more
    /// than Meter::size bytes of parameters and for a register that the device does not return colours in.
    [[nodiscard]] static int flow_meter(Table& next, const FlowMeterSpec& spec, Created& action);
    /// `fields`: MLX5_FLOW_METER_OBJ_MODIFY_FIELD_*. Packets of all its rules meet the change. EINVAL for other actions
    /// and unknown fields.
    [[nodiscard]] int modify_flow_meter(const FlowMeterSpec& spec, std::uint64_t fields) noexcept;
    /// EINVAL (no ratio, no actions, a root table), EOPNOTSUPP (NIC_TX; actions that samples cannot have there; on
    /// ConnectX-5 in the FDB a restore command that is no SET of reg_c_0), ENOMEM, ENOSPC.
    [[nodiscard]] static int sampler(const SamplerSpec& spec, Created& action);

    ~Action();
    Action(const Action&) = delete;
    Action& operator=(const Action&) = delete;

    const ActionType type;
    bool root_level = false;
    std::uint32_t value = 0;                 ///< tag, VLAN header, vport, counter's offset, root_table's priority
    /// Of a counter; held.
    [[nodiscard]] CounterBulk* bulk() const noexcept { return bulk_; }

    /// What counters do not have: each megaflow has one of those.
    struct More {
        Domain* domain = nullptr;        ///< vport, modify_header, packet_reformat, dest_array
        Table* destination = nullptr;    ///< table, root_table; flow_meter's and sampler's next table
        Receiver queue;
        std::shared_ptr<const EditList> edits;
        std::shared_ptr<const Reformat> reformat;
        std::shared_ptr<ArrayProgram> array;
        std::shared_ptr<AsoBulk> aso_bulk;
        AsoUse aso_use;
        const Domain* aso_domain = nullptr;      ///< that the action was made for; not kept, only compared
        std::shared_ptr<FlowMeter> metering;
        std::shared_ptr<const SamplerProgram> sampling;
        std::vector<Action*> branches;
        std::vector<std::uint16_t> destinations;  ///< of an array's queues, given back with it
    };
    /// Empty for actions that have nothing of it.
    [[nodiscard]] const More& more() const noexcept {
        return type != ActionType::counter && more_ != nullptr ? *more_ : none;
    }
    /// What lanes may need of it after a rule's end, for a grace period more.
    void keep_for_lanes(Rcu& rcu) const;

private:
    explicit Action(ActionType its_type, std::unique_ptr<More> more = nullptr) noexcept
        : type(its_type), more_(more.release()) {}
    /// Into `program`; the branch is referred to.
    [[nodiscard]] int add_branch(Action& branch, ArrayProgram& program);
    [[nodiscard]] int add_sample_action(Action& branch, SamplerProgram& program);
    [[nodiscard]] int add_receiver(const Action& branch, ArrayProgram& program);
    [[nodiscard]] int add_reformat(Action& reformat);
    [[nodiscard]] More& make_more() {
        if (more_ == nullptr) more_ = new More;
        return *more_;
    }

    static const More none;
    union {
        More* more_;         ///< owned
        CounterBulk* bulk_;  ///< of a counter
    };
};
static_assert(sizeof(Action) == 24);

}  // namespace ovsdr::soft
