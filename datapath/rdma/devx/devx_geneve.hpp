// CREATE_GENERAL_OBJECT of a GENEVE_TLV_OPT. Source: linux/mlx5/mlx5_ifc.h, geneve_tlv_option.
#pragma once

#include "datapath/rdma/devx/devx_resource.hpp"

struct mlx5dv_devx_obj;

namespace ovsdr::soft::devx {

/// BAD_PARAM: no such parser, another length than 4 bytes of data, another index than 0. EXCEED_LIM: there is one
/// already.
[[nodiscard]] prm::Status create_geneve_option(mlx5dv_devx_obj& object, Input in, Output out);

}  // namespace ovsdr::soft::devx
