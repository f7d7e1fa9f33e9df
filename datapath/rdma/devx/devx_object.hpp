// A DEVX object: a bulk of flow counters or ASO objects, or one of the resources of devx_resource.hpp.
//
// Ownership: the application's, from mlx5dv_devx_obj_create() to mlx5dv_devx_obj_destroy(). Rules hold it meanwhile.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <memory>

#include "datapath/rdma/device_state.hpp"
#include "datapath/rdma/devx/devx_resource.hpp"
#include "datapath/rdma/prm.hpp"
#include "datapath/steering/aso.hpp"
#include "datapath/steering/counter.hpp"

/// The public name; opaque to applications.
struct mlx5dv_devx_obj {
    ibv_context* context;
    ovsdr::soft::DeviceState& state;
    ovsdr::soft::prm::Opcode created_by;
    std::uint32_t number;                                 ///< the first of a bulk; a resource's own
    std::shared_ptr<ovsdr::soft::CounterBulk> counters{};  ///< of ALLOC_FLOW_COUNTER
    std::shared_ptr<ovsdr::soft::AsoBulk> aso{};          ///< of CREATE_GENERAL_OBJECT
    std::unique_ptr<ovsdr::soft::devx::Resource> resource{};
    std::atomic<unsigned> holders{0};
};
