// Two judges against each other, and a NIC against OVS's software.
//
// The model. A NIC and OVS's software are equal when each packet's copies are the same at last, whoever sent them:
// those that the NIC put out, and those of what came up, with which OVS's software went on; an upcall counts as a copy.
// A packet may come up only from a table where no megaflow takes it or the one that does is not in the NIC, or because
// of a named difference; one that ends_connection() must come up before anything is done to it. What the NIC counted
// for a megaflow and what software counted add up to what OVS's software counts alone. Which megaflows are in the NIC
// is what Expectations say.
//
// Two NICs are equal packet by packet, megaflow by megaflow, and in the order in which a flow's packets came out at a
// port. A flow is the packets of one port that meet the same megaflows. Between flows no order is promised: OVS's
// software and the soft NIC move batches flow by flow.
//
// Threads: one.
#pragma once

#include <string>
#include <vector>

#include "tests/differential/judge/scenario.hpp"
#include "tests/differential/judge/verdict.hpp"

namespace ovsdr::differential {

struct Comparison {
    std::vector<std::string> differences;   ///< in words: at most some tens, and then how many more there are
    Excused excused;
};

[[nodiscard]] Comparison compare_nics(const Scenario& scenario, const Verdict& one, const Verdict& other,
                                      const Verdict& ovs);
/// `format`: steering format of the NIC.
[[nodiscard]] Comparison compare_with_ovs(const Scenario& scenario, const Verdict& nic, const Verdict& ovs,
                                          unsigned format);

}  // namespace ovsdr::differential
