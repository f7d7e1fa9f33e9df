#include "datapath/ports/packet_pool.hpp"

#include <fmt/format.h>
#include <rte_errno.h>
#include <rte_eal.h>
#include <rte_malloc.h>
#include <rte_mbuf.h>
#include <rte_memory.h>
#include <rte_memzone.h>
#include <rte_ring.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <memory>
#include <mutex>
#include <new>

#include "datapath/ports/config.hpp"

namespace ovsdr::soft {
namespace {

constexpr const char* growing_ops = "ovsdr-growing";
constexpr std::size_t piece_size = 1 << 19;   // bytes

/// A pool's free buffers, and what it grows by: its ops' private data.
class Growth {
public:
    explicit Growth(rte_mempool& pool) noexcept : pool_(pool) {}
    ~Growth() {
        rte_ring_free(free_);
        rte_memzone_free(memory_);
    }
    Growth(const Growth&) = delete;
    Growth& operator=(const Growth&) = delete;

    /// A negative errno, or 0.
    [[nodiscard]] int create_ring() noexcept;
    /// Of the whole pool, as addresses. A negative errno, or 0.
    [[nodiscard]] int reserve() noexcept;
    [[nodiscard]] rte_ring* free_buffers() const noexcept { return free_; }

    /// Takes this many, all or none. Makes more where there are too few.
    [[nodiscard]] int take(void** buffers, unsigned count) noexcept;
    /// From now on there are those that there are.
    void stop() noexcept { done_.store(true, std::memory_order_relaxed); }
    [[nodiscard]] bool can_grow() const noexcept { return !done_.load(std::memory_order_relaxed); }

private:
    [[nodiscard]] int make_piece() noexcept;

    rte_mempool& pool_;
    rte_ring* free_ = nullptr;
    const rte_memzone* memory_ = nullptr;
    std::mutex mutex_;                 ///< whoever makes a piece
    std::size_t made_ = 0;             ///< bytes
    std::atomic<bool> done_{false};    ///< no further piece can be made
};

int Growth::create_ring() noexcept {
    const std::string name = fmt::format("free-{}", pool_.name).substr(0, RTE_RING_NAMESIZE - 1);
    free_ = rte_ring_create(name.c_str(), rte_align32pow2(pool_.size + 1), pool_.socket_id, 0);
    return free_ == nullptr ? -rte_errno : 0;
}

int Growth::reserve() noexcept {
    const std::size_t buffer = pool_.header_size + pool_.elt_size + pool_.trailer_size;
    const std::string name = fmt::format("buffers-{}", pool_.name).substr(0, RTE_MEMZONE_NAMESIZE - 1);
    memory_ = rte_memzone_reserve(name.c_str(), buffer * pool_.size, pool_.socket_id, 0);
    return memory_ == nullptr ? -rte_errno : make_piece();
}

// How a device sees `address`; `size` is cut where what follows is elsewhere for it.
rte_iova_t device_address(char* address, std::size_t& size) noexcept {
    if (rte_eal_iova_mode() == RTE_IOVA_VA) return reinterpret_cast<rte_iova_t>(address);
    const rte_iova_t begin = rte_mem_virt2iova(address);
    const rte_memseg* const segment = rte_mem_virt2memseg(address, nullptr);
    if (segment == nullptr) return begin;
    for (char* page = RTE_PTR_ALIGN_CEIL(address + 1, segment->hugepage_sz); page < address + size;
         page += segment->hugepage_sz) {
        const auto distance = static_cast<std::size_t>(page - address);
        if (rte_mem_virt2iova(page) == begin + distance) continue;
        size = distance;
        break;
    }
    return begin;
}

int Growth::make_piece() noexcept {
    const std::size_t buffer = pool_.header_size + pool_.elt_size + pool_.trailer_size;
    int made = -ENOSPC;
    while (memory_->len - made_ >= buffer) {
        char* const address = static_cast<char*>(memory_->addr) + made_;
        std::size_t size = std::min(std::max(piece_size / buffer, std::size_t{1}) * buffer, memory_->len - made_);
        const rte_iova_t iova = device_address(address, size);
        // Where a device sees pages scattered, what is left of one may be too little.
        made = size < buffer ? 0 : rte_mempool_populate_iova(&pool_, address, iova, size, nullptr, nullptr);
        if (made == -ENOMEM) return made;   // DPDK had no room to note the piece: there may be some the next time
        made_ += size;
        if (size >= buffer) break;
    }
    if (made <= 0 || pool_.populated_size == pool_.size) stop();
    return std::min(made, 0);
}

int Growth::take(void** buffers, unsigned count) noexcept {
    if (rte_ring_mc_dequeue_bulk(free_, buffers, count, nullptr) == count) [[likely]] return 0;
    while (!done_.load(std::memory_order_relaxed)) {
        const std::lock_guard guard(mutex_);
        // Another may have made some in the meantime.
        if (rte_ring_mc_dequeue_bulk(free_, buffers, count, nullptr) == count) return 0;
        if (!done_.load(std::memory_order_relaxed) && make_piece() == -ENOMEM) break;
    }
    return rte_ring_mc_dequeue_bulk(free_, buffers, count, nullptr) == count ? 0 : -ENOBUFS;
}

Growth& growth_of(const rte_mempool* pool) noexcept { return *static_cast<Growth*>(pool->pool_data); }

struct GrowthDeleter {
    void operator()(Growth* growth) const noexcept {
        std::destroy_at(growth);
        rte_free(growth);
    }
};

/// In DPDK's memory, where the pool is too: LeakSanitizer does not look there for what points to the heap.
int allocate(rte_mempool* pool) {
    void* const memory = rte_malloc_socket("growth of a pool", sizeof(Growth), alignof(Growth), pool->socket_id);
    if (memory == nullptr) return -ENOMEM;
    std::unique_ptr<Growth, GrowthDeleter> growth(new (memory) Growth(*pool));
    if (const int failed = growth->create_ring(); failed != 0) return failed;
    pool->pool_data = growth.release();
    return 0;
}

void release(rte_mempool* pool) {
    if (pool->pool_data != nullptr) GrowthDeleter{}(static_cast<Growth*>(pool->pool_data));
}

int give_back(rte_mempool* pool, void* const* buffers, unsigned count) {
    return rte_ring_mp_enqueue_bulk(growth_of(pool).free_buffers(), buffers, count, nullptr) == count ? 0 : -ENOBUFS;
}

int take(rte_mempool* pool, void** buffers, unsigned count) { return growth_of(pool).take(buffers, count); }

/// Those that can be had, made or not: DPDK counts what is left of the whole as in use.
unsigned count_free(const rte_mempool* pool) {
    const Growth& growth = growth_of(pool);
    return rte_ring_count(growth.free_buffers()) + (growth.can_grow() ? pool->size - pool->populated_size : 0);
}

/// What DPDK does with each new buffer, which gives it to whoever asks for one: it has to be an mbuf before.
struct Adding {
    rte_mempool_populate_obj_cb_t* add;
    void* argument;
};

void initialise_and_add(rte_mempool* pool, void* opaque, void* buffer, rte_iova_t iova) {
    const auto& adding = *static_cast<Adding*>(opaque);
    rte_mempool_get_header(buffer)->iova = iova;   // which rte_pktmbuf_init() reads
    rte_pktmbuf_init(pool, nullptr, buffer, 0);
    adding.add(pool, adding.argument, buffer, iova);
}

int populate(rte_mempool* pool, unsigned most, void* address, rte_iova_t iova, std::size_t size,
             rte_mempool_populate_obj_cb_t* add, void* argument) {
    Adding adding{add, argument};
    return rte_mempool_op_populate_helper(pool, 0, most, address, iova, size, initialise_and_add, &adding);
}

int register_growing_ops() {
    rte_mempool_ops ops{};
    fmt::format_to_n(ops.name, sizeof ops.name - 1, "{}", growing_ops);
    ops.alloc = allocate;
    ops.free = release;
    ops.enqueue = give_back;
    ops.dequeue = take;
    ops.get_count = count_free;
    ops.populate = populate;
    return rte_mempool_register_ops(&ops);
}

/// Once in a process. A negative errno, or at least 0.
int have_growing_ops() {
    static const int registered = register_growing_ops();
    return registered;
}

bool grows(const rte_mempool& pool) noexcept {
    return rte_mempool_get_ops(pool.ops_index)->alloc == allocate;
}

int fill_whole(rte_mempool& pool) {
    if (const int result = rte_mempool_populate_default(&pool); result < 0) return result;
    rte_mempool_obj_iter(&pool, rte_pktmbuf_init, nullptr);
    return 0;
}

int begin_growing(rte_mempool& pool) {
    if (const int result = rte_mempool_ops_alloc(&pool); result != 0) return result;
    pool.flags |= RTE_MEMPOOL_F_POOL_CREATED;
    return growth_of(&pool).reserve();
}

}  // namespace

void MempoolDeleter::operator()(rte_mempool* pool) const noexcept {
    // Which takes all buffers that were made, and none more.
    if (grows(*pool) && pool->pool_data != nullptr) growth_of(pool).stop();
    rte_mempool_free(pool);
}

Mempool make_mempool(const MempoolSpec& spec, std::string& error) {
    const auto failed = [&](int cause) {
        error = fmt::format("no packet memory for {} buffers of {} bytes: {} (raise memory_mb)", spec.length, spec.room,
                            rte_strerror(cause));
        return Mempool();
    };
    // A worker's cache: big enough that a burst seldom reaches the shared ring, small enough that workers starve
    // nobody.
    const unsigned cache = std::min<unsigned>(256, spec.length / (2 * max_workers));
    const auto room = static_cast<std::uint16_t>(spec.room + RTE_PKTMBUF_HEADROOM);
    const bool is_dense = spec.packing == Packing::dense;
    if (const int result = have_growing_ops(); result < 0) return failed(-result);
    // A buffer may cross the border of two pages, but where a device sees them scattered.
    const bool crosses = is_dense && rte_eal_iova_mode() == RTE_IOVA_VA;
    const unsigned flags = crosses ? RTE_MEMPOOL_F_NO_IOVA_CONTIG : 0;
    Mempool pool(rte_mempool_create_empty(spec.name.c_str(), spec.length, sizeof(rte_mbuf) + room, cache,
                                          sizeof(rte_pktmbuf_pool_private), spec.node, flags));
    if (!pool) return failed(rte_errno);
    const char* const ops = is_dense ? growing_ops : "ring_mp_mc";
    if (int result = rte_mempool_set_ops_byname(pool.get(), ops, nullptr)) return failed(-result);
    rte_pktmbuf_pool_private settings{};
    settings.mbuf_data_room_size = room;
    rte_pktmbuf_pool_init(pool.get(), &settings);
    if (int result = is_dense ? begin_growing(*pool) : fill_whole(*pool); result < 0) return failed(-result);
    return pool;
}

unsigned made_buffers(const rte_mempool& pool) noexcept { return pool.populated_size; }

}  // namespace ovsdr::soft
