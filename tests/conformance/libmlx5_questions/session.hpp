// The device that is asked, and what rules of every kind need of it: a queue, a counter, ASO objects.
//
// Made once, lives as long as the questions. What the device cannot make is null, and questions that need it answer so.
#pragma once

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "tests/conformance/libmlx5_questions/handles.hpp"

namespace ovsdr::oracle {

using Context = Handle<ibv_context, ibv_close_device>;
using ProtectionDomain = Handle<ibv_pd, ibv_dealloc_pd>;
using CompletionQueue = Handle<ibv_cq, ibv_destroy_cq>;
using Queue = Handle<ibv_qp, ibv_destroy_qp>;

inline constexpr std::array domain_types{MLX5DV_DR_DOMAIN_TYPE_NIC_RX, MLX5DV_DR_DOMAIN_TYPE_NIC_TX,
                                         MLX5DV_DR_DOMAIN_TYPE_FDB};

/// "NIC_RX", "NIC_TX", "FDB".
[[nodiscard]] std::string domain_name(mlx5dv_dr_domain_type type);

/// Members go in the reverse order of their making.
struct Session {
    /// The device of that name; of several functions the first. Throws std::runtime_error with what is missing.
    explicit Session(std::string_view device);

    Context context;
    ProtectionDomain pd;
    CompletionQueue completions;
    Queue queue;           ///< raw packets
    DevxObject counter;    ///< one counter
    DevxObject first_hit;  ///< ASO objects: null where the device has none
    DevxObject flow_meter;
    DevxObject connections;

    [[nodiscard]] Domain domain(mlx5dv_dr_domain_type type) const;

private:
    [[nodiscard]] DevxObject aso_object(std::uint16_t type) const;
};

}  // namespace ovsdr::oracle
