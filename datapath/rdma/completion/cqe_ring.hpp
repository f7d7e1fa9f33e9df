// Completions as CQEs in the application's memory, for a queue that the application polls itself.
//
// Model. 64-byte entries (struct mlx5_cqe64, or mlx5_err_cqe) in a ring of a power of two; in one of 128 bytes each,
// the second half has the CQE. An entry's owner bit is the wrap count's lowest bit; entries begin as invalid. The
// doorbell record's first word has the consumer's counter: the ring is full when it is a ring's length behind. Of the
// counter only the bits that tell this are looked at, the ring's length and one more: DPDK's mlx5 driver counts send
// completions in 16 bits.
//
// A requester's CQE names the opcode of its work queue entry. A receiver's on an Ethernet queue has the flow tag in the
// place of the queue's number, which its user index stands for, and what the device knows of the frame: hash, headers,
// checksums, the tag that was stripped.
//
// Threads: write() under the completion queue's lock. Source: PRM, completion queue entries; mlx5dv.h.
#pragma once

#include <infiniband/mlx5dv.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "datapath/rdma/completion/completion_queue.hpp"

namespace ovsdr::soft {

/// What Completion::headers is made of: CQE bytes hds_ip_ext and l4_hdr_type_etc.
namespace received_headers {
inline constexpr std::uint16_t l2_good = MLX5_CQE_L2_OK << 8, l3_good = MLX5_CQE_L3_OK << 8;
inline constexpr std::uint16_t l4_good = MLX5_CQE_L4_OK << 8;
inline constexpr std::uint16_t ipv6 = MLX5_CQE_L3_HDR_TYPE_IPV6 << 2, ipv4 = MLX5_CQE_L3_HDR_TYPE_IPV4 << 2;
inline constexpr std::uint16_t tcp = 1 << 4, udp = 2 << 4, fragment = 1 << 7, ip_options = 1 << 1, tag_stripped = 1;
}  // namespace received_headers

/// What Completion::rx_hash_type is made of.
namespace rx_hash_type {
inline constexpr std::uint8_t ipv4 = 1 << 2, ipv6 = 2 << 2, tcp = 1 << 6, udp = 2 << 6, ipsec = 3 << 6;
/// Beside them in a packet on its way to a queue: its completion describes the packet that a tunnel carries.
inline constexpr std::uint32_t looks_inside = 1 << 8;
}  // namespace rx_hash_type

/// What Completion::tunnel is made of: the CQE's first byte.
namespace received_tunnel {
inline constexpr std::uint8_t tunneled = 1 << 0, outer_ipv4 = 1 << 1;
}

class CqeRing {
public:
    struct Spec {
        std::byte* base;
        unsigned log_length;
        unsigned entry_size;                  ///< bytes: 64 or 128
        const std::atomic<__be32>* doorbell;  ///< consumer counter, then the arm word
        bool ignore_overrun;
    };

    /// Makes every entry invalid.
    explicit CqeRing(const Spec& spec) noexcept;

    /// The next one; false: the ring is full.
    [[nodiscard]] bool write(const Completion& completion) noexcept;
    /// That of a position which the caller counts, and knows to be free.
    void put(std::uint32_t index, const Completion& completion) noexcept;
    /// How many of `produced` entries the consumer has not taken; more than the ring's length: its counter makes no
    /// sense.
    [[nodiscard]] std::uint32_t behind(std::uint32_t produced) const noexcept;

private:
    const Spec spec_;
    std::uint32_t produced_ = 0;
};

}  // namespace ovsdr::soft
