// unique_ptr for verbs objects.
//
// What becomes of an object that the device will not destroy: offload/dr/device/leak.hpp.
#pragma once

#include <infiniband/verbs.h>

#include <memory>

#include "offload/dr/device/leak.hpp"

namespace ovsdr::slowpath {

struct DestroyVerbs {
    void operator()(ibv_comp_channel* channel) const noexcept {
        dr::destroyed([channel] { return ibv_destroy_comp_channel(channel); });
    }
    void operator()(ibv_cq* cq) const noexcept {
        dr::destroyed([cq] { return ibv_destroy_cq(cq); });
    }
    void operator()(ibv_cq_ex* cq) const noexcept { (*this)(ibv_cq_ex_to_cq(cq)); }
    void operator()(ibv_qp* qp) const noexcept {
        dr::destroyed([qp] { return ibv_destroy_qp(qp); });
    }
};

template <typename T>
using Owner = std::unique_ptr<T, DestroyVerbs>;

}  // namespace ovsdr::slowpath
