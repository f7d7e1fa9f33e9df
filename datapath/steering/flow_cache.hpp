// A lane's memory of traversals: from a packet's words under its cache key (cache_key.hpp) to the composed trace.
//
// Eight-way sets of lines. Whether a line still counts is asked of its key, by the line's epoch: a change of the tables
// costs nothing here. A hundred thousand tuples of one megaflow share a line: no mask looks at what differs.
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
    static constexpr unsigned max_ops = 20;  ///< with keys of up to five words; with longer ones what fits

    /// The key's words, and the ops right behind them: a key of few words takes few lines of memory.
    struct alignas(64) Line {
        static constexpr unsigned held_size = 360;

        std::uint64_t epoch;
        std::uint64_t entrance;
        std::uint32_t rewritten;  ///< bit i: word i was rewritten before a look-up
        std::uint16_t bucket;     ///< ChangeLog::bucket_of()
        std::uint8_t op_count : 7;
        std::uint8_t in_turn : 1;  ///< Trace::in_turn
        std::uint8_t word_count;
        alignas(8) unsigned char held[held_size];

        [[nodiscard]] const std::uint64_t* words() const noexcept {
            return reinterpret_cast<const std::uint64_t*>(held);
        }
        [[nodiscard]] std::span<const Op> ops() const noexcept {
            return {reinterpret_cast<const Op*>(held + word_count * sizeof(std::uint64_t)), op_count};
        }
        [[nodiscard]] bool is_of(std::uint64_t from, std::span<const std::uint64_t> wanted) const noexcept {
            std::uint64_t difference = entrance ^ from;
            for (std::size_t i = 0; i < wanted.size(); ++i) difference |= words()[i] ^ wanted[i];
            return difference == 0;
        }
    };
    static_assert(sizeof(Line) == 384);
    static_assert(max_ops * sizeof(Op) <= Line::held_size);

    /// Takes address space only; memory comes with use. Throws std::bad_alloc.
    FlowCache();
    ~FlowCache();
    FlowCache(const FlowCache&) = delete;
    FlowCache& operator=(const FlowCache&) = delete;

    void prefetch_set(std::uint32_t hash) const noexcept { __builtin_prefetch(tags_ + set_of(hash)); }

    /// A line that may hold the key, prefetched; nullptr when none can.
    [[nodiscard]] Line* candidate(std::uint32_t hash) const noexcept {
        const unsigned ways = matching(hash);
        if (ways == 0) return nullptr;
        Line* line = lines_ + set_of(hash) + __builtin_ctz(ways);
        __builtin_prefetch(line);
        __builtin_prefetch(reinterpret_cast<const char*>(line) + 64);
        __builtin_prefetch(reinterpret_cast<const char*>(line) + 128);
        return line;
    }

    /// What a line is of.
    struct Subject {
        std::uint32_t hash;
        std::uint64_t entrance;
        std::span<const std::uint64_t> words;
    };
    /// Every way of the set, for a subject whose candidate was another's. `counts(line)` says whether one of the same
    /// entrance and words still does.
    template <typename Counts>
    [[nodiscard]] const Line* find(const Subject& subject, const Counts& counts) const noexcept {
        for (unsigned left = matching(subject.hash); left != 0; left &= left - 1) {
            Line& line = lines_[set_of(subject.hash) + __builtin_ctz(left)];
            if (line.is_of(subject.entrance, subject.words) && counts(line)) return &line;
        }
        return nullptr;
    }

    struct Trace {
        std::uint64_t epoch;
        std::uint32_t rewritten;
        std::uint16_t bucket;
        bool in_turn;  ///< each packet goes all the way before the next one
        std::span<const Op> ops;
    };
    /// Overwrites a line that does not count any more, or any. What fits no line is not remembered. `dead(line)` says
    /// which do not count.
    template <typename Dead>
    void insert(const Subject& subject, const Trace& trace, const Dead& dead) noexcept {
        if (subject.words.size_bytes() + trace.ops.size_bytes() > Line::held_size) return;
        write(way_for(subject, dead), subject, trace);
    }

private:
    static constexpr unsigned ways = 8;
    static constexpr unsigned length = 1U << 15;

    [[nodiscard]] static std::uint32_t tag_of(std::uint32_t hash) noexcept { return hash | 1; }
    [[nodiscard]] static std::uint32_t set_of(std::uint32_t hash) noexcept { return hash & (length - 1) & ~(ways - 1); }

    /// One bit for each way whose tag is the hash's.
    [[nodiscard]] unsigned matching(std::uint32_t hash) const noexcept;

    /// The subject's line of before, a free one, one that is dead, or the next one that has to go.
    template <typename Dead>
    [[nodiscard]] std::uint32_t way_for(const Subject& subject, const Dead& dead) noexcept {
        const std::uint32_t set = set_of(subject.hash);
        for (unsigned left = matching(subject.hash); left != 0; left &= left - 1) {
            const std::uint32_t way = set + __builtin_ctz(left);
            if (lines_[way].is_of(subject.entrance, subject.words)) return way;
        }
        for (std::uint32_t way = set; way < set + ways; ++way) {
            if (tags_[way] == 0 || dead(lines_[way])) return way;
        }
        return set + victim_++ % ways;
    }
    void write(std::uint32_t way, const Subject& subject, const Trace& trace) noexcept;

    std::uint32_t* tags_;
    Line* lines_;
    unsigned victim_ = 0;
};

}  // namespace ovsdr::soft
