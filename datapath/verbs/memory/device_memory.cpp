// Device memory: allocation, copies, registration.
// Source: ibv_alloc_dm(3), mlx5dv_alloc_dm(3); libmlx5, whose errors these are.
#include <algorithm>
#include <cstring>

#include "datapath/control/fault.hpp"
#include "datapath/ports/guarded_copy.hpp"
#include "datapath/verbs/memory/dm.hpp"
#include "datapath/verbs/objects.hpp"

namespace ovsdr::soft {

namespace {

constexpr std::uint32_t max_log_alignment = 12;  // a page

/// The bus takes double words only.
[[nodiscard]] int check_access(const DeviceMemory& memory, std::uint64_t offset, std::size_t size) {
    if (offset > memory.size() || size > memory.size() - offset) return EFAULT;
    return offset % 4 || size % 4 ? EINVAL : 0;
}

int copy_to(ibv_dm* dm, std::uint64_t offset, const void* from, std::size_t size) {
    if (const int error = injected_fault("ibv_memcpy_to_dm")) return failed(error);
    DeviceMemory& memory = *Dm::of(dm).memory;
    if (const int error = check_access(memory, offset, size)) return failed(error);
    std::memcpy(memory.bytes() + offset, from, size);
    return 0;
}

int copy_from(void* to, ibv_dm* dm, std::uint64_t offset, std::size_t size) {
    if (const int error = injected_fault("ibv_memcpy_from_dm")) return failed(error);
    const DeviceMemory& memory = *Dm::of(dm).memory;
    if (const int error = check_access(memory, offset, size)) return failed(error);
    std::memcpy(to, memory.bytes() + offset, size);
    return 0;
}

[[nodiscard]] ibv_dm* alloc(ibv_context* context, const ibv_alloc_dm_attr& attr) {
    DeviceState& state = Context::of(context).state;
    auto memory = std::make_shared<DeviceMemory>(state.device_memory_taken(), attr.length);
    const std::uint32_t handle = state.queue_numbers().take();
    state.device_memories().add(handle, memory);
    return wrap_device_memory(context, handle, std::move(memory));
}

[[nodiscard]] int check(const ibv_alloc_dm_attr& attr) {
    if (attr.comp_mask || attr.log_align_req > max_log_alignment) return EINVAL;
    return attr.length == 0 || attr.length > DeviceMemory::device_size ? EINVAL : 0;
}

}  // namespace

ibv_dm* wrap_device_memory(ibv_context* context, std::uint32_t handle, std::shared_ptr<DeviceMemory> memory) {
    auto dm = std::make_unique<Dm>();
    dm->context = context;
    dm->memcpy_to_dm = copy_to;
    dm->memcpy_from_dm = copy_from;
    dm->comp_mask = IBV_DM_MASK_HANDLE;
    dm->handle = handle;
    dm->memory = std::move(memory);
    Context::of(context).hold();
    return dm.release();
}

ibv_dm* alloc_dm_op(ibv_context* context, ibv_alloc_dm_attr* attr) {
    int error = injected_fault("ibv_alloc_dm");
    if (!error) error = check(*attr);
    if (error) {
        errno = error;
        return nullptr;
    }
    return created([&] { return alloc(context, *attr); });
}

int free_dm_op(ibv_dm* base) {
    if (const int error = injected_fault("ibv_free_dm")) return failed(error);
    Dm& dm = Dm::of(base);
    if (dm.memory->regions.load(std::memory_order_acquire)) return failed(EBUSY);
    Context& context = Context::of(base->context);
    context.state.device_memories().remove(base->handle);
    context.state.queue_numbers().give_back(base->handle);
    delete &dm;
    context.let_go();
    return 0;
}

ibv_mr* reg_dm_mr_op(ibv_pd* pd, ibv_dm* base, std::uint64_t offset, std::size_t size, unsigned access) {
    constexpr unsigned allowed = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                                 IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_ZERO_BASED;
    const std::shared_ptr<DeviceMemory>& memory = Dm::of(base).memory;
    const unsigned asked = access & ~static_cast<unsigned>(IBV_ACCESS_OPTIONAL_RANGE);
    int error = injected_fault("ibv_reg_dm_mr");
    if (!error && ((asked & ~allowed) || !(asked & IBV_ACCESS_ZERO_BASED))) error = EINVAL;
    if (!error && (offset > memory->size() || size > memory->size() - offset)) error = EINVAL;
    if (error) {
        errno = error;
        return nullptr;
    }
    ibv_mr* const mr = add_region(pd, {0, size, memory->bytes() + offset, asked, Pd::of(pd).domain()}, nullptr,
                                  Mr::Kind::device_memory);
    if (!mr) return nullptr;
    memory->regions.fetch_add(1);
    Mr::of(mr).device_memory = memory;
    return mr;
}

}  // namespace ovsdr::soft

using namespace ovsdr::soft;

extern "C" {

/// Of the device's kinds of memory, what applications read and write; steering's own is not there to be had.
ibv_dm* mlx5dv_alloc_dm(ibv_context* context, ibv_alloc_dm_attr* attr, mlx5dv_alloc_dm_attr* mlx5_attr) {
    int error = injected_fault("mlx5dv_alloc_dm");
    if (!error && mlx5_attr->type != MLX5DV_DM_TYPE_MEMIC) error = EOPNOTSUPP;
    if (!error && mlx5_attr->comp_mask) error = EINVAL;
    if (!error) error = check(*attr);
    if (error) {
        errno = error;
        return nullptr;
    }
    return created([&] { return alloc(context, *attr); });
}

}  // extern "C"
