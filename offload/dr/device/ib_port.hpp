// The IB port that stands for a vport.
//
// Its number follows from nothing: kernels have numbered representors in two ways, and leave gaps
// (docs/soft-nic-ports.md). The device is asked each time, since vports come and go.
// Source: mlx5dv_query_port(3); the kernel's drivers/infiniband/hw/mlx5/ib_rep.c.
#pragma once

#include <cstdint>

#include "offload/dr/ids.hpp"
#include "offload/dr/result.hpp"

struct ibv_context;

namespace ovsdr::dr {

struct IbPort {
    std::uint32_t number;
    bool has_register;   ///< the device tells the next two
    /// What it writes into the vport bits of reg_c_0 for packets from the vport.
    std::uint32_t register_value, register_mask;
};

/// Vport 0 of a device whose only port tells of no vport is the function itself.
/// ENOENT: no port stands for the vport; `what` has what the ports that did not answer said. A port without a
/// representor does not, nor one whose vport has gone.
[[nodiscard]] Result<IbPort> find_ib_port(ibv_context* context, VportId vport) noexcept;

}  // namespace ovsdr::dr
