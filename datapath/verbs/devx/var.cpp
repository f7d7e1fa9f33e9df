// VARs: pages of doorbells for virtio queues that a device emulates (VIRTIO_NET_Q objects).
//
// A page is a part of the device's command file, for an application to map and to give to a guest. This device has no
// such queues (the command that makes them is BAD_OP), so a doorbell there rings nothing, as on hardware with no queue
// behind the page.
// Source: mlx5dv_alloc_var(3); mlx5_ib, whose errors these are.
#include <fcntl.h>

#include "datapath/control/fault.hpp"
#include "datapath/verbs/objects.hpp"

using namespace ovsdr::soft;

namespace {

constexpr std::uint32_t page = 4096;

struct Var : mlx5dv_var {
    Context& context;
};

}  // namespace

extern "C" {

mlx5dv_var* mlx5dv_alloc_var(ibv_context* base, std::uint32_t flags) {
    int error = injected_fault("mlx5dv_alloc_var");
    if (!error && flags) error = EOPNOTSUPP;
    if (error) {
        errno = error;
        return nullptr;
    }
    return created([&]() -> mlx5dv_var* {
        Context& context = Context::of(base);
        auto var = std::unique_ptr<Var>(new Var{{}, context});
        const auto index = context.state.take_doorbell_page();
        if (!index) throw std::system_error(ENOSPC, std::generic_category(), "VAR");
        var->page_id = *index;
        var->length = page;
        var->mmap_off = static_cast<off_t>(*index) * page;
        context.hold();
        return var.release();
    });
}

/// The page is the next one's, who finds it empty.
void mlx5dv_free_var(mlx5dv_var* base) {
    auto* const var = static_cast<Var*>(base);
    Context& context = var->context;
    (void)fallocate(context.context.cmd_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, var->mmap_off, page);
    context.state.give_back_doorbell_page(var->page_id);
    delete var;
    context.let_go();
}

}  // extern "C"
