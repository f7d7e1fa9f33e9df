// Definers: ready-made selections of fields, one of which stands for a whole mask. Where a device has them, libmlx5
// looks for one that covers the mask before it puts one together from look-ups of headers. They ask for less: ports
// without an IP version, a mask of nothing.
//
// Only a matcher with a definer has a layout (mlx5dv_dr_matcher_set_layout()).
//
// Source: dr_ste_v1_build_def*_mask() in rdma-core 44's providers/mlx5/dr_ste_v1.c.
#pragma once

#include <cstdint>

#include "datapath/steering/key.hpp"

namespace ovsdr::soft {

/// Whether one of `formats` (bits of match_definer_format_supported; 0, 2, 22 and 24 are known here) covers each bit of
/// the mask. An IP version in it is 4 or 6.
[[nodiscard]] bool fits_definer(std::uint64_t formats, const Key& mask) noexcept;

}  // namespace ovsdr::soft
