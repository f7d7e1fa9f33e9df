// What a packet carries through the soft NIC beside its bytes.
//
// Packets are DPDK mbufs, one segment each. Beside the bytes travel the vport that the packet entered the eSwitch by
// and, once a NIC_RX rule has set them, the flow tag and reg_b. They live in the mbuf's flow-director hash and, reg_b,
// in what drivers use for VLAN tags taken out of a frame: no port of ours uses either otherwise. set_source()
// initialises them, so whoever brings a packet in calls it first.
//
// Threads: a packet belongs to one worker at a time.
#pragma once

#include <rte_mbuf.h>

#include <cstdint>

#include "datapath/vport_id.hpp"

namespace ovsdr::soft {

/// Packets move in batches of at most this many: room for what a host's longest packet is cut into at the usual MTU (45
/// to 48 segments) behind others, fewer than poll_length.
inline constexpr unsigned batch_length = 80;
/// So many are taken at a time. More only where a port cuts one: segments that stay together are joined again.
inline constexpr unsigned poll_length = 32;

/// Names the vport that `packet` enters by and forgets what a port's driver left behind.
inline void set_source(rte_mbuf* packet, VportId vport) noexcept {
    packet->hash.fdir.lo = vport.value;
    packet->hash.fdir.hi = 0;
    packet->vlan_tci = packet->vlan_tci_outer = 0;
}

[[nodiscard]] inline VportId source_of(const rte_mbuf* packet) noexcept {
    return VportId{static_cast<std::uint16_t>(packet->hash.fdir.lo)};
}

/// Flow tag, 24 bits, host order; 0 where no rule set one.
inline void set_tag(rte_mbuf* packet, std::uint32_t tag) noexcept { packet->hash.fdir.hi = tag; }

[[nodiscard]] inline std::uint32_t tag_of(const rte_mbuf* packet) noexcept { return packet->hash.fdir.hi; }

/// What rules tell the receiver, host order; 0 where none did.
inline void set_reg_b(rte_mbuf* packet, std::uint32_t value) noexcept {
    packet->vlan_tci = static_cast<std::uint16_t>(value);
    packet->vlan_tci_outer = static_cast<std::uint16_t>(value >> 16);
}

[[nodiscard]] inline std::uint32_t reg_b_of(const rte_mbuf* packet) noexcept {
    return std::uint32_t{packet->vlan_tci_outer} << 16 | packet->vlan_tci;
}

#ifdef __SANITIZE_THREAD__
extern "C" void __tsan_acquire(void* address);
extern "C" void __tsan_release(void* address);
#endif

/// For ThreadSanitizer, which sees no order in the rings of DPDK's drivers (it did not build them): whoever takes a
/// packet over sees what was done before it was passed on. Nothing in other builds.
inline void passed_on([[maybe_unused]] rte_mbuf* const* packets, [[maybe_unused]] unsigned length) noexcept {
#ifdef __SANITIZE_THREAD__
    for (unsigned i = 0; i < length; ++i) __tsan_release(packets[i]);
#endif
}
inline void taken_over([[maybe_unused]] rte_mbuf* const* packets, [[maybe_unused]] unsigned length) noexcept {
#ifdef __SANITIZE_THREAD__
    for (unsigned i = 0; i < length; ++i) __tsan_acquire(packets[i]);
#endif
}

/// Where packets leave the steering engine: a vport's DPDK port, a QP's receive queue, the co-tenant.
///
/// A plain pair of pointers, called once per batch, never per packet.
struct Sink {
    /// Takes ownership of `length` packets (at most batch_length): delivers or frees each and counts what it drops.
    /// `worker` is the index of the calling worker; a sink may be called by several workers at once.
    void (*deliver)(void* self, unsigned worker, rte_mbuf** packets, unsigned length) noexcept = nullptr;
    void* self = nullptr;

    friend bool operator==(const Sink&, const Sink&) = default;
};

/// Who looks at packets before a sink does: the RoCE transport, before the co-tenant.
struct Filter {
    /// Takes ownership of the packets that are its own and moves the others, in their order, to the front of `packets`;
    /// returns how many those are. Called like Sink::deliver.
    unsigned (*take)(void* self, unsigned worker, rte_mbuf** packets, unsigned length) noexcept = nullptr;
    void* self = nullptr;
};

}  // namespace ovsdr::soft
