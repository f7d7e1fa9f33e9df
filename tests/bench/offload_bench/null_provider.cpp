// A libmlx5 that takes everything and keeps nothing: what a benchmark measures with it is the cost of offload/ itself.
//
// Objects are one and the same address. Counters have counted nothing. Vports 0 to 15 exist.
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

namespace {

ibv_device the_device{};
ibv_device* the_list[] = {&the_device, nullptr};
ibv_context the_context{};
ibv_pd the_pd{};
char object;
constexpr std::uint32_t vports = 16;
std::uint32_t next_counter = 1;

template <typename T>
T* made() {
    return reinterpret_cast<T*>(&object);
}

void put_bits(void* structure, unsigned bit_offset, unsigned bits, std::uint32_t value) {
    auto* bytes = static_cast<std::uint8_t*>(structure);
    for (unsigned i = 0; i < bits; ++i) {
        const unsigned bit = bit_offset + i;
        if ((value >> (bits - 1 - i)) & 1U) {
            bytes[bit / 8] = static_cast<std::uint8_t>(bytes[bit / 8] | (0x80U >> (bit % 8)));
        }
    }
}

}  // namespace

extern "C" {

ibv_device** ibv_get_device_list(int* length) {
    std::strcpy(the_device.name, "null_0");
    *length = 1;
    return the_list;
}
void ibv_free_device_list(ibv_device**) {}
const char* ibv_get_device_name(ibv_device* device) { return device->name; }
ibv_context* mlx5dv_open_device(ibv_device* device, mlx5dv_context_attr*) {
    the_context.device = device;
    return &the_context;
}
int ibv_close_device(ibv_context*) { return 0; }
ibv_pd* ibv_alloc_pd(ibv_context*) { return &the_pd; }
int ibv_dealloc_pd(ibv_pd*) { return 0; }
int ibv_query_device(ibv_context*, ibv_device_attr* attributes) {
    *attributes = {};
    attributes->phys_port_cnt = vports;
    return 0;
}
int _mlx5dv_query_port(ibv_context*, uint32_t port, mlx5dv_port* info, size_t) {
    if (port == 0 || port > vports) return EINVAL;
    info->flags = MLX5DV_QUERY_PORT_VPORT | MLX5DV_QUERY_PORT_VPORT_REG_C0;
    info->vport = static_cast<std::uint16_t>(port - 1);
    info->reg_c0 = {port << 16, 0xFFFF0000};
    return 0;
}
int mlx5dv_devx_general_cmd(ibv_context*, const void* in, size_t, void* out, size_t) {
    auto* capability = static_cast<std::uint8_t*>(out) + 16;
    const unsigned page = static_cast<const std::uint8_t*>(in)[7] >> 1;
    if (page == 0) {
        put_bits(capability, 423, 1, 1);        // eswitch_manager
        put_bits(capability, 784, 8, 0x0F);     // flow_counter_bulk_alloc
        put_bits(capability, 1092, 4, 1);       // steering format version
        put_bits(capability, 1344, 32, 0x300);
    }
    if (page == 8) put_bits(capability, 28, 1, 1);
    return 0;
}
mlx5dv_devx_obj* mlx5dv_devx_obj_create(ibv_context*, const void* in, size_t, void* out, size_t) {
    const unsigned units = static_cast<const std::uint8_t*>(in)[15];
    put_bits(out, 64, 32, next_counter);
    next_counter += units == 0 ? 1 : 128 * units;
    return made<mlx5dv_devx_obj>();
}
int mlx5dv_devx_obj_query(mlx5dv_devx_obj*, const void*, size_t, void* out, size_t size) {
    std::memset(out, 0, size);
    return 0;
}
int mlx5dv_devx_obj_destroy(mlx5dv_devx_obj*) { return 0; }
mlx5dv_dr_domain* mlx5dv_dr_domain_create(ibv_context*, mlx5dv_dr_domain_type) { return made<mlx5dv_dr_domain>(); }
int mlx5dv_dr_domain_destroy(mlx5dv_dr_domain*) { return 0; }
int mlx5dv_dr_domain_sync(mlx5dv_dr_domain*, uint32_t) { return 0; }
mlx5dv_dr_table* mlx5dv_dr_table_create(mlx5dv_dr_domain*, uint32_t) { return made<mlx5dv_dr_table>(); }
int mlx5dv_dr_table_destroy(mlx5dv_dr_table*) { return 0; }
mlx5dv_dr_matcher* mlx5dv_dr_matcher_create(mlx5dv_dr_table*, uint16_t, uint8_t, mlx5dv_flow_match_parameters*) {
    return made<mlx5dv_dr_matcher>();
}
int mlx5dv_dr_matcher_destroy(mlx5dv_dr_matcher*) { return 0; }
mlx5dv_dr_rule* mlx5dv_dr_rule_create(mlx5dv_dr_matcher*, mlx5dv_flow_match_parameters*, size_t, mlx5dv_dr_action*[]) {
    return made<mlx5dv_dr_rule>();
}
int mlx5dv_dr_rule_destroy(mlx5dv_dr_rule*) { return 0; }
int mlx5dv_dr_action_destroy(mlx5dv_dr_action*) { return 0; }
mlx5dv_dr_action* mlx5dv_dr_action_create_drop() { return made<mlx5dv_dr_action>(); }
mlx5dv_dr_action* mlx5dv_dr_action_create_default_miss() { return made<mlx5dv_dr_action>(); }
mlx5dv_dr_action* mlx5dv_dr_action_create_tag(uint32_t) { return made<mlx5dv_dr_action>(); }
mlx5dv_dr_action* mlx5dv_dr_action_create_dest_ibv_qp(ibv_qp*) { return made<mlx5dv_dr_action>(); }
mlx5dv_dr_action* mlx5dv_dr_action_create_dest_table(mlx5dv_dr_table*) { return made<mlx5dv_dr_action>(); }
mlx5dv_dr_action* mlx5dv_dr_action_create_dest_vport(mlx5dv_dr_domain*, uint32_t) { return made<mlx5dv_dr_action>(); }
mlx5dv_dr_action* mlx5dv_dr_action_create_dest_array(mlx5dv_dr_domain*, size_t, mlx5dv_dr_action_dest_attr*[]) {
    return made<mlx5dv_dr_action>();
}
mlx5dv_dr_action* mlx5dv_dr_action_create_pop_vlan() { return made<mlx5dv_dr_action>(); }
mlx5dv_dr_action* mlx5dv_dr_action_create_push_vlan(mlx5dv_dr_domain*, __be32) { return made<mlx5dv_dr_action>(); }
mlx5dv_dr_action* mlx5dv_dr_action_create_modify_header(mlx5dv_dr_domain*, uint32_t, size_t, __be64[]) {
    return made<mlx5dv_dr_action>();
}
mlx5dv_dr_action* mlx5dv_dr_action_create_flow_counter(mlx5dv_devx_obj*, uint32_t) { return made<mlx5dv_dr_action>(); }

}
