// DEVX: commands and objects.
#include "datapath/rdma/devx/devx.hpp"

#include "datapath/control/fault.hpp"
#include "datapath/rdma/devx/devx_object.hpp"
#include "datapath/verbs/objects.hpp"

using namespace ovsdr::soft;

namespace {

[[nodiscard]] devx::Input input(const void* in, std::size_t size) {
    return {static_cast<const std::byte*>(in), size};
}
[[nodiscard]] devx::Output output(void* out, std::size_t size) {
    return {static_cast<std::byte*>(out), size};
}

/// Runs a command; errno is set as for every function of this API.
template <typename Command>
[[nodiscard]] int run(const char* call, Command command) noexcept {
    if (const int error = injected_fault(call)) return failed(error);
    try {
        const int error = command();
        return error ? failed(error) : 0;
    } catch (const std::bad_alloc&) {
        return failed(ENOMEM);
    }
}

}  // namespace

extern "C" {

int mlx5dv_devx_general_cmd(ibv_context* context, const void* in, std::size_t in_size, void* out,
                            std::size_t out_size) {
    return run("mlx5dv_devx_general_cmd", [&] {
        return devx::general_command(Context::of(context).state, input(in, in_size), output(out, out_size));
    });
}

mlx5dv_devx_obj* mlx5dv_devx_obj_create(ibv_context* context, const void* in, std::size_t in_size, void* out,
                                        std::size_t out_size) {
    std::unique_ptr<mlx5dv_devx_obj> object;
    const int error = run("mlx5dv_devx_obj_create", [&] {
        return devx::create(Context::of(context).state, context, input(in, in_size), output(out, out_size), object);
    });
    if (error) return nullptr;
    Context::of(context).hold();
    return object.release();
}

int mlx5dv_devx_obj_query(mlx5dv_devx_obj* object, const void* in, std::size_t in_size, void* out,
                          std::size_t out_size) {
    return run("mlx5dv_devx_obj_query",
               [&] { return devx::query(*object, input(in, in_size), output(out, out_size)); });
}

int mlx5dv_devx_obj_modify(mlx5dv_devx_obj* object, const void* in, std::size_t in_size, void* out,
                           std::size_t out_size) {
    return run("mlx5dv_devx_obj_modify",
               [&] { return devx::modify(*object, input(in, in_size), output(out, out_size)); });
}

int mlx5dv_devx_obj_destroy(mlx5dv_devx_obj* object) {
    const int error = run("mlx5dv_devx_obj_destroy", [&] { return devx::retire(*object); });
    if (error) return error;
    Context::of(object->context).let_go();
    delete object;
    return 0;
}

}  // extern "C"
