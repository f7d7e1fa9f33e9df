// How many megaflows had each match and each action, and how many of those were in the NIC.
//
// Threads: pure.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/differential/judge/megaflows.hpp"
#include "tests/differential/judge/verdict.hpp"

namespace ovsdr::differential {

struct Covered {
    std::size_t drawn = 0, installed = 0;
};

/// By name, as OVS prints matches and actions; "/mask": not all of the field's bits.
[[nodiscard]] std::map<std::string, Covered> coverage_of(const std::vector<Megaflow>& megaflows, const Verdict& nic);

}  // namespace ovsdr::differential
