// Protection domains and memory regions.
//
// Regions with IBV_ACCESS_ON_DEMAND are paged as the process itself is: nothing is made present, an access of the
// device brings pages in like any other, and one to what is not mapped fails the work request. Other regions are made
// present when they are registered; if the application unmaps them nevertheless, a request that touches them fails as
// well.
#include <sys/mman.h>
#include <unistd.h>

#include "datapath/control/fault.hpp"
#include "datapath/ports/guarded_copy.hpp"
#include "datapath/verbs/objects.hpp"

#undef ibv_reg_mr
#undef ibv_reg_mr_iova

namespace ovsdr::soft {

bool populate(const void* address, std::size_t size, unsigned access) {
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

namespace {

constexpr unsigned supported_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                                      IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED |
                                      IBV_ACCESS_HUGETLB | IBV_ACCESS_ON_DEMAND;

/// ibv_reg_mr(3): who may write remotely must be able to write locally. Optional flags may be ignored.
[[nodiscard]] int check_access(unsigned access) {
    const unsigned asked = access & ~static_cast<unsigned>(IBV_ACCESS_OPTIONAL_RANGE);
    if (asked & ~supported_access) return EINVAL;
    const bool writes_remotely = asked & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
    return writes_remotely && !(asked & IBV_ACCESS_LOCAL_WRITE) ? EINVAL : 0;
}

/// Whether such a registration may be made. The whole address space is one region: from 0, on demand.
[[nodiscard]] int check_range(const void* address, std::size_t size, std::uint64_t iova, unsigned access) {
    const bool on_demand = access & IBV_ACCESS_ON_DEMAND;
    if (size == SIZE_MAX) return on_demand && !address && iova == 0 && !(access & IBV_ACCESS_ZERO_BASED) ? 0 : EINVAL;
    if (size == 0 || iova + size < iova) return EINVAL;
    return on_demand || populate(address, size, access) ? 0 : EFAULT;
}

ibv_mr* register_memory(const char* call, ibv_pd* pd, void* address, std::size_t size, std::uint64_t iova,
                        unsigned access) noexcept {
    int error = injected_fault(call);
    if (!error) error = check_access(access);
    if (!error) error = check_range(address, size, iova, access);
    if (error) {
        errno = error;
        return nullptr;
    }
    auto* const bytes = static_cast<std::byte*>(address);
    return add_region(pd, {access & IBV_ACCESS_ZERO_BASED ? 0 : iova, size, bytes, access, Pd::of(pd).domain()},
                      address, Mr::Kind::memory);
}

/// What a null region's keys lead to: a range of zeros, and one whose pages are few and repeat, for what is written to
/// it. Each holds the largest piece of a work request.
struct NullMemory {
    static constexpr std::size_t size = std::size_t{1} << 32, chunk = std::size_t{1} << 24;
    std::byte* zeros;
    std::byte* discard;

    NullMemory() {
        constexpr int reserved = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
        const int file = memfd_create("softnic-null", MFD_CLOEXEC);
        zeros = static_cast<std::byte*>(mmap(nullptr, size, PROT_READ, reserved, -1, 0));
        discard = static_cast<std::byte*>(mmap(nullptr, size, PROT_NONE, reserved, -1, 0));
        bool mapped = file >= 0 && zeros != MAP_FAILED && discard != MAP_FAILED && ftruncate(file, chunk) == 0;
        for (std::size_t at = 0; mapped && at < size; at += chunk) {
            mapped = mmap(discard + at, chunk, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) != MAP_FAILED;
        }
        if (file >= 0) close(file);
        if (!mapped) throw std::bad_alloc();
    }
};

/// The region of `pd` that a work request of the application may name by `key`; false where there is none.
[[nodiscard]] bool own_region(ibv_pd* pd, std::uint32_t key, MemoryRegion& region) {
    MemoryTable& memory = Context::of(pd->context).state.memory();
    return memory.find(key >> 8, region) && region.key == key && region.domain == Pd::of(pd).domain();
}

[[nodiscard]] int prefetch(ibv_pd* pd, ibv_advise_mr_advice advice, const ibv_sge& piece) {
    MemoryRegion region{};
    if (!own_region(pd, piece.lkey, region)) return ENOENT;
    if (!(region.access & IBV_ACCESS_ON_DEMAND)) return EINVAL;
    const bool writes = advice == IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE;
    if (writes && !(region.access & IBV_ACCESS_LOCAL_WRITE)) return EPERM;
    const std::uint64_t offset = piece.addr - region.iova;
    if (piece.addr < region.iova || offset > region.size || piece.length > region.size - offset) return EFAULT;
    if (piece.length == 0) return 0;
    const bool present = populate(region.at(offset), piece.length, writes ? IBV_ACCESS_LOCAL_WRITE : 0);
    return present || advice == IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT ? 0 : EFAULT;
}

/// The errors of ibv_rereg_mr(3), which are negative and say how far it came.
[[nodiscard]] int rereg_failed(ibv_rereg_mr_err_code code, int error) {
    errno = error;
    return code;
}

}  // namespace

ibv_mr* add_region(ibv_pd* pd, MemoryRegion region, void* address, Mr::Kind kind) noexcept {
    return created([&]() -> ibv_mr* {
        guard_copies();
        auto mr = std::make_unique<Mr>();
        if (const int full = Context::of(pd->context).state.memory().add(region)) {
            errno = full;
            return nullptr;
        }
        const std::uint32_t rkey = kind == Mr::Kind::null ? 0 : region.key;
        static_cast<ibv_mr&>(*mr) = ibv_mr{pd->context, pd, address, region.size, region.key >> 8, region.key, rkey};
        mr->access = region.access;
        mr->kind = kind;
        Pd::of(pd).users.fetch_add(1);
        return mr.release();
    });
}

ibv_mr* alloc_null_mr_op(ibv_pd* pd) {
    if (const int error = injected_fault("ibv_alloc_null_mr")) {
        errno = error;
        return nullptr;
    }
    return created([&] {
        static const auto* const memory = new NullMemory;
        return add_region(pd,
                          {.iova = 0,
                           .size = SIZE_MAX,
                           .base = memory->zeros,
                           .access = IBV_ACCESS_LOCAL_WRITE,
                           .domain = Pd::of(pd).domain(),
                           .discard = memory->discard},
                          nullptr, Mr::Kind::null);
    });
}

/// Advice is followed before the call returns, with and without IBV_ADVISE_MR_FLAG_FLUSH.
int advise_mr_op(ibv_pd* pd, ibv_advise_mr_advice advice, std::uint32_t flags, ibv_sge* list, std::uint32_t length) {
    if (const int error = injected_fault("ibv_advise_mr")) return failed(error);
    if (advice > IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT) return failed(EOPNOTSUPP);
    if ((flags & ~static_cast<std::uint32_t>(IBV_ADVISE_MR_FLAG_FLUSH)) || length == 0) return failed(EINVAL);
    for (std::uint32_t i = 0; i < length; ++i) {
        if (const int error = prefetch(pd, advice, list[i])) return failed(error);
    }
    return 0;
}

}  // namespace ovsdr::soft

using namespace ovsdr::soft;

extern "C" {

ibv_pd* ibv_alloc_pd(ibv_context* context) {
    if (const int error = injected_fault("ibv_alloc_pd")) {
        errno = error;
        return nullptr;
    }
    return created([&]() -> ibv_pd* {
        DeviceState& state = Context::of(context).state;
        auto protection = std::make_shared<ProtectionDomain>(ProtectionDomain{.number = state.pd_numbers().take()});
        state.protection_domains().add(protection->number, protection);
        auto pd = std::make_unique<Pd>(std::move(protection));
        pd->protection->identity = static_cast<ibv_pd*>(pd.get());
        pd->context = context;
        pd->number = pd->handle = pd->protection->number;
        Context::of(context).hold();
        return pd.release();
    });
}

int ibv_dealloc_pd(ibv_pd* pd) {
    if (const int error = injected_fault("ibv_dealloc_pd")) return failed(error);
    if (Pd::of(pd).users.load(std::memory_order_acquire)) return failed(EBUSY);
    Context& context = Context::of(pd->context);
    Pd& gone = Pd::of(pd);
    if (gone.parent_of) {
        gone.parent_of->users.fetch_sub(1);
        if (gone.thread_domain) gone.thread_domain->users.fetch_sub(1);
    } else {
        context.state.protection_domains().remove(gone.number);
        context.state.pd_numbers().give_back(gone.number);
    }
    delete &gone;
    context.let_go();
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

/// Keeps the region's keys. What the flags do not name stays as it is.
int ibv_rereg_mr(ibv_mr* mr, int flags, ibv_pd* pd, void* address, std::size_t size, int access) {
    if (const int error = injected_fault("ibv_rereg_mr")) return rereg_failed(IBV_REREG_MR_ERR_CMD, error);
    Mr& region = Mr::of(mr);
    const bool moves = flags & IBV_REREG_MR_CHANGE_TRANSLATION;
    const bool grants = flags & IBV_REREG_MR_CHANGE_ACCESS;
    const bool changes_pd = flags & IBV_REREG_MR_CHANGE_PD;
    if (region.kind != Mr::Kind::memory || (flags & ~IBV_REREG_MR_FLAGS_SUPPORTED) || (moves && (!size || !address)) ||
        (access && !grants)) {
        return rereg_failed(IBV_REREG_MR_ERR_INPUT, EINVAL);
    }
    MemoryTable& memory = Context::of(mr->context).state.memory();
    MemoryRegion next{};
    if (flags == 0 || (changes_pd && !pd) || !memory.find(mr->handle, next)) {
        return rereg_failed(IBV_REREG_MR_ERR_CMD, EINVAL);
    }
    if (grants) next.access = static_cast<unsigned>(access);
    if (moves) {
        next.base = static_cast<std::byte*>(address);
        next.size = size;
        next.iova = next.access & IBV_ACCESS_ZERO_BASED ? 0 : reinterpret_cast<std::uintptr_t>(address);
    }
    if (changes_pd) next.domain = Pd::of(pd).domain();
    int error = check_access(next.access);
    if (!error && (moves || grants)) error = check_range(next.base, next.size, next.iova, next.access);
    if (!error) error = memory.replace(next);
    if (error) return rereg_failed(IBV_REREG_MR_ERR_CMD, error);
    region.access = next.access;
    if (moves) {
        mr->addr = address;
        mr->length = size;
    }
    if (changes_pd) {
        Pd::of(pd).users.fetch_add(1);
        Pd::of(mr->pd).users.fetch_sub(1);
        mr->pd = pd;
    }
    return 0;
}

int ibv_dereg_mr(ibv_mr* mr) {
    if (const int error = injected_fault("ibv_dereg_mr")) return failed(error);
    Mr& region = Mr::of(mr);
    Context::of(mr->context).state.memory().remove(mr->lkey);
    if (region.device_memory) region.device_memory->regions.fetch_sub(1);
    Pd::of(mr->pd).users.fetch_sub(1);
    delete &region;
    return 0;
}

}  // extern "C"
