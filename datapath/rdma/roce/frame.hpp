// RoCEv2 frames: what stands around a packet's payload, written and read.
//
// Model. A Path is the front of every packet to one destination (Ethernet, IP, UDP), made once; write_front() copies it
// and sets what depends on the size. An Arrival is a received frame taken apart. A frame that is cut short, has
// options, fragments, or an opcode that no service has, is not RoCE that we take.
//
// The ICRC is the CRC-32 of Ethernet over eight bytes of ones and the packet from the IP header on, with the fields
// that routers change set to ones; it stands in the frame least significant byte first.
//
// Threads: any; nothing is shared.
// Source: IBTA annex A17, 17.9; IBTA volume 1, 7.8.1.
#pragma once

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "datapath/rdma/roce/wire.hpp"
#include "datapath/steering/vlan.hpp"

namespace ovsdr::soft::roce {

inline constexpr unsigned ethernet_size = 14;

/// Ethernet, VLAN, IPv6, UDP.
inline constexpr unsigned most_front = ethernet_size + vlan_tag_size + 40 + 8;

/// What stands before the ethertype. GIDs know one VLAN, of 802.1Q: a frame with another tag, or with two, is not
/// understood, nor is one without an ethertype.
struct LinkLayer {
    bool understood = false;
    std::uint16_t vlan = 0;  ///< its number, 0: none
    std::uint16_t type = 0;
    std::uint32_t size = 0;  ///< with the ethertype
};
[[nodiscard]] LinkLayer read_link_layer(const std::byte* frame, std::size_t size) noexcept;

struct Path {
    std::array<std::uint8_t, most_front> front;
    std::uint8_t size = 0;  ///< bytes of it
    bool ipv4 = false;
    bool local = false;     ///< the destination is this device itself
    bool multicast = false;
    std::uint32_t blocked = 0;  ///< of a multicast: the queue pair here that gets no copy

    void set_udp_source(std::uint16_t port) noexcept;
    [[nodiscard]] unsigned ip_size() const noexcept { return ipv4 ? 20 : 40; }
    /// Where it begins.
    [[nodiscard]] unsigned ip_offset() const noexcept { return size - 8 - ip_size(); }
};

struct PathSpec {
    std::array<std::uint8_t, 6> source_mac, destination_mac;
    ibv_gid source, destination;  ///< of one family
    std::uint8_t traffic_class;
    std::uint8_t hop_limit;
    std::uint32_t flow_label;
    std::uint16_t udp_source;
    bool local;
    bool multicast = false;
    std::uint32_t blocked = 0;
    std::uint16_t vlan = 0;     ///< 0: no tag
    std::uint8_t priority = 0;  ///< in the tag: the service level's lower three bits
};
[[nodiscard]] Path make_path(const PathSpec& spec) noexcept;

/// Writes the front of a packet with `size` bytes from the BTH to the ICRC, both included. Returns where the BTH goes.
std::byte* write_front(const Path& path, std::byte* frame, unsigned size) noexcept;

/// Over the frame from `ip` on; `size` bytes without the ICRC.
[[nodiscard]] std::uint32_t icrc(const std::byte* ip, bool ipv4, std::size_t size) noexcept;

struct Arrival {
    const std::byte* frame;
    std::uint16_t vlan;  ///< 0: without a tag, or with one for its priority alone
    const std::byte* ip;
    bool ipv4;
    ibv_gid source, destination;
    Bth bth;
    ServiceType service;
    Operation operation;
    std::uint32_t qpn, psn;
    const std::byte* extensions;
    const std::byte* payload;
    std::uint32_t payload_size;  ///< without padding

    [[nodiscard]] bool ack_requested() const noexcept { return be32toh(bth.psn) & bth_ack_request; }
    [[nodiscard]] bool solicited() const noexcept { return bth.flags & bth_solicited; }
    /// The extension headers that the opcode names, behind the service's own.
    [[nodiscard]] const std::byte* headers() const noexcept {
        return extensions + service_header_size(service, operation);
    }
};

/// Whether the frame is UDP to port 4791 at all, without options or fragments: what the rest of read_frame() judges.
[[nodiscard]] bool is_roce(const std::byte* frame, std::size_t size) noexcept;

/// Takes `frame` apart; false when it is not well-formed. Does not look at the ICRC.
[[nodiscard]] bool read_frame(const std::byte* frame, std::size_t size, Arrival& arrival) noexcept;

/// Whether the ICRC of a frame that read_frame() took is right.
[[nodiscard]] bool icrc_is_right(const Arrival& arrival) noexcept;

}  // namespace ovsdr::soft::roce
