// An entry of an Ethernet send queue's ring, read and taken apart.
//
// Model. As a RoCE entry (roce/work_entry.hpp) it begins with a control segment and takes 64-byte basic blocks of the
// ring. What follows is an Ethernet segment (checksums and segmentation asked for, the first bytes of the frame inline
// or a VLAN tag to insert), then data: inline segments first, pointers behind them. The copy that was read is what is
// judged.
//
// Opcodes: SEND, TSO and NOP; ACCESS_ASO, which is left as it is (aso_access.hpp). An entry with anything else, with
// more than it has room for, or with parser offsets is malformed.
//
// Source: PRM, Ethernet send work queue entries; mlx5dv.h (struct mlx5_wqe_eth_seg).
#pragma once

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "datapath/rdma/ethernet/outgoing_frame.hpp"
#include "datapath/rdma/roce/work_entry.hpp"

namespace ovsdr::soft {

struct EthernetEntry {
    std::uint8_t opcode;   ///< MLX5_OPCODE_*
    bool signaled, solicited;
    std::uint32_t blocks;  ///< basic blocks that it takes
    std::uint32_t mss;     ///< of TSO, bytes
    Checksums checksums;
    std::uint32_t vlan;    ///< see OutgoingRequest
    std::uint32_t size;    ///< bytes of the entry itself
    std::uint32_t front_size, length;
    std::array<std::byte, roce::most_entry_size> front;
    std::array<ibv_sge, roce::most_entry_size / 16> pieces;
    /// As it stands in the ring, to a block's end.
    alignas(16) std::array<std::byte, roce::most_entry_size + 16> bytes;

    [[nodiscard]] bool sends() const noexcept { return opcode == MLX5_OPCODE_SEND || opcode == MLX5_OPCODE_TSO; }
    [[nodiscard]] OutgoingRequest request() const noexcept {
        return {.front = {front.data(), front_size},
                .sges = {pieces.data(), length},
                .mss = static_cast<std::uint16_t>(mss),
                .checksums = checksums,
                .vlan = vlan};
    }
};

/// false: malformed; `opcode`, `blocks` and `signaled` are valid all the same. `min_inline` bytes of the frame at least
/// must be inline, unless a tag is inserted.
[[nodiscard]] bool read_ethernet_entry(const roce::SendRing& ring, std::uint64_t block, std::uint32_t min_inline,
                                       EthernetEntry& entry) noexcept;

}  // namespace ovsdr::soft
