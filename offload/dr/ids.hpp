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

/// Tunnels that packets are taken out of. All carry Ethernet frames.
enum class TunnelKind : std::uint8_t { vxlan, geneve, gre };

/// A port of the datapath that packets come out of when a megaflow's tnl_pop names it.
struct TunnelPort {
    OdpPort odp_port{};
    TunnelKind kind{};
    std::uint16_t udp_port = 0;   ///< host order; GRE: 0
    std::string name{};           ///< the interface's, for messages
    friend bool operator==(const TunnelPort&, const TunnelPort&) = default;
};

/// Which megaflows share a table: those that see packets as they come from a vport (0, 0), those that see packets of a
/// tunnel port, whose outer headers are still there, and those behind each recirculation of either.
struct TableKey {
    std::uint32_t recirc_id = 0;
    std::uint32_t tunnel_port = 0;   ///< the datapath port number; 0: none (in the datapath that is LOCAL)
    friend auto operator<=>(const TableKey&, const TableKey&) = default;
};

/// Cumulative since the ufid was first put.
struct FlowStats {
    std::uint64_t packets = 0;
    std::uint64_t bytes = 0;
    std::int64_t used_ms = 0;  ///< CLOCK_MONOTONIC milliseconds at which the poller last saw the counter grow; 0 never
};

/// What a meter has let pass and what it has dropped.
struct MeterStats {
    FlowStats passed, dropped;
};

}  // namespace ovsdr::dr
