// Which megaflows must be in a NIC, from what is known of each and of what leads to its table.
//
// Threads: pure.
#pragma once

#include <vector>

#include "tests/differential/judge/scenario.hpp"

namespace ovsdr::differential {

enum class Expectation : std::uint8_t {
    not_there,   ///< not put, or gone
    refused,     ///< no NIC of the format does it
    either,      ///< it waits for a table, or has one that is left over: it depends on what came when
    installed,
};

/// Follows a scenario, phase by phase.
class Expectations {
public:
    /// `format`: steering format of the device (0, 1, 2).
    Expectations(const Scenario& scenario, unsigned format);
    void apply(const Phase& phase);
    /// By version.
    [[nodiscard]] std::vector<Expectation> all() const;

private:
    const Scenario& scenario_;
    std::vector<bool> offloadable_, there_;     ///< by version
    std::vector<std::uint32_t> version_of_;     ///< by ufid, of what is there
};

}  // namespace ovsdr::differential
