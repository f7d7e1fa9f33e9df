// How the parts of offload/ name things: vports, datapath ports, megaflows, tables of megaflows; and what is counted of
// a megaflow.
//
// Threads: values.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <map>
#include <string>

namespace ovsdr::dr {

struct VportId {
    std::uint16_t value;
    friend auto operator<=>(const VportId&, const VportId&) = default;
};

/// A datapath port number (odp_port_t).
struct OdpPort {
    std::uint32_t value;
    friend auto operator<=>(const OdpPort&, const OdpPort&) = default;
};

/// Interfaces of the datapath, those of other types than `dr` too. Only for texts.
using PortNames = std::map<OdpPort, std::string>;

using Ufid = std::array<std::uint64_t, 2>;

/// Which megaflows share a table: those that see packets as they come from a vport (0), and those behind each
/// recirculation.
struct TableKey {
    std::uint32_t recirc_id = 0;
    friend auto operator<=>(const TableKey&, const TableKey&) = default;
};

/// Cumulative since the ufid was first put.
struct FlowStats {
    std::uint64_t packets = 0;
    std::uint64_t bytes = 0;
    std::int64_t used_ms = 0;  ///< CLOCK_MONOTONIC milliseconds at which the poller last saw the counter grow; 0 never
};

}  // namespace ovsdr::dr
