// DC queue pairs (IBV_QPT_DRIVER): what mlx5dv_create_qp() may be asked for.
//
// Model. A DCI sends: each entry names its target, and the stream that it belongs to. A DCT receives, into its SRQ; it
// has its number only when it goes to RTR. Both are RdmaQps. How they speak is datapath/rdma/roce/dc_*.hpp.
// Source: mlx5dv_create_qp(3), mlx5dv_wr_post(3); rdma-core 44's create_dct(), mlx5_ib's check_qp_attr().
#pragma once

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include <optional>

#include "datapath/rdma/device_state.hpp"
#include "datapath/rdma/roce/queue_pair.hpp"

namespace ovsdr::soft {

/// ConnectX-5 has none.
[[nodiscard]] mlx5dv_dci_streams_caps dci_streams_of(DeviceState& state) noexcept;

/// What the type IBV_QPT_DRIVER asks of the attributes beyond what all types do; `mlx5` may be nullptr.
[[nodiscard]] int check_dc(const mlx5dv_dci_streams_caps& streams, const ibv_qp_init_attr_ex& attr,
                           const mlx5dv_qp_init_attr* mlx5) noexcept;

/// Nothing for other types; of attributes that check_dc() took.
[[nodiscard]] std::optional<roce::DcSpec> dc_of(const ibv_qp_init_attr_ex& attr,
                                                const mlx5dv_qp_init_attr* mlx5) noexcept;

}  // namespace ovsdr::soft
