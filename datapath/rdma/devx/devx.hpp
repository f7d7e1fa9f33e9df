// The device's command interface as DEVX offers it: capabilities, vports, flow counters, queues and what they stand on.
//
// Each function takes the command's input and output mailboxes. A command that the device refuses leaves its status and
// syndrome in the output and gives EREMOTEIO; one that the kernel would not even pass on gives EINVAL.
//
// Threads: any. Errors: positive errno.
// Source: mlx5dv_devx_obj_create(3), PRM.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "datapath/rdma/device_state.hpp"
#include "datapath/rdma/prm.hpp"

struct mlx5dv_devx_obj;
struct ibv_context;

namespace ovsdr::soft::devx {

using Input = std::span<const std::byte>;
using Output = std::span<std::byte>;

/// Queries and modifications that belong to no object.
[[nodiscard]] int general_command(DeviceState& state, Input in, Output out);

/// EINVAL for an opcode that creates nothing.
[[nodiscard]] int create(DeviceState& state, ibv_context* context, Input in, Output out,
                         std::unique_ptr<mlx5dv_devx_obj>& object);

/// EINVAL for a command that is about another object or no query.
[[nodiscard]] int query(mlx5dv_devx_obj& object, Input in, Output out);

/// EINVAL for a command that is about another object or no modification.
[[nodiscard]] int modify(mlx5dv_devx_obj& object, Input in, Output out);

/// EBUSY while a rule holds the object; otherwise it gives back what it had and can be deleted.
[[nodiscard]] int retire(mlx5dv_devx_obj& object);

// Pieces, one file each.
[[nodiscard]] prm::Status alloc_flow_counter(mlx5dv_devx_obj& object, Input in, Output out);
[[nodiscard]] prm::Status query_flow_counter(mlx5dv_devx_obj& object, Input in, Output out);
void write_status(Output out, prm::Status status);
[[nodiscard]] prm::Status create_general_object(mlx5dv_devx_obj& object, Input in, Output out);
[[nodiscard]] prm::Status query_general_object(mlx5dv_devx_obj& object, Input in, Output out);
/// Whether the command names this object, or one of its bulk.
[[nodiscard]] bool is_general_object(const mlx5dv_devx_obj& object, Input in);
void retire_general_object(mlx5dv_devx_obj& object);
[[nodiscard]] prm::Status query_capabilities(DeviceState& state, Input in, Output out);
[[nodiscard]] prm::Status vport_command(DeviceState& state, prm::Opcode opcode, Input in, Output out);

}  // namespace ovsdr::soft::devx
