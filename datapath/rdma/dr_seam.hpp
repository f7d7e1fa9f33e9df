// What the Direct Rules front (verbs/dr/) needs to know of verbs objects that are not its own.
//
// Implemented by rdma/ and verbs/: the public structures ibv_context, ibv_qp and mlx5dv_devx_obj are the first members
// of private ones, and only these functions look behind them.
//
// Threads: any; the objects must outlive the call.
#pragma once

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>

#include "datapath/packet.hpp"

namespace ovsdr::soft {

class Device;
class CounterBulk;  // steering/counter.hpp
class AsoBulk;      // steering/aso.hpp

[[nodiscard]] Device& device_of(ibv_context* context) noexcept;

/// The receive side of a raw packet QP; an empty Sink for QPs that take no steered packets. While a rule can reach the
/// QP it is held: ibv_destroy_qp() gives EBUSY.
[[nodiscard]] Sink receive_sink_of(ibv_qp* qp) noexcept;
void hold(ibv_qp* qp) noexcept;
void release(ibv_qp* qp) noexcept;

/// The counters behind a DEVX object made by ALLOC_FLOW_COUNTER, nullptr for any other object. Shared: a rule in
/// flight may outlive the DEVX object.
[[nodiscard]] std::shared_ptr<CounterBulk> counter_bulk_of(mlx5dv_devx_obj* object) noexcept;

/// The ASO objects behind a DEVX object, nullptr for any other; shared likewise.
[[nodiscard]] std::shared_ptr<AsoBulk> aso_bulk_of(mlx5dv_devx_obj* object) noexcept;

/// The receive side behind a DEVX TIR, an empty Sink for any other object; held like a QP.
[[nodiscard]] Sink receive_sink_of(mlx5dv_devx_obj* tir) noexcept;
void hold(mlx5dv_devx_obj* object) noexcept;
void release(mlx5dv_devx_obj* object) noexcept;

}  // namespace ovsdr::soft
