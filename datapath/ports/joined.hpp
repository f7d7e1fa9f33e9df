// The other way round from unfinished.hpp: TCP packets that leave to a host or a guest one after the other go as one,
// with virtio's header, as after a NIC's receive offload (GRO, LRO). The stack there then takes one packet where it
// would have taken forty; a real NIC behind the interface cuts it again.
//
// Only what the cut gives back is joined: one flow's packets in their order and without a gap, with right
// checksums, the same headers but for what a cut changes, each with as much payload as the first, the last with as much
// or less. So PSH and FIN end a joined packet; SYN, RST, URG, CWR, IP options and fragments, and what is in tunnels, go
// by themselves. A port's option gro=0 turns it off: packets leave as they are.
//
// Threads: pure functions and an object that belongs to one thread. Source: as unfinished.hpp.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstdint>
#include <span>

#include "datapath/packet.hpp"
#include "datapath/ports/unfinished.hpp"

struct rte_mbuf;

namespace ovsdr::soft {

/// Where the payload begins at the latest: Ethernet with a tag, IPv6, TCP.
inline constexpr std::uint32_t most_joined_headers = 14 + 4 + 40 + 60;

/// What stands in front of the packets' payloads, one after the other, when several go as one. The checksum field has
/// the pseudo-header's sum, length included.
struct JoinedHeaders {
    VirtioHeader says;
    std::uint16_t l3, l4, size;  ///< where IP and TCP begin; how many of the bytes there are
    std::array<std::uint8_t, most_joined_headers> bytes;
};

/// How many of `packets` (at least one) can go as one, from the first on. Sets `headers` where it is more than one.
[[nodiscard]] unsigned join(std::span<rte_mbuf* const> packets, JoinedHeaders& headers) noexcept;

/// What one call to the kernel sends: a packet, or several as one. Points into itself and into the packets.
class Message {
public:
    Message() = default;
    Message(const Message&) = delete;
    Message& operator=(const Message&) = delete;

    /// Describes the first of `packets` (at least one) with those that can go with it. Returns how many they are.
    unsigned join(std::span<rte_mbuf* const> packets) noexcept;
    /// Describes one packet.
    void set(const rte_mbuf* packet) noexcept;

    /// Virtio's header, and the frame's bytes.
    [[nodiscard]] std::span<iovec> pieces() noexcept { return {pieces_.data(), length_}; }

private:
    void begin(const VirtioHeader& says) noexcept;
    void add(void* bytes, std::size_t size) noexcept { pieces_[length_++] = {.iov_base = bytes, .iov_len = size}; }

    VirtioHeader header_;
    JoinedHeaders headers_;  ///< of a joined frame
    std::array<iovec, 2 + batch_length> pieces_;
    unsigned length_ = 0;
};

}  // namespace ovsdr::soft
