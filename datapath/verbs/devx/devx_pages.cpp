// What DEVX queues stand on: memory of the application's, doorbell pages, the number of an event queue.
//
// A doorbell page is memory that the application may write to: see devx_doorbells.hpp.
// Source: mlx5dv_devx_umem_reg(3), mlx5dv_devx_alloc_uar(3), mlx5dv_devx_query_eqn(3).
#include "datapath/control/fault.hpp"
#include "datapath/rdma/completion/devx_doorbells.hpp"
#include "datapath/rdma/memory/devx_memory.hpp"
#include "datapath/verbs/objects.hpp"

using namespace ovsdr::soft;

namespace {

struct Umem : mlx5dv_devx_umem {
    Context& context;
};

struct Uar : mlx5dv_devx_uar {
    explicit Uar(Context& owner) : mlx5dv_devx_uar{}, context(owner), page(owner.state.doorbell_pages()) {
        base_addr = page.memory();
        reg_addr = page.memory() + devx::DoorbellPage::blue_flame;
        page_id = page.number();
    }
    Context& context;
    const devx::DoorbellPage page;
};

[[nodiscard]] mlx5dv_devx_umem* register_umem(const char* call, ibv_context* context, void* address, std::size_t size,
                                              std::uint32_t access) noexcept {
    constexpr std::uint32_t known = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    int error = injected_fault(call);
    if (!error && (!address || size == 0 || (access & ~known))) error = EINVAL;
    if (!error && (access & IBV_ACCESS_REMOTE_WRITE) && !(access & IBV_ACCESS_LOCAL_WRITE)) error = EINVAL;
    if (!error && !populate(address, size, access)) error = EFAULT;
    if (error) {
        errno = error;
        return nullptr;
    }
    return created([&]() -> mlx5dv_devx_umem* {
        auto umem = std::unique_ptr<Umem>(new Umem{{0}, Context::of(context)});
        umem->umem_id = umem->context.state.umems().add({static_cast<std::byte*>(address), size, access});
        umem->context.hold();
        return umem.release();
    });
}

}  // namespace

extern "C" {

mlx5dv_devx_umem* mlx5dv_devx_umem_reg(ibv_context* context, void* address, std::size_t size, std::uint32_t access) {
    return register_umem("mlx5dv_devx_umem_reg", context, address, size, access);
}

mlx5dv_devx_umem* mlx5dv_devx_umem_reg_ex(ibv_context* context, mlx5dv_devx_umem_in* in) {
    if (in->comp_mask) {  // DMA buffers of other devices: there are none.
        errno = EOPNOTSUPP;
        return nullptr;
    }
    return register_umem("mlx5dv_devx_umem_reg_ex", context, in->addr, in->size, in->access);
}

int mlx5dv_devx_umem_dereg(mlx5dv_devx_umem* base) {
    if (const int error = injected_fault("mlx5dv_devx_umem_dereg")) return failed(error);
    auto* const umem = static_cast<Umem*>(base);
    if (const int error = umem->context.state.umems().remove(base->umem_id)) return failed(error);
    umem->context.let_go();
    delete umem;
    return 0;
}

mlx5dv_devx_uar* mlx5dv_devx_alloc_uar(ibv_context* context, std::uint32_t flags) {
    int error = injected_fault("mlx5dv_devx_alloc_uar");
    if (!error && flags != MLX5DV_UAR_ALLOC_TYPE_BF && flags != MLX5DV_UAR_ALLOC_TYPE_NC) error = EOPNOTSUPP;
    if (error) {
        errno = error;
        return nullptr;
    }
    return created([&]() -> mlx5dv_devx_uar* {
        auto* const uar = new Uar(Context::of(context));
        uar->context.hold();
        return uar;
    });
}

void mlx5dv_devx_free_uar(mlx5dv_devx_uar* base) {
    auto* const uar = static_cast<Uar*>(base);
    Context& context = uar->context;
    delete uar;
    context.let_go();
}

/// The number of a completion vector's event queue, which belongs to the kernel.
int mlx5dv_devx_query_eqn(ibv_context* context, std::uint32_t vector, std::uint32_t* number) {
    if (const int error = injected_fault("mlx5dv_devx_query_eqn")) return failed(error);
    if (vector >= static_cast<std::uint32_t>(context->num_comp_vectors)) return failed(EINVAL);
    *number = vector + 1;
    return 0;
}

}  // extern "C"
