// How many megaflows had each match and each action, how many of those were in a NIC, and how many packets they took.
//
// Threads: pure.
#pragma once

#include <map>
#include <string>

#include "tests/differential/judge/scenario.hpp"
#include "tests/differential/judge/verdict.hpp"

namespace ovsdr::differential {

struct Covered {
    std::size_t drawn = 0, installed = 0;
    std::size_t hit = 0;       ///< that were in the NIC when their packets came, and counted some there
    std::size_t packets = 0;   ///< such packets
};

/// By name (names.hpp).
[[nodiscard]] std::map<std::string, Covered> coverage_of(const Scenario& scenario, const Verdict& nic,
                                                         const Verdict& ovs);

/// Of packets that a NIC forwarded or dropped, and of the others; of megaflows that were in it at some time.
struct Figures {
    std::size_t taken = 0, up = 0, copies = 0, drawn = 0, installed = 0;
};
[[nodiscard]] Figures figures_of(const Scenario& scenario, const Verdict& nic);

}  // namespace ovsdr::differential
