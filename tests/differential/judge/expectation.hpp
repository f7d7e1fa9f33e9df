// Which megaflows must be in a NIC, from what is known of each and of what leads to its table.
//
// Of some a device can have only one: of those of a tunnel port that differ in nothing that it sees, and of those that
// ask for different Geneve options all that ask for one. Which one depends on what came when: it is the one that is
// there, and the others must wait.
//
// Threads: pure.
#pragma once

#include <set>
#include <vector>

#include "tests/differential/judge/scenario.hpp"

namespace ovsdr::differential {

enum class Expectation : std::uint8_t {
    not_there,   ///< not put, or gone
    refused,     ///< no NIC of the format does it, or it must wait for another one
    either,      ///< it waits for a table, or has one that is left over: it depends on what came when
    installed,
};

/// Follows a scenario, phase by phase.
class Expectations {
public:
    /// `format`: steering format of the device (0, 1, 2).
    Expectations(const Scenario& scenario, unsigned format);
    void apply(const Phase& phase);
    /// By version; `installed`: what is in the NIC, which tells of which one that is of those of which it can have one.
    [[nodiscard]] std::vector<Expectation> all(const std::vector<std::uint8_t>& installed) const;

private:
    class Contest;
    [[nodiscard]] Expectation without_others(std::size_t version, const std::set<TableId>& reached) const;

    const Scenario& scenario_;
    std::vector<bool> offloadable_, there_;     ///< by version; offloadable: by a device with its meters of now
    const unsigned format_;
    MeterSpecs meters_;
    std::uint32_t policed_ = 0;                 ///< the phase's
    std::vector<std::uint32_t> version_of_;     ///< by ufid, of what is there
};

/// What a NIC has by the end of the scenario's phases so far: by phase and version, without what may be either.
[[nodiscard]] std::vector<std::vector<std::uint8_t>> forecast(const Scenario& scenario, unsigned format);

}  // namespace ovsdr::differential
