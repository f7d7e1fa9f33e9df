// unique_ptr for verbs objects.
//
// An object that the device will not destroy (EBUSY) is a defect of ours: an assertion in debug builds, a leak otherwise.
#pragma once

#include <infiniband/verbs.h>

#include <cassert>
#include <memory>

namespace ovsdr::slowpath {

struct DestroyVerbs {
    void operator()(ibv_mr* region) const noexcept { done(ibv_dereg_mr(region)); }
    void operator()(ibv_comp_channel* channel) const noexcept { done(ibv_destroy_comp_channel(channel)); }
    void operator()(ibv_cq* cq) const noexcept { done(ibv_destroy_cq(cq)); }
    void operator()(ibv_cq_ex* cq) const noexcept { done(ibv_destroy_cq(ibv_cq_ex_to_cq(cq))); }
    void operator()(ibv_qp* qp) const noexcept { done(ibv_destroy_qp(qp)); }

private:
    static void done([[maybe_unused]] int code) noexcept { assert(code == 0 && "a verbs object is still in use"); }
};

template <typename T>
using Owner = std::unique_ptr<T, DestroyVerbs>;

}  // namespace ovsdr::slowpath
