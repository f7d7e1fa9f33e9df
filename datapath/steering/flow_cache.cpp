#include "datapath/steering/flow_cache.hpp"

#include <emmintrin.h>

#include <cstring>
#include <new>

namespace ovsdr::soft {
namespace {

constexpr std::size_t huge_page = std::size_t{2} << 20;

[[nodiscard]] void* map(std::size_t size) {
    void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    if (size >= huge_page) ::madvise(memory, size, MADV_HUGEPAGE);
    return memory;
}

}  // namespace

FlowCache::FlowCache() : tags_(static_cast<std::uint32_t*>(map(length * sizeof(std::uint32_t)))) {
    try {
        lines_ = static_cast<Line*>(map(length * sizeof(Line)));
    } catch (...) {
        ::munmap(tags_, length * sizeof(std::uint32_t));
        throw;
    }
}

FlowCache::~FlowCache() {
    ::munmap(lines_, length * sizeof(Line));
    ::munmap(tags_, length * sizeof(std::uint32_t));
}

unsigned FlowCache::matching(std::uint32_t hash) const noexcept {
    const auto* set = reinterpret_cast<const __m128i*>(tags_ + set_of(hash));
    const __m128i tag = _mm_set1_epi32(static_cast<int>(tag_of(hash)));
    const int low = _mm_movemask_ps(_mm_castsi128_ps(_mm_cmpeq_epi32(_mm_load_si128(set), tag)));
    const int high = _mm_movemask_ps(_mm_castsi128_ps(_mm_cmpeq_epi32(_mm_load_si128(set + 1), tag)));
    return static_cast<unsigned>(low | high << 4);
}

void FlowCache::write(std::uint32_t way, const Subject& subject, const Trace& trace) noexcept {
    Line& line = lines_[way];
    line.epoch = trace.epoch;
    line.entrance = subject.entrance;
    line.rewritten = trace.rewritten;
    line.bucket = trace.bucket;
    line.op_count = trace.ops.size() & 0x7f;
    line.in_turn = trace.in_turn ? 1 : 0;
    line.word_count = static_cast<std::uint8_t>(subject.words.size());
    std::memcpy(line.held, subject.words.data(), subject.words.size_bytes());
    std::memcpy(line.held + subject.words.size_bytes(), trace.ops.data(), trace.ops.size_bytes());
    tags_[way] = tag_of(subject.hash);
}

}  // namespace ovsdr::soft
