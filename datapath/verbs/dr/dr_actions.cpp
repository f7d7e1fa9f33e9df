// mlx5dv_dr_action_*: see mlx5dv_dr_flow(3).
#include <cstring>

#include "datapath/ports/nic.hpp"
#include "datapath/rdma/dr_seam.hpp"
#include "datapath/verbs/dr/dr_handle.hpp"

using namespace ovsdr::soft;

namespace {

/// A vport that the device has, as libmlx5 asks for its capabilities before it makes the action: EREMOTEIO, the
/// kernel's errno for firmware's refusals. Every device has an uplink, configured or not: then there is no cable in it.
[[nodiscard]] int vport_action(Domain& domain, std::uint32_t vport, Action::Created& action) {
    if (const int error = Action::vport(domain, vport, action); error != 0) return error;
    if (vport == uplink_vport.value) return 0;
    VportInfo info;
    Device& device = device_of(static_cast<ibv_context*>(domain.owner()));
    return device.query(VportId{static_cast<std::uint16_t>(vport)}, info) != 0 ? EREMOTEIO : 0;
}

[[nodiscard]] int ib_port_action(Domain& domain, std::uint32_t port, Action::Created& action) {
    if (domain.type() != DomainType::fdb) return EOPNOTSUPP;
    mlx5dv_port info{};
    if (_mlx5dv_query_port(static_cast<ibv_context*>(domain.owner()), port, &info, sizeof info) != 0) return EINVAL;
    return vport_action(domain, info.vport, action);
}

[[nodiscard]] int array_action(Domain& domain, std::span<mlx5dv_dr_action_dest_attr* const> attributes,
                               Action::Created& action) {
    if (attributes.size() < 2) return EINVAL;
    if (domain.type() == DomainType::nic_tx) return EOPNOTSUPP;
    std::vector<Action::Branch> branches;
    for (const mlx5dv_dr_action_dest_attr* attribute : attributes) {
        std::uint32_t type;  // an application may have written what is none
        std::memcpy(&type, &attribute->type, sizeof type);
        switch (type) {
            case MLX5DV_DR_ACTION_DEST: branches.push_back({from(attribute->dest)}); break;
            case MLX5DV_DR_ACTION_DEST_REFORMAT:
                branches.push_back({from(attribute->dest_reformat->dest), from(attribute->dest_reformat->reformat)});
                break;
            default: return EINVAL;
        }
    }
    return Action::dest_array(domain, branches, action);
}

[[nodiscard]] int modify_action(Domain& domain, uint32_t flags, std::size_t size, const __be64* commands,
                                Action::Created& action) {
    constexpr uint32_t root_level = MLX5DV_DR_ACTION_FLAGS_ROOT_LEVEL;
    if ((flags & ~root_level) != 0 || size % sizeof(__be64) != 0) return EINVAL;
    const std::vector<std::uint64_t> copy(commands, commands + size / sizeof(__be64));
    return Action::modify_header(domain, flags != 0, copy, action);
}

}  // namespace

extern "C" {

mlx5dv_dr_action* mlx5dv_dr_action_create_drop(void) {
    return create_object<Action>("mlx5dv_dr_action_create_drop", [](Action::Created& action) {
        action = Action::drop();
        return 0;
    });
}

mlx5dv_dr_action* mlx5dv_dr_action_create_default_miss(void) {
    return create_object<Action>("mlx5dv_dr_action_create_default_miss", [](Action::Created& action) {
        action = Action::default_miss();
        return 0;
    });
}

mlx5dv_dr_action* mlx5dv_dr_action_create_tag(uint32_t tag_value) {
    return create_object<Action>("mlx5dv_dr_action_create_tag", [=](Action::Created& action) {
        action = Action::tag(tag_value);
        return 0;
    });
}

mlx5dv_dr_action* mlx5dv_dr_action_create_pop_vlan(void) {
    return create_object<Action>("mlx5dv_dr_action_create_pop_vlan", [](Action::Created& action) {
        action = Action::pop_vlan();
        return 0;
    });
}

mlx5dv_dr_action* mlx5dv_dr_action_create_push_vlan(mlx5dv_dr_domain*, __be32 vlan_hdr) {
    return create_object<Action>("mlx5dv_dr_action_create_push_vlan", [=](Action::Created& action) {
        return Action::push_vlan(__builtin_bswap32(vlan_hdr), action);
    });
}

mlx5dv_dr_action* mlx5dv_dr_action_create_dest_ibv_qp(ibv_qp* ibqp) {
    return create_object<Action>("mlx5dv_dr_action_create_dest_ibv_qp", [=](Action::Created& action) {
        if (ibqp->qp_type != IBV_QPT_RAW_PACKET) return EINVAL;
        action = Action::receiver(receiver_of(ibqp));
        return 0;
    });
}

mlx5dv_dr_action* mlx5dv_dr_action_create_dest_devx_tir(mlx5dv_devx_obj* devx_obj) {
    return create_object<Action>("mlx5dv_dr_action_create_dest_devx_tir", [=](Action::Created& action) {
        const Receiver receiver = receiver_of(devx_obj);
        if (receiver.sink.deliver == nullptr) return EINVAL;
        action = Action::receiver(receiver);
        return 0;
    });
}

mlx5dv_dr_action* mlx5dv_dr_action_create_dest_table(mlx5dv_dr_table* table) {
    return create_object<Action>("mlx5dv_dr_action_create_dest_table",
                                 [=](Action::Created& action) { return Action::table(*from(table), action); });
}

mlx5dv_dr_action* mlx5dv_dr_action_create_dest_root_table(mlx5dv_dr_table* table, uint16_t priority) {
    return create_object<Action>("mlx5dv_dr_action_create_dest_root_table", [=](Action::Created& action) {
        return Action::root_table(*from(table), priority, action);
    });
}

mlx5dv_dr_action* mlx5dv_dr_action_create_dest_vport(mlx5dv_dr_domain* domain, uint32_t vport) {
    return create_object<Action>("mlx5dv_dr_action_create_dest_vport",
                                 [=](Action::Created& action) { return vport_action(*from(domain), vport, action); });
}

mlx5dv_dr_action* mlx5dv_dr_action_create_dest_ib_port(mlx5dv_dr_domain* domain, uint32_t ib_port) {
    return create_object<Action>("mlx5dv_dr_action_create_dest_ib_port", [=](Action::Created& action) {
        return ib_port_action(*from(domain), ib_port, action);
    });
}

mlx5dv_dr_action* mlx5dv_dr_action_create_dest_array(mlx5dv_dr_domain* domain, size_t num_dest,
                                                     mlx5dv_dr_action_dest_attr* dests[]) {
    return create_object<Action>("mlx5dv_dr_action_create_dest_array", [=](Action::Created& action) {
        return array_action(*from(domain), {dests, num_dest}, action);
    });
}

mlx5dv_dr_action* mlx5dv_dr_action_create_modify_header(mlx5dv_dr_domain* domain, uint32_t flags, size_t actions_sz,
                                                        __be64 actions[]) {
    return create_object<Action>("mlx5dv_dr_action_create_modify_header", [=](Action::Created& action) {
        return modify_action(*from(domain), flags, actions_sz, actions, action);
    });
}

mlx5dv_dr_action* mlx5dv_dr_action_create_flow_counter(mlx5dv_devx_obj* devx_obj, uint32_t offset) {
    return create_object<Action>("mlx5dv_dr_action_create_flow_counter", [=](Action::Created& action) {
        return Action::counter(counter_bulk_of(devx_obj), offset, action);
    });
}

int mlx5dv_dr_action_destroy(mlx5dv_dr_action* action) {
    return destroy_object("mlx5dv_dr_action_destroy", from(action));
}

mlx5dv_dr_action* mlx5dv_dr_action_create_packet_reformat(mlx5dv_dr_domain* domain, uint32_t flags,
                                                          mlx5dv_flow_action_packet_reformat_type reformat_type,
                                                          size_t data_sz, void* data) {
    return create_object<Action>("mlx5dv_dr_action_create_packet_reformat", [=](Action::Created& action) {
        const std::span<const std::uint8_t> bytes{static_cast<const std::uint8_t*>(data), data_sz};
        if ((flags & ~static_cast<uint32_t>(MLX5DV_DR_ACTION_FLAGS_ROOT_LEVEL)) != 0) return EINVAL;
        return reformat_action(*from(domain), flags != 0, reformat_type, bytes, action);
    });
}

}  // extern "C"
