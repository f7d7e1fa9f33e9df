// Segments of a UMR work queue entry, and how signature attributes stand in its BSF.
//
// Entry. Control segment (its immediate is the key), UMR control (48 bytes), MKEY context (64), then inline: the layout
// in octowords of 16 bytes, padded to 64, and the byte stream format (BSF, 64 bytes). A layout is KLMs (struct
// mlx5_wqe_umr_klm_seg) or a repeat block (mlx5_wqe_umr_repeat_block_seg), told by op in the place of the first key.
//
// The structures up to the layout are in mlx5dv.h; this has what is not.
// Source: rdma-core 44 providers/mlx5 (wqe.h, qp.c), Linux include/linux/mlx5/qp.h; byte order big-endian.
#pragma once

#include <infiniband/mlx5dv.h>

#include <cstdint>

#include "datapath/signature/field.hpp"

namespace ovsdr::soft::umr {

inline constexpr std::uint32_t repeat_block_op = 0x400;
inline constexpr unsigned octoword = 16;        ///< bytes
inline constexpr unsigned inline_offset = 128;  ///< bytes from the control segment to the layout
static_assert(sizeof(mlx5_wqe_ctrl_seg) + sizeof(mlx5_wqe_umr_ctrl_seg) + sizeof(mlx5_wqe_mkey_context_seg) ==
              inline_offset);

/// mlx5_wqe_mkey_context_seg::flags_pd
inline constexpr std::uint32_t bsf_enable = 1u << 30;

/// A domain's T10-DIF part.
struct BsfInline {
    __be16 valid_refresh;
    __be16 application_tag;
    __be32 reference_tag;
    std::uint8_t type;
    std::uint8_t repeat_seed;
    std::uint8_t reserved[3];
    std::uint8_t increment_escape;
    __be16 application_tag_mask;
};

struct Bsf {
    std::uint8_t size_same_structure;
    std::uint8_t check_mask;
    std::uint8_t wire_block_or_copy_mask;  ///< copy mask where the domains have the same structure
    std::uint8_t memory_block;
    __be32 raw_size;
    __be32 wire_format_psv;
    __be32 memory_format_psv;
    std::uint8_t extended[16];  ///< transaction signatures: not used
    BsfInline wire, memory;
};
static_assert(sizeof(BsfInline) == 16 && sizeof(Bsf) == 64);

/// What `attributes` look like to the device.
[[nodiscard]] Bsf encode(const signature::Attributes& attributes, bool same_structure) noexcept;

/// false for a format that the device does not have.
[[nodiscard]] bool decode(const Bsf& bsf, signature::Attributes& attributes) noexcept;

}  // namespace ovsdr::soft::umr
