// The DPDK drivers that a vport's port may use, and what the soft NIC must know about each.
//
// A driver has three properties that matter beyond its receive and transmit functions: whether a network interface
// stands behind it (its link, MTU and MAC are then the interface's), whether its sockets can wake a sleeping worker,
// and which packet memory it can receive into.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace ovsdr::soft {

struct Driver {
    std::string_view name;
    bool has_interface;       ///< takes "iface=NAME", which must be given
    int wake_family;          ///< address family of the sockets that become readable with a packet; 0: none
    bool page_sized_buffers;  ///< AF_XDP: a buffer must fit into a memory page
    std::uint16_t largest_mtu;
    bool may_truncate;  ///< hands over the front part of a frame that is too large for its ring
};

/// The drivers that are linked in.
[[nodiscard]] std::span<const Driver> drivers() noexcept;

/// nullptr when `arguments` begins with no driver's name.
[[nodiscard]] const Driver* driver_of(std::string_view arguments) noexcept;

/// What is wrong with DPDK device arguments, in words; empty when nothing is.
[[nodiscard]] std::string dpdk_arguments_problem(std::string_view arguments);

/// The value of `key` in "driver,key=value,…"; empty when it is not there.
[[nodiscard]] std::string_view dpdk_argument(std::string_view arguments, std::string_view key) noexcept;

}  // namespace ovsdr::soft
