// unique_ptr for the verbs objects of a mirror's connection, beside those of slowpath/verbs_owner.hpp.
#pragma once

#include <infiniband/mlx5dv.h>

#include "offload/slowpath/verbs_owner.hpp"

namespace ovsdr::mirror {

struct DestroyMirrorVerbs : slowpath::DestroyVerbs {
    using slowpath::DestroyVerbs::operator();
    void operator()(ibv_mr* mr) const noexcept {
        dr::destroyed([mr] { return ibv_dereg_mr(mr); });
    }
    void operator()(mlx5dv_mkey* mkey) const noexcept {
        dr::destroyed([mkey] { return mlx5dv_destroy_mkey(mkey); });
    }
};

template <typename T>
using Owner = std::unique_ptr<T, DestroyMirrorVerbs>;

using slowpath::failure_of;

}  // namespace ovsdr::mirror
