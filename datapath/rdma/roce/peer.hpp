// The other end of a connection, as packets to and from it need it.
//
// A connected queue pair has one, set when it goes to RTR. DC's have one for each stream of the initiator and for each
// session of the target.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <cstring>

#include "datapath/rdma/roce/frame.hpp"
#include "datapath/rdma/roce/gid_table.hpp"

namespace ovsdr::soft::roce {

struct Peer {
    Path path{};
    ibv_gid own_gid{}, gid{};
    std::uint16_t own_vlan = 0;
    std::uint32_t qpn = 0;
    std::uint32_t stream = 0;   ///< DC: of the initiator, whichever end that is
    std::uint32_t session = 0;  ///< DC

    [[nodiscard]] bool has_sent(const Arrival& arrival) const noexcept {
        return std::memcmp(&arrival.source, &gid, sizeof gid) == 0 && is_for(arrival);
    }
    /// Whether it came to our address.
    [[nodiscard]] bool is_for(const Arrival& arrival) const noexcept {
        return std::memcmp(&arrival.destination, &own_gid, sizeof own_gid) == 0 && arrival.vlan == own_vlan;
    }
    void set_own(const GidEntry& entry) noexcept {
        own_gid = entry.gid;
        own_vlan = entry.vlan;
    }
};

}  // namespace ovsdr::soft::roce
