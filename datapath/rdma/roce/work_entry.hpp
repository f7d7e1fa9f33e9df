// A send queue's entry, read out of its ring and taken apart; and a receive queue's.
//
// Model. read_entry() copies the entry (it may wrap around the ring's end, and the application may write to it while we
// read: what was copied is what is judged), then follows its segments: control, datagram (UD, DC) or XRC, remote
// address, atomic, data or inline.
//
// Source: PRM work queue entries; mlx5dv.h.
#pragma once

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "datapath/rdma/roce/queue_pair.hpp"

namespace ovsdr::soft::roce {

inline constexpr unsigned most_pieces = 32;
inline constexpr unsigned most_entry_size = 63 * 16;

enum class Fence : std::uint8_t { none = 0, small = 1, reads = 2, strong = 3, small_and_reads = 4 };

struct WorkEntry {
    std::uint8_t opcode;    ///< MLX5_OPCODE_*
    Fence fence;
    bool signaled, solicited;
    __be32 immediate;       ///< or the key to invalidate
    std::uint32_t blocks;   ///< basic blocks that it takes
    std::uint64_t remote_address;
    std::uint32_t rkey;
    std::uint32_t xrc_srq;
    std::uint64_t swap_add, compare;
    mlx5_wqe_av address;    ///< UD, DC
    std::uint32_t length;   ///< data segments; 0 where the bytes are inline
    bool is_inline;
    std::uint32_t inline_size;
    std::array<ibv_sge, most_pieces> pieces;
    std::uint32_t size;     ///< bytes of `bytes`
    alignas(16) std::array<std::byte, most_entry_size> bytes;
    std::array<std::byte, most_entry_size> inline_bytes;

    [[nodiscard]] std::span<const ibv_sge> sges() const noexcept { return {pieces.data(), length}; }
};

/// How many basic blocks the entry at `block` takes: at least 1, whatever stands there.
[[nodiscard]] std::uint32_t entry_blocks(const SendRing& ring, std::uint64_t block) noexcept;

/// false: the entry is malformed, or an operation that the type does not have. `blocks`, `opcode` and `signaled` are
/// valid all the same.
[[nodiscard]] bool read_entry(const SendRing& ring, std::uint64_t block, ibv_qp_type type, WorkEntry& entry) noexcept;

/// The pieces of a receive ring's entry; returns how many.
[[nodiscard]] unsigned read_receive_entry(const ReceiveRing& ring, std::uint64_t index,
                                          std::span<ibv_sge, most_pieces> pieces) noexcept;

[[nodiscard]] ibv_wc_opcode completion_opcode(std::uint8_t opcode) noexcept;

}  // namespace ovsdr::soft::roce
