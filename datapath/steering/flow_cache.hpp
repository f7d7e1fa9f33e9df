// A lane's memory of traversals: from a packet's words under the union of all installed masks to the composed trace.
//
// Eight-way sets of lines; a line counts only while its epoch is the tables' epoch, so a change of the tables empties
// the cache at no cost. A hundred thousand tuples of one megaflow share a line: no mask looks at what differs.
//
// Threads: the lane's worker.
#pragma once

#include <sys/mman.h>

#include <array>
#include <cstdint>
#include <span>

#include "datapath/steering/masked_words.hpp"
#include "datapath/steering/program.hpp"

namespace ovsdr::soft {

class FlowCache {
public:
    /// The union of masks never has more: every word that is used but the registers (match.cpp proves it).
    static constexpr unsigned max_words = 32;
    static constexpr unsigned max_ops = 12;

    /// The key's words, and the ops right behind them: a key of few words takes few lines of memory.
    struct alignas(64) Line {
        static constexpr unsigned held_size = 360;

        std::uint64_t epoch;
        std::uint64_t entrance;
        std::uint32_t op_count;
        std::uint32_t word_count;
        alignas(8) unsigned char held[held_size];

        [[nodiscard]] const std::uint64_t* words() const noexcept {
            return reinterpret_cast<const std::uint64_t*>(held);
        }
        [[nodiscard]] std::span<const Op> ops() const noexcept {
            return {reinterpret_cast<const Op*>(held + word_count * sizeof(std::uint64_t)), op_count};
        }
    };
    static_assert(sizeof(Line) == 384);

    /// Takes address space only; memory comes with use. Throws std::bad_alloc.
    FlowCache();
    ~FlowCache();
    FlowCache(const FlowCache&) = delete;
    FlowCache& operator=(const FlowCache&) = delete;

    void prefetch_set(std::uint32_t hash) const noexcept { __builtin_prefetch(tags_ + set_of(hash)); }

    /// A line that may hold the key, prefetched; nullptr when none can.
    [[nodiscard]] const Line* candidate(std::uint32_t hash) const noexcept {
        const unsigned ways = matching(hash);
        if (ways == 0) return nullptr;
        const Line* line = lines_ + set_of(hash) + __builtin_ctz(ways);
        __builtin_prefetch(line);
        __builtin_prefetch(reinterpret_cast<const char*>(line) + 64);
        __builtin_prefetch(reinterpret_cast<const char*>(line) + 128);
        return line;
    }

    /// Whether `line` is this key's.
    [[nodiscard]] static bool holds(const Line& line, std::uint64_t epoch, std::uint64_t entrance,
                                    std::span<const std::uint64_t> words) noexcept {
        std::uint64_t difference = (line.epoch ^ epoch) | (line.entrance ^ entrance);
        for (std::size_t i = 0; i < words.size(); ++i) difference |= line.words()[i] ^ words[i];
        return difference == 0;
    }

    /// Every way of the set, for a key whose candidate was another's.
    [[nodiscard]] const Line* find(std::uint32_t hash, std::uint64_t epoch, std::uint64_t entrance,
                                   std::span<const std::uint64_t> words) const noexcept;

    /// Overwrites a line of another epoch, or any. What fits no line is not remembered.
    void insert(std::uint32_t hash, std::uint64_t epoch, std::uint64_t entrance, std::span<const std::uint64_t> words,
                std::span<const Op> ops) noexcept;

private:
    static constexpr unsigned ways = 8;
    static constexpr unsigned length = 1U << 15;

    [[nodiscard]] static std::uint32_t tag_of(std::uint32_t hash) noexcept { return hash | 1; }
    [[nodiscard]] static std::uint32_t set_of(std::uint32_t hash) noexcept { return hash & (length - 1) & ~(ways - 1); }

    /// One bit for each way whose tag is the hash's.
    [[nodiscard]] unsigned matching(std::uint32_t hash) const noexcept;

    std::uint32_t* tags_;
    Line* lines_;
    unsigned victim_ = 0;
};

}  // namespace ovsdr::soft
