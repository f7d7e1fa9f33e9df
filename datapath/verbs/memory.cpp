// Protection domains and memory regions.
#include <sys/mman.h>
#include <unistd.h>

#include "datapath/control/fault.hpp"
#include "datapath/verbs/objects.hpp"

#undef ibv_reg_mr
#undef ibv_reg_mr_iova

namespace ovsdr::soft {

namespace {

constexpr unsigned supported_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                                      IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED |
                                      IBV_ACCESS_HUGETLB;

/// ibv_reg_mr(3): who may write remotely must be able to write locally. Optional flags may be ignored.
[[nodiscard]] int check_access(unsigned access) {
    const unsigned asked = access & ~static_cast<unsigned>(IBV_ACCESS_OPTIONAL_RANGE);
    if (asked & IBV_ACCESS_ON_DEMAND) return EOPNOTSUPP;
    if (asked & ~supported_access) return EINVAL;
    const bool writes_remotely = asked & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
    return writes_remotely && !(asked & IBV_ACCESS_LOCAL_WRITE) ? EINVAL : 0;
}

/// Makes the pages present, and writable where the device may write, as the kernel does when it pins them: whoever
/// registers what is not there learns it now (EFAULT), and no worker of the NIC runs into it. Pages are not pinned:
/// memory that is unmapped while registered is the application's mistake, as with a device's on-demand paging.
[[nodiscard]] bool populate(const void* address, std::size_t size, unsigned access) {
    const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
    const auto first = reinterpret_cast<std::uintptr_t>(address) & ~(page - 1);
    const auto end = reinterpret_cast<std::uintptr_t>(address) + size;
    if (end <= first) return false;
    auto* const start = reinterpret_cast<void*>(first);
    // Linux 5.14 has the advice; before it, holes at least are found (msync() writes back nothing here).
    alignas(4096) static std::byte probe[4096];
    static const bool advisable = madvise(probe, sizeof probe, MADV_POPULATE_WRITE) == 0;
    if (!advisable) return msync(start, end - first, MS_ASYNC) == 0 || errno != ENOMEM;
    return madvise(start, end - first, access & IBV_ACCESS_LOCAL_WRITE ? MADV_POPULATE_WRITE : MADV_POPULATE_READ) == 0;
}

ibv_mr* register_memory(const char* call, ibv_pd* pd, void* address, std::size_t size, std::uint64_t iova,
                        unsigned access) noexcept {
    int error = injected_fault(call);
    if (!error) error = check_access(access);
    if (!error && (size == 0 || iova + size < iova)) error = EINVAL;
    if (!error && !populate(address, size, access)) error = EFAULT;
    if (error) {
        errno = error;
        return nullptr;
    }
    return created([&]() -> ibv_mr* {
        auto mr = std::make_unique<Mr>();
        MemoryRegion region{access & IBV_ACCESS_ZERO_BASED ? 0 : iova, size, static_cast<std::byte*>(address), access,
                            pd};
        if (const int full = Context::of(pd->context).state.memory().add(region)) {
            errno = full;
            return nullptr;
        }
        static_cast<ibv_mr&>(*mr) = ibv_mr{pd->context, pd, address, size, region.key >> 8, region.key, region.key};
        mr->access = access;
        Pd::of(pd).users.fetch_add(1);
        return mr.release();
    });
}

}  // namespace

}  // namespace ovsdr::soft

using namespace ovsdr::soft;

extern "C" {

ibv_pd* ibv_alloc_pd(ibv_context* context) {
    if (const int error = injected_fault("ibv_alloc_pd")) {
        errno = error;
        return nullptr;
    }
    return created([&]() -> ibv_pd* {
        auto pd = std::make_unique<Pd>();
        pd->context = context;
        pd->number = pd->handle = Context::of(context).state.pd_numbers().take();
        Context::of(context).hold();
        return pd.release();
    });
}

int ibv_dealloc_pd(ibv_pd* pd) {
    if (const int error = injected_fault("ibv_dealloc_pd")) return failed(error);
    if (Pd::of(pd).users.load(std::memory_order_acquire)) return failed(EBUSY);
    Context& context = Context::of(pd->context);
    context.state.pd_numbers().give_back(Pd::of(pd).number);
    context.let_go();
    delete &Pd::of(pd);
    return 0;
}

ibv_mr* ibv_reg_mr(ibv_pd* pd, void* address, std::size_t size, int access) {
    return register_memory("ibv_reg_mr", pd, address, size, reinterpret_cast<std::uintptr_t>(address),
                           static_cast<unsigned>(access));
}

ibv_mr* ibv_reg_mr_iova(ibv_pd* pd, void* address, std::size_t size, std::uint64_t iova, int access) {
    return register_memory("ibv_reg_mr_iova", pd, address, size, iova, static_cast<unsigned>(access));
}

ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* address, std::size_t size, std::uint64_t iova, unsigned access) {
    return register_memory("ibv_reg_mr_iova", pd, address, size, iova, access);
}

int ibv_dereg_mr(ibv_mr* mr) {
    if (const int error = injected_fault("ibv_dereg_mr")) return failed(error);
    Context::of(mr->context).state.memory().remove(mr->lkey);
    Pd::of(mr->pd).users.fetch_sub(1);
    delete &Mr::of(mr);
    return 0;
}

}  // extern "C"
