// Thread domains, and parent domains: PDs with a thread domain and an allocator of the application's.
// Source: ibv_alloc_td(3), ibv_alloc_parent_domain(3); libmlx5.
#include "datapath/control/fault.hpp"
#include "datapath/verbs/objects.hpp"

namespace ovsdr::soft {

ibv_td* alloc_td_op(ibv_context* context, ibv_td_init_attr* attr) {
    int error = injected_fault("ibv_alloc_td");
    if (!error && attr->comp_mask) error = EINVAL;
    if (error) {
        errno = error;
        return nullptr;
    }
    return created([&]() -> ibv_td* {
        auto td = std::make_unique<Td>();
        td->context = context;
        Context::of(context).hold();
        return td.release();
    });
}

int dealloc_td_op(ibv_td* td) {
    if (const int error = injected_fault("ibv_dealloc_td")) return failed(error);
    if (Td::of(td).users.load(std::memory_order_acquire)) return failed(EBUSY);
    Context& context = Context::of(td->context);
    delete &Td::of(td);
    context.let_go();
    return 0;
}

namespace {

[[nodiscard]] int check(const ibv_parent_domain_init_attr& attr) {
    constexpr std::uint32_t known = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
    if (!attr.pd || (attr.comp_mask & ~known)) return EINVAL;
    const bool allocates = attr.comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS;
    return allocates && (!attr.alloc || !attr.free) ? EINVAL : 0;
}

/// As libmlx5's buffers are.
constexpr std::size_t queue_alignment = 4096;

}  // namespace

ibv_pd* alloc_parent_domain_op(ibv_context* context, ibv_parent_domain_init_attr* attr) {
    int error = injected_fault("ibv_alloc_parent_domain");
    if (!error) error = check(*attr);
    if (error) {
        errno = error;
        return nullptr;
    }
    return created([&]() -> ibv_pd* {
        Pd& protection = Pd::of(attr->pd);
        auto pd = std::make_unique<Pd>(protection.protection);
        pd->context = context;
        pd->handle = attr->pd->handle;
        pd->number = protection.number;
        pd->parent_of = &protection;
        if (attr->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS) {
            pd->allocate = attr->alloc;
            pd->release = attr->free;
        }
        if (attr->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT) pd->allocator_context = attr->pd_context;
        if (attr->td) {
            pd->thread_domain = &Td::of(attr->td);
            pd->thread_domain->users.fetch_add(1);
        }
        protection.users.fetch_add(1);
        Context::of(context).hold();
        return pd.release();
    });
}

/// The application's allocator may say that it wants the default for this one; what it gives may not be nothing.
QueueAllocator Pd::allocator(std::uint64_t resource_type) {
    if (!allocate) return {};
    return [this, resource_type](std::size_t size) {
        if (size == 0) return QueueMemory();
        void* const memory = allocate(this, allocator_context, size, queue_alignment, resource_type);
        if (memory == IBV_ALLOCATOR_USE_DEFAULT) {
            return QueueMemory(new std::byte[size], std::default_delete<std::byte[]>());
        }
        if (!memory) throw std::bad_alloc();
        return QueueMemory(static_cast<std::byte*>(memory), [this, resource_type](std::byte* bytes) {
            release(this, allocator_context, bytes, resource_type);
        });
    };
}

}  // namespace ovsdr::soft
