// The flow tables that the kernel keeps for verbs: what ibv_create_flow() and mlx5dv_create_flow() add to the root
// tables, beside the root rules of Direct Rules applications.
//
// Model. A Flow asks for packets of one value under one mask at one rank of a domain's root. Flows that ask for the
// same packets at the same place share one rule, as they share one entry of the kernel's tables: every receiver gets
// the packet once (two flows that name the same queue are one receiver), each counter counts it. They must agree in
// what is done to the packet; the flow that comes later is refused with EEXIST when it does not.
//
// Matchers come and go with the masks in use. A change of an entry is a new rule that takes over before the old one
// goes.
//
// A DR root rule with the same value and priority is another rule: packets meet the one with the newer matcher.
//
// Life cycle. One FlowTables per device, destroyed after its Flows. Errors: Matcher::create()'s and Rule::create()'s,
// EEXIST.
// Threads: any. One lock: creating flows is as serial as in the kernel.
// Source: mlx5_ib's fs.c, mlx5_core's fs_core.c (check_conflicting_ftes, add_rule_fte).
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "datapath/steering/dr_action.hpp"
#include "datapath/steering/dr_matcher.hpp"
#include "datapath/steering/dr_rule.hpp"
#include "datapath/steering/dr_table.hpp"

namespace ovsdr::soft {

/// What a flow asks for. Bytes as mlx5dv_flow_match_parameters has them.
struct FlowRequest {
    DomainType domain = DomainType::nic_rx;
    std::uint32_t rank = 0;
    std::uint8_t criteria = 0;
    std::span<const std::uint8_t> mask, value;

    enum class Fate : std::uint8_t { deliver, drop, next_namespace } fate = Fate::deliver;
    std::optional<std::uint32_t> tag;
    std::vector<std::shared_ptr<Action>> rewrites;  ///< modify header, packet reformat
    bool goes_on = false;                           ///< and on to matchers of later ranks (DONT_TRAP)
    Receiver receiver;                              ///< none: the packet goes where the domain's default leads
    std::shared_ptr<CounterBulk> counters;
    std::uint32_t counter = 0;  ///< which of them
};

class FlowTables {
public:
    explicit FlowTables(Steering& steering);
    ~FlowTables();
    FlowTables(const FlowTables&) = delete;
    FlowTables& operator=(const FlowTables&) = delete;

    class Flow;
    [[nodiscard]] int create(const FlowRequest& request, std::unique_ptr<Flow>& flow);

    /// What rewriting actions are bound to.
    [[nodiscard]] Domain& domain(DomainType type) noexcept { return kernel_[static_cast<unsigned>(type)].domain; }

private:
    struct Entry;
    struct Place {
        DomainType domain;
        std::uint32_t rank;
        std::uint8_t criteria;
        std::vector<std::uint8_t> mask;
        auto operator<=>(const Place&) const = default;
    };
    /// A matcher and its entries by value.
    struct Group {
        std::unique_ptr<Matcher> matcher;
        std::map<std::vector<std::uint8_t>, std::unique_ptr<Entry>> entries;
    };
    struct Kernel {
        Kernel(Steering& steering, DomainType type) : domain(steering, type, nullptr), table(domain, 0) {}
        Domain domain;
        Table table;
    };

    [[nodiscard]] int find_group(const Place& place, Group*& group);
    void drop_if_unused(const Place& place) noexcept;
    void remove(Flow& flow) noexcept;

    std::mutex mutex_;
    std::array<Kernel, 3> kernel_;
    std::map<Place, Group> groups_;
};

/// Asks until it is destroyed; then no packet reaches its receiver any more.
class FlowTables::Flow {
public:
    ~Flow() {
        if (tables_ != nullptr) tables_->remove(*this);
    }
    Flow(const Flow&) = delete;
    Flow& operator=(const Flow&) = delete;

private:
    friend class FlowTables;
    Flow(const Place& place, std::vector<std::uint8_t> value) : place_(place), value_(std::move(value)) {}

    FlowTables* tables_ = nullptr;  // once it has its share of an entry there
    const Place place_;
    const std::vector<std::uint8_t> value_;
};

}  // namespace ovsdr::soft
