#include "offload/dr/device/ib_port.hpp"

#include <fmt/format.h>
#include <infiniband/mlx5dv.h>

#include <cerrno>
#include <new>

#include "offload/dr/device/device.hpp"

namespace ovsdr::dr {

Result<IbPort> find_ib_port(ibv_context* context, VportId vport) noexcept try {
    const char* const name = ibv_get_device_name(context->device);
    ibv_device_attr_ex attributes{};
    if (const int code = ibv_query_device_ex(context, nullptr, &attributes); code != 0) {
        return tl::unexpected(failure(code, "ibv_query_device_ex", name));
    }
    Error absent{ENOENT, fmt::format("{} has no vport {}", name, vport.value)};
    const std::uint32_t ports =
        attributes.phys_port_cnt_ex != 0 ? attributes.phys_port_cnt_ex : attributes.orig_attr.phys_port_cnt;
    for (std::uint32_t port = 1; port <= ports; ++port) {
        mlx5dv_port info{};
        if (const int code = mlx5dv_query_port(context, port, &info); code != 0) {
            absent.what += "; " + failure(code, "mlx5dv_query_port", std::to_string(port)).what;
            continue;
        }
        const bool is_function = ports == 1 && (info.flags & MLX5DV_QUERY_PORT_VPORT) == 0;
        if (is_function && vport == VportId{0}) return IbPort{port, false, 0, 0};
        if ((info.flags & MLX5DV_QUERY_PORT_VPORT) == 0 || info.vport != vport.value) continue;
        return IbPort{.number = port,
                      .has_register = (info.flags & MLX5DV_QUERY_PORT_VPORT_REG_C0) != 0,
                      .register_value = info.reg_c0.value,
                      .register_mask = info.reg_c0.mask};
    }
    return tl::unexpected(std::move(absent));
} catch (const std::bad_alloc&) {
    return tl::unexpected(Error{ENOMEM, {}});
}

}  // namespace ovsdr::dr
