// The addresses of a device's RoCE transport: its GID table.
//
// Model. RoCE is the manager function's, whose IB port is 1; representors' ports have no GIDs, as on hardware. All
// entries are RoCE v2: index 0 is the link-local address of the manager's MAC, then come the addresses of the
// configuration (`roce_address` of the uplink, the manager function's way out), IPv4 ones as ::ffff:a.b.c.d. Those of a
// VLAN are as if they were its interface's: what is sent from them carries the tag, what is sent to them must.
//
// Threads: any.
// Source: ibv_query_gid_ex(3), IBTA annex A17.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "datapath/rdma/device_state.hpp"

namespace ovsdr::soft::roce {

inline constexpr unsigned roce_port = 1;
inline constexpr unsigned gid_table_length = 256;

struct GidEntry {
    ibv_gid gid;
    unsigned prefix;  ///< bits that are the same on the link, of 128
    std::uint16_t vlan;  ///< 0: none
};

/// Nothing for a port without RoCE or past the last entry.
[[nodiscard]] std::optional<GidEntry> gid_entry(DeviceState& state, unsigned port, unsigned index);
[[nodiscard]] std::vector<GidEntry> gid_entries(DeviceState& state);

[[nodiscard]] inline bool is_ipv4(const ibv_gid& gid) noexcept {
    return gid.global.subnet_prefix == 0 && gid.raw[8] == 0 && gid.raw[9] == 0 && gid.raw[10] == 0xff &&
           gid.raw[11] == 0xff;
}

}  // namespace ovsdr::soft::roce
