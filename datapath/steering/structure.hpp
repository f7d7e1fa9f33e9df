// The tables as lanes see them: what DR objects publish, and what a traversal reads.
//
// Every pointer here is published with release order and freed only after a grace period.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "datapath/steering/match.hpp"
#include "datapath/steering/rule_table.hpp"

namespace ovsdr::soft {

struct MatcherView {
    explicit MatcherView(const Key& key) : mask(key), rules(key) {}

    std::uint16_t priority = 0;
    Key mask;
    RuleTable rules;
};

/// In the order that packets walk: by priority, within one the newest first. Immutable.
struct MatcherList {
    std::vector<const MatcherView*> matchers;
};

class TableView {
public:
    explicit TableView(DomainType domain) noexcept : domain_(domain) {}
    ~TableView() { delete matchers.load(std::memory_order_relaxed); }
    TableView(const TableView&) = delete;
    TableView& operator=(const TableView&) = delete;

    [[nodiscard]] DomainType domain() const noexcept { return domain_; }

    std::atomic<const MatcherList*> matchers{new MatcherList};

private:
    DomainType domain_;
};

}  // namespace ovsdr::soft
