// The DMA engine of a queue pair (GGA): MLX5_OPCODE_MMO copies from one key's memory to another's, off the wire.
//
// Model. An entry is control, metadata, source, destination: four segments of 16 bytes. The metadata names 64 bytes of
// memory for the engine's own use, which must be the queue's to write. A copy is done in slices, one in each turn of
// the queue, so that a long one does not hold up the other queues of its worker. Source and destination must not
// overlap: bytes are copied upwards, a piece at a time.
//
// Threads: the worker that executes the queue.
// Source: mlx5dv_wr_post(3), mlx5dv_wr_memcpy(); rdma-core's mlx5_mmo_wqe.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "datapath/profile.hpp"
#include "datapath/rdma/memory/transfer.hpp"

namespace ovsdr::soft::roce {

class MemoryCopy {
public:
    static constexpr std::uint8_t opcode = 0x2f;         ///< MLX5_OPCODE_MMO
    static constexpr std::uint8_t dma = 1;               ///< opmod: the one engine that there is
    static constexpr std::uint32_t most = 1u << 21;      ///< bytes of one copy (log_dma_mmo_max_size)
    static constexpr std::uint32_t metadata_size = 64;   ///< bytes
    static constexpr std::uint32_t slice = 128u << 10;   ///< bytes in a turn

    /// Whether such a device has the engine: ConnectX-5 has none.
    [[nodiscard]] static constexpr bool there_is(const Profile& profile) noexcept {
        return profile.steering_format >= 1;
    }

    struct Metadata {
        __be32 control;
        __be32 key;
        __be64 address;
    };
    static_assert(sizeof(Metadata) == 16);

    /// The transfers are the queue's, lent while a copy is under way.
    MemoryCopy(Transfer& from, Transfer& to) noexcept : from_(from), to_(to) {}

    /// Begins `entry`, or goes on with the one under way; copies a slice. Anything but IBV_WC_SUCCESS ends it:
    /// LOC_QP_OP_ERR malformed, LOC_LEN_ERR too long, LOC_PROT_ERR a key. `memory` is what Transfer wants, without
    /// access.
    [[nodiscard]] ibv_wc_status advance(const Transfer::Spec& memory, std::span<const std::byte> entry) noexcept;
    /// There is more to copy.
    [[nodiscard]] bool under_way() const noexcept { return left_ != 0; }
    void cancel() noexcept { left_ = 0; }

private:
    [[nodiscard]] ibv_wc_status begin(const Transfer::Spec& memory, std::span<const std::byte> entry) noexcept;

    Transfer& from_;
    Transfer& to_;
    std::uint64_t done_ = 0, left_ = 0;  ///< bytes
};

}  // namespace ovsdr::soft::roce
