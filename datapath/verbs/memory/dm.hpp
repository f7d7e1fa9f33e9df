// The object behind ibv_dm: one of possibly several views of the same device memory.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>

#include "datapath/rdma/memory/device_memory.hpp"

namespace ovsdr::soft {

struct Dm : ibv_dm {
    [[nodiscard]] static Dm& of(ibv_dm* dm) noexcept { return *static_cast<Dm*>(dm); }
    std::shared_ptr<DeviceMemory> memory;
};

/// Throws std::bad_alloc.
[[nodiscard]] ibv_dm* wrap_device_memory(ibv_context* context, std::uint32_t handle,
                                         std::shared_ptr<DeviceMemory> memory);

}  // namespace ovsdr::soft
