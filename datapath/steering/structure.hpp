// The tables as lanes see them: what DR objects publish, and what a traversal reads.
//
// Every pointer here is published with release order and freed only after a grace period.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "datapath/steering/match.hpp"
#include "datapath/steering/rule_table.hpp"
#include "datapath/steering/source_scope.hpp"

namespace ovsdr::soft {

/// The order in which packets walk the matchers of one table, lowest first. A non-root table and an application's DR
/// root rules know priorities only. The kernel's other users of a root table stand between and around them: a flow that
/// lets packets go on is seen before the others of its priority, flows for multicast addresses after every priority,
/// and what takes the rest comes last, behind the co-tenant.
/// Source: mlx5_ib's ib_prio_to_core_prio() and mlx5_core's order of namespaces.
namespace rank {
inline constexpr std::uint32_t sniffer = 0, multicast = 1u << 18, leftovers = 1u << 19, end = 1u << 20;
[[nodiscard]] constexpr std::uint32_t of_priority(std::uint16_t priority, bool goes_on = false) noexcept {
    return 1 + 2u * priority + (goes_on ? 0 : 1);
}
}  // namespace rank

struct MatcherView {
    explicit MatcherView(const Key& key) : mask(key), rules(key) {}

    std::uint32_t rank = 0;
    Key mask;
    RuleTable rules;
    /// Whose packets the rules can meet: others pass the matcher by.
    SourceCounts sources;
    bool of_nic_tx = false;
};

/// In the order that packets walk: by rank, within one the newest first. Immutable.
struct MatcherList {
    std::vector<const MatcherView*> matchers;
};

class TableView {
public:
    TableView() = default;
    ~TableView() { delete matchers.load(std::memory_order_relaxed); }
    TableView(const TableView&) = delete;
    TableView& operator=(const TableView&) = delete;

    std::atomic<const MatcherList*> matchers{new MatcherList};
};

}  // namespace ovsdr::soft
