#include "allocations.hpp"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>

namespace ovsdr::soft::test {
namespace {

std::atomic<long> in_use{0};
thread_local unsigned before_failure = 0, failures = 0;

[[nodiscard]] void* take(std::size_t size, std::size_t alignment) {
    if (failures != 0 && before_failure-- == 0) {
        before_failure = 0;
        --failures;
        throw std::bad_alloc();
    }
    const std::size_t whole = (std::max<std::size_t>(size, 1) + alignment - 1) / alignment * alignment;
    void* const block = std::aligned_alloc(alignment, whole);
    if (block == nullptr) throw std::bad_alloc();
    in_use.fetch_add(1, std::memory_order_relaxed);
    return block;
}

void give_back(void* block) noexcept {
    if (block != nullptr) in_use.fetch_sub(1, std::memory_order_relaxed);
    std::free(block);
}

}  // namespace

long blocks_in_use() { return in_use.load(std::memory_order_relaxed); }

NoMemory::NoMemory(unsigned left, unsigned times) {
    before_failure = left;
    failures = times;
}
NoMemory::~NoMemory() { failures = 0; }

}  // namespace ovsdr::soft::test

using ovsdr::soft::test::give_back;
using ovsdr::soft::test::take;

void* operator new(std::size_t size) { return take(size, __STDCPP_DEFAULT_NEW_ALIGNMENT__); }
void* operator new[](std::size_t size) { return take(size, __STDCPP_DEFAULT_NEW_ALIGNMENT__); }
void* operator new(std::size_t size, std::align_val_t alignment) {
    return take(size, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t size, std::align_val_t alignment) {
    return take(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* block) noexcept { give_back(block); }
void operator delete[](void* block) noexcept { give_back(block); }
void operator delete(void* block, std::size_t) noexcept { give_back(block); }
void operator delete[](void* block, std::size_t) noexcept { give_back(block); }
void operator delete(void* block, std::align_val_t) noexcept { give_back(block); }
void operator delete[](void* block, std::align_val_t) noexcept { give_back(block); }
void operator delete(void* block, std::size_t, std::align_val_t) noexcept { give_back(block); }
void operator delete[](void* block, std::size_t, std::align_val_t) noexcept { give_back(block); }
