// The rules of root tables, which the kernel holds for libmlx5: matched here on the match parameters as they were
// given.
//
// The model. A root table is all rules of its type (FDB, NIC_RX). The matcher with the lowest priority that has a rule
// for the packet decides. Rules of one matcher with the same value are one rule to the kernel, with all their
// destinations: each gets a copy. Two matchers of one priority that both have a rule for a packet have no order that
// anybody promises: the engine stops.
//
// Only the match fields that our root rules use have rows; others stop the engine.
//
// Threads: pure functions. Source: PRM, fte_match_param; Linux, mlx5_ib's flow rules.
#pragma once

#include <string>
#include <vector>

#include "tests/connectx/device.hpp"
#include "tests/connectx/entries/packet.hpp"

namespace ovsdr::connectx::entries {

class RootTable {
public:
    /// Takes over the rules that are there now.
    RootTable(const Device& device, TableType type);

    /// Those that the packet goes by; none: the kernel's own rules decide. `source_port` is a vport's number.
    [[nodiscard]] std::vector<const RootRule*> find(const Packet& packet, std::uint16_t source_port) const;

private:
    struct MatcherRules {
        RootMatcher matcher;
        std::vector<RootRule> rules;
    };
    std::vector<MatcherRules> matchers_;   ///< by priority
};

}  // namespace ovsdr::connectx::entries
