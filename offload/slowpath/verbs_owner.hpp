// unique_ptr for verbs objects, and what to say when one cannot be made.
//
// What becomes of an object that the device will not destroy: offload/dr/device/leak.hpp.
#pragma once

#include <infiniband/verbs.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>

#include "offload/dr/device/leak.hpp"
#include "offload/dr/result.hpp"

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
    void operator()(ibv_wq* wq) const noexcept {
        dr::destroyed([wq] { return ibv_destroy_wq(wq); });
    }
    void operator()(ibv_rwq_ind_table* table) const noexcept {
        dr::destroyed([table] { return ibv_destroy_rwq_ind_table(table); });
    }
};

template <typename T>
using Owner = std::unique_ptr<T, DestroyVerbs>;

[[nodiscard]] inline Error failure_of(int code, const char* call) {
    const int positive = code == 0 ? EIO : code < 0 ? -code : code;
    return Error{positive, std::string(call) + ": " + std::strerror(positive)};
}

}  // namespace ovsdr::slowpath
