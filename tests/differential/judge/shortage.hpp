// Which of the wanted matches and actions (wanted.csv) too few megaflows in the NIC have, so far.
//
// A draw's weights bring most names to what is wanted with any seed, and not each name with each. Between phases the
// generator counts what the NIC is expected to have had, and draws actions that help (scenario.cpp).
//
// Threads: one. Errors: std::runtime_error for a file that is not there.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/differential/judge/megaflows.hpp"

namespace ovsdr::differential {

class Shortage {
public:
    /// Of the names in the file `wanted`; without those that a ConnectX-5 cannot, if it is one.
    Shortage(const std::string& wanted, bool connectx_5);

    /// Counts anew: the versions that are `in_nic`. Short is now what fewer than `goal` have.
    void recount(const std::vector<Megaflow>& versions, const std::vector<std::uint8_t>& in_nic, std::size_t goal);
    void add(const Megaflow& megaflow);
    [[nodiscard]] bool is_there_any() const;
    /// Whether a name of this one is short.
    [[nodiscard]] bool has_use_for(const Megaflow& megaflow) const;

private:
    std::map<std::string, std::size_t> counted_;   ///< of each wanted name
    std::size_t goal_ = 0;
};

}  // namespace ovsdr::differential
