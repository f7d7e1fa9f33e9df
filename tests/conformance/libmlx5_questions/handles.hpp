// Owners of Direct Rules objects. Move-only; what is empty destroys nothing.
//
// Order: a rule before its matcher and its actions, those before tables, tables before their domain.
#pragma once

#include <infiniband/mlx5dv.h>

#include <memory>

namespace ovsdr::oracle {

template <auto destroy>
struct Destroy {
    template <typename Object>
    void operator()(Object* object) const noexcept {
        destroy(object);
    }
};

template <typename Object, auto destroy>
using Handle = std::unique_ptr<Object, Destroy<destroy>>;

using Domain = Handle<mlx5dv_dr_domain, mlx5dv_dr_domain_destroy>;
using Table = Handle<mlx5dv_dr_table, mlx5dv_dr_table_destroy>;
using Matcher = Handle<mlx5dv_dr_matcher, mlx5dv_dr_matcher_destroy>;
using Rule = Handle<mlx5dv_dr_rule, mlx5dv_dr_rule_destroy>;
using Action = Handle<mlx5dv_dr_action, mlx5dv_dr_action_destroy>;
using DevxObject = Handle<mlx5dv_devx_obj, mlx5dv_devx_obj_destroy>;

}  // namespace ovsdr::oracle
