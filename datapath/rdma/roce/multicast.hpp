// Multicast groups: which datagram queue pairs of a device get what is sent to a group.
//
// Model. A group is a multicast GID, ff00::/8 or an IPv4 address as ::ffff:224.0.0.0/4, and the MAC address that
// Ethernet has for it. Packets to it name queue pair 0xffffff; each member gets a copy with its own number in that
// place. What a queue pair of this device sends goes to the wire and to the members here too, to the sender itself
// unless it was made with IBV_QP_CREATE_BLOCK_SELF_MCAST_LB.
//
// The table is never changed: attach() and detach() put another one in its place.
//
// Threads: attach() and detach() from any application thread; members() on workers with their lanes online.
// Source: ibv_attach_mcast(3); IBTA volume 1, 10.5; RFC 1112 6.4, RFC 2464 7.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "datapath/rdma/roce/gid_table.hpp"

namespace ovsdr::soft {
class Steering;
}

namespace ovsdr::soft::roce {

inline constexpr std::uint32_t multicast_qpn = 0xffffff;

[[nodiscard]] inline bool is_multicast(const ibv_gid& gid) noexcept {
    return gid.raw[0] == 0xff || (is_ipv4(gid) && (gid.raw[12] & 0xf0) == 0xe0);
}
[[nodiscard]] std::array<std::uint8_t, 6> multicast_mac(const ibv_gid& gid) noexcept;

class MulticastGroups {
public:
    static constexpr unsigned most_groups = 8192;
    static constexpr unsigned most_members = 240;  ///< of a group

    explicit MulticastGroups(Steering& steering);
    ~MulticastGroups();
    MulticastGroups(const MulticastGroups&) = delete;
    MulticastGroups& operator=(const MulticastGroups&) = delete;

    /// ENOMEM: no further group, or no further member of this one. A member is not attached again.
    [[nodiscard]] int attach(const ibv_gid& gid, std::uint32_t qpn);
    void detach(const ibv_gid& gid, std::uint32_t qpn);

    [[nodiscard]] std::span<const std::uint32_t> members(const ibv_gid& gid) const noexcept;

private:
    using Table = std::map<std::array<std::uint8_t, sizeof(ibv_gid)>, std::vector<std::uint32_t>>;
    void replace(std::unique_ptr<const Table> next);

    Steering& steering_;
    std::mutex mutex_;
    std::atomic<const Table*> table_;
};

}  // namespace ovsdr::soft::roce
