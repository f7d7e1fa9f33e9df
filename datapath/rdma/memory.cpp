#include "datapath/rdma/memory.hpp"

#include <cerrno>
#include <thread>

namespace ovsdr::soft {

namespace {

constexpr unsigned index_of(std::uint32_t key) {
    return key >> 8;
}

constexpr std::uint32_t next_tag(std::uint32_t key) {
    return (key & ~0xFFu) | ((key + 1) & 0xFFu);
}

}  // namespace

MemoryTable::MemoryTable() : chunks_(new std::atomic<Chunk*>[max_regions / chunk_length] {}) {}

MemoryTable::~MemoryTable() {
    for (unsigned i = 0; i < max_regions / chunk_length; ++i) {
        const std::unique_ptr<Chunk> chunk(chunks_[i].load(std::memory_order_relaxed));
        if (!chunk) continue;
        for (auto& slot : chunk->slots) delete slot.load(std::memory_order_relaxed);
    }
}

std::atomic<const MemoryRegion*>* MemoryTable::slot(std::uint32_t index) const noexcept {
    if (index >= max_regions) return nullptr;
    Chunk* const chunk = chunks_[index / chunk_length].load(std::memory_order_acquire);
    return chunk ? &chunk->slots[index % chunk_length] : nullptr;
}

int MemoryTable::add(MemoryRegion& region) {
    std::lock_guard guard(mutex_);
    if (!free_.empty()) {
        region.key = free_.back();
        free_.pop_back();
    } else {
        if (next_index_ >= max_regions) return ENOMEM;
        auto& chunk = chunks_[next_index_ / chunk_length];
        if (!chunk.load(std::memory_order_relaxed)) chunk.store(new Chunk, std::memory_order_release);
        region.key = next_index_++ << 8 | 1;
    }
    slot(index_of(region.key))->store(new MemoryRegion(region), std::memory_order_release);
    return 0;
}

void MemoryTable::remove(std::uint32_t key) noexcept {
    std::lock_guard guard(mutex_);
    auto* const place = slot(index_of(key));
    const std::unique_ptr<const MemoryRegion> region(place ? place->exchange(nullptr, std::memory_order_seq_cst)
                                                           : nullptr);
    if (!region) return;
    // A reader that came before the exchange is counted; one that comes after it no longer finds the region.
    for (Readers& readers : readers_) {
        while (readers.count.load(std::memory_order_seq_cst) != 0) std::this_thread::yield();
    }
    free_.push_back(next_tag(key));
}

std::byte* MemoryTable::lookup(std::uint32_t key, std::uint64_t address, std::uint64_t size, unsigned access,
                               const void* domain) const noexcept {
    auto* const place = slot(index_of(key));
    const MemoryRegion* const region = place ? place->load(std::memory_order_acquire) : nullptr;
    if (!region || region->key != key || region->domain != domain) return nullptr;
    if ((region->access & access) != access) return nullptr;
    const std::uint64_t offset = address - region->iova;
    if (address < region->iova || offset > region->size || size > region->size - offset) return nullptr;
    return region->base + offset;
}

}  // namespace ovsdr::soft
