// Address handles: where a datagram goes, resolved when the handle is made.
#pragma once

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

namespace ovsdr::soft {

struct Ah : ibv_ah {
    [[nodiscard]] static Ah& of(ibv_ah* ah) noexcept { return *static_cast<Ah*>(ah); }
    [[nodiscard]] static const Ah& of(const ibv_ah* ah) noexcept { return *static_cast<const Ah*>(ah); }
    mlx5_wqe_av vector;  ///< mlx5dv_init_obj() hands out its address
    bool is_mapped = false;  ///< by mlx5dv_map_ah_to_qp()
};

}  // namespace ovsdr::soft
