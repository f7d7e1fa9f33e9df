// How reg_c_0 names the vport that a packet entered the eSwitch by.
//
// In FDB and on the manager's NIC_RX the upper 16 bits of reg_c_0 carry the source vport; the lower 16 are free for
// rules. mlx5dv_query_port() hands out value and mask (vport_steering_tag, MLX5DV_QUERY_PORT_VPORT_REG_C0); rules match
// on them and never write them.
#pragma once

#include <cstdint>

#include "datapath/vport_id.hpp"

namespace ovsdr::soft {

/// The vport bits of reg_c_0, host order.
inline constexpr std::uint32_t vport_metadata_mask = 0xffff0000;

/// reg_c_0 under vport_metadata_mask, host order.
[[nodiscard]] constexpr std::uint32_t vport_metadata(VportId vport) noexcept {
    return static_cast<std::uint32_t>(vport.value) << 16;
}

}  // namespace ovsdr::soft
