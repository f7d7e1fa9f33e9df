#include "datapath/rdma/memory/memory.hpp"

#include <infiniband/verbs.h>

#include <cerrno>
#include <thread>

#include "datapath/rdma/mkey/mkey.hpp"

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

int MemoryTable::reserve(std::uint32_t& key) {
    if (!free_.empty()) {
        key = free_.back();
        free_.pop_back();
        return 0;
    }
    if (next_index_ >= max_regions) return ENOMEM;
    auto& chunk = chunks_[next_index_ / chunk_length];
    if (!chunk.load(std::memory_order_relaxed)) chunk.store(new Chunk, std::memory_order_release);
    key = next_index_++ << 8 | 1;
    return 0;
}

int MemoryTable::add(MemoryRegion& region) {
    std::lock_guard guard(mutex_);
    if (const int full = reserve(region.key)) return full;
    slot(index_of(region.key))->store(new MemoryRegion(region), std::memory_order_release);
    return 0;
}

int MemoryTable::add(Mkey& mkey) {
    std::lock_guard guard(mutex_);
    std::uint32_t key;
    if (const int full = reserve(key)) return full;
    mkey.set_key(key);
    slot(index_of(key))
        ->store(new MemoryRegion{.domain = mkey.spec().domain, .mkey = &mkey}, std::memory_order_release);
    return 0;
}

Mkey* MemoryTable::mkey_of_any_tag(std::uint32_t key) const noexcept {
    auto* const place = slot(index_of(key));
    const MemoryRegion* const region = place ? place->load(std::memory_order_acquire) : nullptr;
    return region ? region->mkey : nullptr;
}

Mkey* MemoryTable::mkey(std::uint32_t key) const noexcept {
    Mkey* const mkey = mkey_of_any_tag(key);
    return mkey && mkey->key() == key ? mkey : nullptr;
}

void MemoryTable::remove(std::uint32_t key) noexcept {
    std::lock_guard guard(mutex_);
    auto* const place = slot(index_of(key));
    const std::unique_ptr<const MemoryRegion> region(place ? place->exchange(nullptr, std::memory_order_seq_cst)
                                                           : nullptr);
    if (!region) return;
    await_readers();
    free_.push_back(next_tag(key));
}

/// A reader that came before the slot's exchange is counted; one that comes after it no longer finds the region.
void MemoryTable::await_readers() noexcept {
    for (Readers& readers : readers_) {
        while (readers.count.load(std::memory_order_seq_cst) != 0) std::this_thread::yield();
    }
}

int MemoryTable::replace(const MemoryRegion& region) {
    auto next = std::make_unique<const MemoryRegion>(region);
    std::lock_guard guard(mutex_);
    auto* const place = slot(index_of(region.key));
    const MemoryRegion* const old = place ? place->load(std::memory_order_relaxed) : nullptr;
    if (!old || old->key != region.key) return EINVAL;
    const std::unique_ptr<const MemoryRegion> retired(place->exchange(next.release(), std::memory_order_seq_cst));
    await_readers();
    return 0;
}

bool MemoryTable::find(std::uint32_t index, MemoryRegion& region) {
    std::lock_guard guard(mutex_);
    auto* const place = slot(index);
    const MemoryRegion* const found = place ? place->load(std::memory_order_relaxed) : nullptr;
    if (!found || found->mkey) return false;
    region = *found;
    return true;
}

std::byte* MemoryTable::lookup(std::uint32_t key, std::uint64_t address, std::uint64_t size, unsigned access,
                               const void* domain) const noexcept {
    auto* const place = slot(index_of(key));
    const MemoryRegion* const region = place ? place->load(std::memory_order_acquire) : nullptr;
    if (!region || region->key != key || region->domain != domain) return nullptr;
    if ((region->access & access) != access) return nullptr;
    const std::uint64_t offset = address - region->iova;
    if (address < region->iova || offset > region->size || size > region->size - offset) return nullptr;
    if (region->discard) return access & IBV_ACCESS_LOCAL_WRITE ? region->discard : region->base;
    return region->at(offset);
}

}  // namespace ovsdr::soft
