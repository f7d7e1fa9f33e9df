// mlx5dv_dr_action_*: the stateful ones. See mlx5dv_dr_flow(3).
#include "datapath/rdma/dr_seam.hpp"
#include "datapath/verbs/dr/dr_handle.hpp"

using namespace ovsdr::soft;

namespace {

[[nodiscard]] FlowMeterSpec spec_of(const mlx5dv_dr_flow_meter_attr& attr) noexcept {
    return {.active = (attr.active & 1) != 0,
            .reg_c = attr.reg_c_index,
            .parameters = {static_cast<const std::uint8_t*>(attr.flow_meter_parameter), attr.flow_meter_parameter_sz}};
}

[[nodiscard]] SamplerSpec spec_of(const mlx5dv_dr_flow_sampler_attr& attr) noexcept {
    const std::size_t length = attr.sample_actions == nullptr ? 0 : attr.num_sample_actions;
    return {.ratio = attr.sample_ratio,
            .next = from(attr.default_next_table),
            .actions = {reinterpret_cast<Action**>(attr.sample_actions), length},
            .restore = attr.action};
}

/// Runs `change`, which returns an errno, unless a fault is armed; returns and sets errno as libmlx5 does.
template <typename Change>
int change_object(const char* call, Change change) noexcept {
    int error = injected_fault(call);
    if (error == 0) error = change();
    if (error != 0) errno = error;
    return error;
}

}  // namespace

extern "C" {

mlx5dv_dr_action* mlx5dv_dr_action_create_aso(mlx5dv_dr_domain* domain, mlx5dv_devx_obj* devx_obj, uint32_t offset,
                                              uint32_t flags, uint8_t return_reg_c) {
    return create_object<Action>("mlx5dv_dr_action_create_aso", [=](Action::Created& action) {
        return Action::aso(*from(domain), aso_bulk_of(devx_obj), offset, flags, return_reg_c, action);
    });
}

int mlx5dv_dr_action_modify_aso(mlx5dv_dr_action* action, uint32_t offset, uint32_t flags, uint8_t return_reg_c) {
    return change_object("mlx5dv_dr_action_modify_aso",
                         [=] { return from(action)->modify_aso(offset, flags, return_reg_c); });
}

mlx5dv_dr_action* mlx5dv_dr_action_create_flow_meter(mlx5dv_dr_flow_meter_attr* attr) {
    return create_object<Action>("mlx5dv_dr_action_create_flow_meter", [=](Action::Created& action) {
        return Action::flow_meter(*from(attr->next_table), spec_of(*attr), action);
    });
}

int mlx5dv_dr_action_modify_flow_meter(mlx5dv_dr_action* action, mlx5dv_dr_flow_meter_attr* attr,
                                       __be64 modify_field_select) {
    return change_object("mlx5dv_dr_action_modify_flow_meter", [=] {
        return from(action)->modify_flow_meter(spec_of(*attr), __builtin_bswap64(modify_field_select));
    });
}

mlx5dv_dr_action* mlx5dv_dr_action_create_flow_sampler(mlx5dv_dr_flow_sampler_attr* attr) {
    return create_object<Action>("mlx5dv_dr_action_create_flow_sampler",
                                 [=](Action::Created& action) { return Action::sampler(spec_of(*attr), action); });
}

/// The domain that the connections were made for is none of our business: they are the device's.
int mlx5dv_dr_aso_other_domain_link(mlx5dv_devx_obj* devx_obj, mlx5dv_dr_domain*, mlx5dv_dr_domain* domain,
                                    uint32_t flags, uint8_t return_reg_c) {
    return change_object("mlx5dv_dr_aso_other_domain_link", [=] {
        const std::shared_ptr<AsoBulk> bulk = aso_bulk_of(devx_obj);
        const bool links = bulk != nullptr && bulk->kind() == AsoKind::connection;
        return links ? bulk->link(*from(domain), flags, return_reg_c) : EOPNOTSUPP;
    });
}

int mlx5dv_dr_aso_other_domain_unlink(mlx5dv_devx_obj* devx_obj, mlx5dv_dr_domain* domain) {
    return change_object("mlx5dv_dr_aso_other_domain_unlink", [=] {
        if (!from(domain)->steering().profile().aso) return EOPNOTSUPP;
        const std::shared_ptr<AsoBulk> bulk = aso_bulk_of(devx_obj);
        return bulk != nullptr ? bulk->unlink() : EINVAL;
    });
}

}  // extern "C"
