// Address vectors: from what applications say (ibv_ah_attr) to what stands in packets.
//
// Model. resolve() does what the kernel does when an address handle is made or a queue pair goes to RTR: it looks up
// the source GID, and finds the MAC of the destination. One of our own addresses is our own MAC; a link-local GID
// carries its MAC; a multicast GID maps to one; any other must be on the link of the source address, and is asked for
// by ARP or neighbour discovery. There is no gateway: a destination off the link is EHOSTUNREACH.
//
// An mlx5_wqe_av has it all: rmac, rgid, tclass, hop_limit, grh_gid_fl (bit 30: there is a GRH; 20 to 27 the source
// GID's index; 0 to 19 the flow label), rlid: the UDP source port, stat_rate_sl. qkey and dqp_dct are the caller's.
//
// Threads: any application thread; it may wait for seconds.
// Source: mlx5dv.h, struct mlx5_wqe_av.
#pragma once

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include "datapath/rdma/device_state.hpp"

namespace ovsdr::soft::roce {

/// EINVAL: no GRH, no such port or GID index, an address of another family than its source. EHOSTUNREACH: not on the
/// link. ETIMEDOUT: nobody answers.
[[nodiscard]] int resolve(DeviceState& state, const ibv_ah_attr& attr, mlx5_wqe_av& vector);

/// The priority of packets that carry a VLAN's tag: the service level.
[[nodiscard]] inline std::uint8_t priority_of(const mlx5_wqe_av& vector) noexcept {
    return vector.stat_rate_sl >> 1 & 7;
}

/// Where an address says none: a packet that may not make one hop would never arrive, and Linux says 64.
inline constexpr std::uint8_t default_hop_limit = 64;

/// Source port of packets with a flow label; of a connection without one, by its queue numbers. As Linux.
[[nodiscard]] constexpr std::uint16_t udp_source_port(std::uint32_t flow_label) noexcept {
    const std::uint32_t low = (flow_label & 0x3fff) ^ ((flow_label & 0xfc000) >> 14);
    return static_cast<std::uint16_t>(low | 0xc000);
}
[[nodiscard]] constexpr std::uint32_t flow_label_of(std::uint32_t local_qpn, std::uint32_t remote_qpn) noexcept {
    std::uint64_t label = std::uint64_t{local_qpn} * remote_qpn;
    label ^= label >> 20;
    label ^= label >> 40;
    return static_cast<std::uint32_t>(label & 0xfffff);
}

}  // namespace ovsdr::soft::roce
