#include "common/block_pool.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <new>
#include <utility>

namespace ovsdr {

/// What a slab begins with; blocks follow. Blocks that have been given back are a list, each pointing to the next;
/// those from `fresh` on have never been taken, nor their pages touched.
struct BlockPool::Slab {
    BlockPool& pool;
    const std::uint32_t units;  ///< of 8 bytes, in a block
    std::uint32_t used = 0;
    std::uint32_t fresh = 0;
    void* given_back = nullptr;
    Slab* previous = nullptr;
    Slab* next = nullptr;

    [[nodiscard]] static Slab& of(void* block) noexcept {
        return *reinterpret_cast<Slab*>(reinterpret_cast<std::uintptr_t>(block) & ~(slab_size - 1));
    }
    [[nodiscard]] bool full() const noexcept { return used == (slab_size - sizeof(Slab)) / (units * 8); }
    [[nodiscard]] void* take() noexcept {
        ++used;
        if (given_back != nullptr) return std::exchange(given_back, *static_cast<void**>(given_back));
        return reinterpret_cast<std::byte*>(this + 1) + std::size_t{fresh++} * units * 8;
    }
    void give_back(void* block) noexcept {
        --used;
        *static_cast<void**>(block) = std::exchange(given_back, block);
    }
};

namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool sanitized = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
constexpr bool sanitized = true;
#else
constexpr bool sanitized = false;
#endif
#else
constexpr bool sanitized = false;
#endif

constexpr std::size_t huge_page = std::size_t{2} << 20;
constexpr std::size_t small_pool = huge_page / BlockPool::slab_size;   // slabs

/// Aligned to its size. What is cut off lies before it, so that the next one, which the system puts below, is its
/// neighbour: a process may have 65,530 areas of memory. NULL: there is none.
[[nodiscard]] std::byte* map_aligned(std::size_t size) noexcept {
    void* const memory = ::mmap(nullptr, 2 * size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return nullptr;
    auto* const begin = static_cast<std::byte*>(memory);
    const std::size_t before = size - reinterpret_cast<std::uintptr_t>(begin) % size, behind = size - before;
    ::munmap(begin, before);
    if (behind != 0) ::munmap(begin + before + size, behind);
    return begin + before;
}

}  // namespace

void BlockPool::link(Slab& slab) noexcept {
    Slab*& first = classes_[slab.units];
    slab.previous = nullptr;
    slab.next = first;
    if (first != nullptr) first->previous = &slab;
    first = &slab;
}

void BlockPool::unlink(Slab& slab) noexcept {
    (slab.previous == nullptr ? classes_[slab.units] : slab.previous->next) = slab.next;
    if (slab.next != nullptr) slab.next->previous = slab.previous;
}

void* BlockPool::new_slab() {
    if (region_ == region_end_ && slabs_ >= small_pool) {
        region_ = map_aligned(huge_page);
        region_end_ = region_ == nullptr ? nullptr : region_ + huge_page;
        if (region_ != nullptr) (void)::madvise(region_, huge_page, MADV_HUGEPAGE);
    }
    const bool has_region = region_ != region_end_;
    std::byte* const slab = has_region ? std::exchange(region_, region_ + slab_size) : map_aligned(slab_size);
    if (slab == nullptr) throw std::bad_alloc();
    ++slabs_;
    return slab;
}

void* BlockPool::take(std::size_t size) {
    if (sanitized) return ::operator new(size);
    const auto units = static_cast<std::uint32_t>((std::max(size, sizeof(void*)) + 7) / 8);
    const std::lock_guard lock(mutex_);
    if (classes_[units] == nullptr) link(*new (new_slab()) Slab{.pool = *this, .units = units});
    Slab& slab = *classes_[units];
    void* const block = slab.take();
    if (slab.full()) unlink(slab);
    return block;
}

void BlockPool::give_back(void* block) noexcept {
    if (sanitized) return ::operator delete(block);
    Slab& slab = Slab::of(block);
    const std::lock_guard lock(slab.pool.mutex_);
    if (slab.full()) slab.pool.link(slab);
    slab.give_back(block);
}

void BlockPool::trim() noexcept {
    Slab* empty = nullptr;
    {
        const std::lock_guard lock(mutex_);
        for (Slab* first : classes_) {
            for (Slab* slab = first; slab != nullptr;) {
                Slab* const here = std::exchange(slab, slab->next);
                if (here->used != 0) continue;
                unlink(*here);
                here->next = std::exchange(empty, here);
                --slabs_;
            }
        }
        if (region_ != region_end_) ::munmap(region_, static_cast<std::size_t>(region_end_ - region_));
        region_ = region_end_ = nullptr;
    }
    while (empty != nullptr) ::munmap(std::exchange(empty, empty->next), slab_size);
}

}  // namespace ovsdr
