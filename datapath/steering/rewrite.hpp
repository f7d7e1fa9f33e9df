// What ops do to a packet's bytes.
//
// A packet that somebody else holds a reference to is copied before it is written (from the pool that it came from);
// one that nobody shares is written in place.
//
// Threads: the lane's worker.
#pragma once

#include <rte_mbuf.h>

#include <cstdint>

namespace ovsdr::soft {

/// `packet`, or a copy that is ours alone in exchange for it; nullptr when the pool is empty (the packet is freed).
[[nodiscard]] rte_mbuf* writable(rte_mbuf* packet) noexcept;

/// Both take a writable packet. pop_vlan() does nothing to an untagged one.
void pop_vlan(rte_mbuf* packet) noexcept;

/// `header` in host order, ethertype first. May exchange the packet as writable() does, for want of headroom.
[[nodiscard]] rte_mbuf* push_vlan(rte_mbuf* packet, std::uint32_t header) noexcept;

}  // namespace ovsdr::soft
