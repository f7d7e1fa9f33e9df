// Work queue entries that do not go over the wire: the transport executes them in order, and leaves what they do to
// mkey/umr.cpp.
//
// Threads: the worker that executes the queue; no allocation that can throw, no waiting.
// Errors: 0, or EINVAL (the completion is IBV_WC_LOC_QP_OP_ERR), EACCES (IBV_WC_MW_BIND_ERR), EFAULT
// (IBV_WC_LOC_PROT_ERR).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "datapath/rdma/device_state.hpp"

namespace ovsdr::soft {

/// MLX5_OPCODE_UMR: `entry` is the whole entry from its control segment on, unwrapped from the ring, a multiple of 16
/// bytes. Keys with their layout, windows bound and unbound.
[[nodiscard]] int configure_mkey(DeviceState& state, const void* domain, std::uint32_t qpn,
                                 std::span<const std::byte> entry) noexcept;

/// MLX5_OPCODE_LOCAL_INVAL.
[[nodiscard]] int invalidate_locally(DeviceState& state, const void* domain, std::uint32_t qpn,
                                     std::uint32_t key) noexcept;

/// SEND with invalidate has arrived: not 0 is a remote access error (a plain region's key, another domain's, ...).
[[nodiscard]] int invalidate_remotely(DeviceState& state, const void* domain, std::uint32_t qpn,
                                      std::uint32_t key) noexcept;

}  // namespace ovsdr::soft
