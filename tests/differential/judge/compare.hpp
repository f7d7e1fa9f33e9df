// Two judges against each other, and a NIC against OVS's software.
//
// The model. Two NICs are equal packet by packet, megaflow by megaflow, and in the order in which a megaflow's packets
// came out at a port. Between megaflows no order is promised: OVS's software and the soft NIC move batches flow by
// flow.
//
// A NIC and OVS's software are equal where the NIC forwarded. A packet that went up must be unchanged, at its own
// port's queue, with the megaflow table's tag, and be one that may: no megaflow takes it, its megaflow is not in the
// NIC, or may_go_up(). One that ends_connection() must go up. What the NIC counted for a megaflow is what OVS's
// software took of the packets that did not go up. Which megaflows are in the NIC is what is_offloadable() says.
//
// What only a card can tell stands in a table (compare.cpp) with its reason; such a difference is counted and no fault.
//
// Threads: one.
#pragma once

#include <string>
#include <vector>

#include "tests/differential/judge/judges.hpp"

namespace ovsdr::differential {

struct Subject {
    const Verdict& verdict;
    unsigned format;   ///< steering format
};

/// Differences in words: at most some tens, and then how many more there are.
[[nodiscard]] std::vector<std::string> compare_nics(const Scenario& scenario, const Subject& one, const Subject& other,
                                                    const Verdict& ovs);
[[nodiscard]] std::vector<std::string> compare_with_ovs(const Scenario& scenario, const Subject& nic,
                                                        const Verdict& ovs);

/// Of packets that a NIC forwarded or dropped by a megaflow, and of the others.
struct Figures {
    std::size_t taken = 0, copies = 0, up = 0, installed = 0;
};
[[nodiscard]] Figures figures_of(const Verdict& nic);

}  // namespace ovsdr::differential
