#include "tools/drcollect/session_ring.hpp"

#include <sys/mman.h>

#include <cerrno>
#include <new>
#include <system_error>

namespace ovsdr::drcollect {
namespace {

std::size_t fields_size_of(const mirror::Geometry& geometry, bool keeps_fields) noexcept {
    return keeps_fields ? std::size_t{geometry.blocks()} * geometry.signature.field_size() : 0;
}

}  // namespace

std::uint64_t SessionRing::size_of(const mirror::Geometry& geometry, bool keeps_fields) noexcept {
    return geometry.ring_size() + geometry.slots * fields_size_of(geometry, keeps_fields);
}

SessionRing::SessionRing(const mirror::Geometry& geometry, bool keeps_fields, MemoryLimit& limit) noexcept
    : geometry_(geometry),
      data_size_(geometry.ring_size()),
      fields_size_(fields_size_of(geometry, keeps_fields)),
      size_(size_of(geometry, keeps_fields)),
      limit_(limit) {}

std::unique_ptr<SessionRing> SessionRing::create(ibv_pd* pd, const mirror::Geometry& geometry, bool keeps_fields,
                                                 MemoryLimit& limit) {
    const std::uint64_t size = size_of(geometry, keeps_fields);
    if (!limit.take(size)) return nullptr;
    std::unique_ptr<SessionRing> made(new (std::nothrow) SessionRing(geometry, keeps_fields, limit));
    if (made == nullptr) {
        limit.give_back(size);
        throw std::bad_alloc();
    }
    void* const at = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (at == MAP_FAILED) throw std::bad_alloc();
    made->base_ = static_cast<std::byte*>(at);
    made->mr_.reset(ibv_reg_mr(pd, at, size, int{IBV_ACCESS_LOCAL_WRITE}));
    if (made->mr_ == nullptr) {
        throw std::system_error(errno, std::generic_category(), "ibv_reg_mr(ring of a session)");
    }
    return made;
}

SessionRing::~SessionRing() {
    mr_.reset();
    if (base_ != nullptr) munmap(base_, size_);
    limit_.give_back(size_);
}

mirror::SlotMemory SessionRing::memory_of(std::uint64_t sequence) const {
    const std::size_t slot = geometry_.slot_of(sequence);
    mirror::SlotMemory memory{reinterpret_cast<std::uint64_t>(data_of(sequence).data()), mr_->lkey};
    if (fields_size_ != 0) {
        memory.fields = reinterpret_cast<std::uint64_t>(base_ + data_size_ + slot * fields_size_);
        memory.fields_key = mr_->lkey;
    }
    return memory;
}

std::span<std::byte> SessionRing::data_of(std::uint64_t sequence) const {
    return {base_ + std::size_t{geometry_.slot_of(sequence)} * geometry_.slot_stride(), geometry_.segment_size};
}

std::span<const std::byte> SessionRing::fields_of(const mirror::SegmentHeader& header) const {
    if (fields_size_ == 0) return {};
    return {base_ + data_size_ + geometry_.slot_of(header.sequence) * fields_size_,
            std::size_t{geometry_.signature.blocks_of(header.used)} * geometry_.signature.field_size()};
}

}  // namespace ovsdr::drcollect
