// The opaque structures of mlx5dv.h are steering's own objects under another name; and the bits that every function of
// the Direct Rules front does alike: faults on demand, errno, no exception through C.
#pragma once

#include <infiniband/mlx5dv.h>

#include <cerrno>
#include <memory>
#include <new>
#include <span>
#include <string_view>

#include "datapath/control/fault.hpp"
#include "datapath/rdma/dr_seam.hpp"
#include "datapath/steering/dr_action.hpp"
#include "datapath/steering/dr_domain.hpp"
#include "datapath/steering/dr_matcher.hpp"
#include "datapath/steering/dr_rule.hpp"
#include "datapath/steering/dr_table.hpp"

namespace ovsdr::soft {

inline Domain* from(mlx5dv_dr_domain* handle) noexcept { return reinterpret_cast<Domain*>(handle); }
inline Table* from(mlx5dv_dr_table* handle) noexcept { return reinterpret_cast<Table*>(handle); }
inline Matcher* from(mlx5dv_dr_matcher* handle) noexcept { return reinterpret_cast<Matcher*>(handle); }
inline Rule* from(mlx5dv_dr_rule* handle) noexcept { return reinterpret_cast<Rule*>(handle); }
inline Action* from(mlx5dv_dr_action* handle) noexcept { return reinterpret_cast<Action*>(handle); }

inline mlx5dv_dr_domain* handle(Domain* object) noexcept { return reinterpret_cast<mlx5dv_dr_domain*>(object); }
inline mlx5dv_dr_table* handle(Table* object) noexcept { return reinterpret_cast<mlx5dv_dr_table*>(object); }
inline mlx5dv_dr_matcher* handle(Matcher* object) noexcept { return reinterpret_cast<mlx5dv_dr_matcher*>(object); }
inline mlx5dv_dr_rule* handle(Rule* object) noexcept { return reinterpret_cast<mlx5dv_dr_rule*>(object); }
inline mlx5dv_dr_action* handle(Action* object) noexcept { return reinterpret_cast<mlx5dv_dr_action*>(object); }

/// Runs `make(created)`, which returns an errno, unless a fault is armed for `call`; gives the object away as a handle,
/// or NULL with errno.
template <typename Object, typename Make>
auto create_object(std::string_view call, Make make) noexcept {
    std::unique_ptr<Object> created;
    int error = injected_fault(call);
    try {
        if (error == 0) error = make(created);
    } catch (const std::bad_alloc&) {
        error = ENOMEM;
    }
    if (error != 0) {
        created.reset();
        errno = error;
    }
    return handle(created.release());
}

/// Destroys unless somebody refers to the object: 0, EBUSY, or an armed fault.
template <typename Object>
int destroy_object(std::string_view call, Object* object) noexcept {
    if (const int error = injected_fault(call); error != 0) return error;
    if (object->busy()) return EBUSY;
    delete object;
    return 0;
}

inline std::span<const std::uint8_t> bytes_of(const mlx5dv_flow_match_parameters* parameters) noexcept {
    if (parameters == nullptr) return {};
    return {reinterpret_cast<const std::uint8_t*>(parameters->match_buf), parameters->match_sz};
}

/// What rules deliver to; the sink is empty where packets cannot be led there.
[[nodiscard]] inline Receiver receiver_of(ibv_qp* qp) noexcept {
    return {.sink = receive_sink_of(qp),
            .object = qp,
            .hold = [](void* object) noexcept { hold(static_cast<ibv_qp*>(object)); },
            .release = [](void* object) noexcept { release(static_cast<ibv_qp*>(object)); }};
}

[[nodiscard]] inline Receiver receiver_of(mlx5dv_devx_obj* tir) noexcept {
    return {.sink = receive_sink_of(tir),
            .object = tir,
            .hold = [](void* object) noexcept { hold(static_cast<mlx5dv_devx_obj*>(object)); },
            .release = [](void* object) noexcept { release(static_cast<mlx5dv_devx_obj*>(object)); }};
}

/// An action for root tables or for others. EINVAL for an unknown type, and for data without size or size without data.
[[nodiscard]] inline int reformat_action(Domain& domain, bool root_level, unsigned type,
                                         std::span<const std::uint8_t> data, Action::Created& action) {
    using enum Reformat::Kind;
    if ((data.data() == nullptr) != data.empty()) return EINVAL;
    switch (type) {
        case MLX5DV_FLOW_ACTION_PACKET_REFORMAT_TYPE_L2_TUNNEL_TO_L2:
            return Action::packet_reformat(domain, root_level, decap_l2, data, action);
        case MLX5DV_FLOW_ACTION_PACKET_REFORMAT_TYPE_L2_TO_L2_TUNNEL:
            return Action::packet_reformat(domain, root_level, encap_l2, data, action);
        case MLX5DV_FLOW_ACTION_PACKET_REFORMAT_TYPE_L3_TUNNEL_TO_L2:
            return Action::packet_reformat(domain, root_level, decap_l3, data, action);
        case MLX5DV_FLOW_ACTION_PACKET_REFORMAT_TYPE_L2_TO_L3_TUNNEL:
            return Action::packet_reformat(domain, root_level, encap_l3, data, action);
        default: return EINVAL;
    }
}

}  // namespace ovsdr::soft
