// The inside of a Lane.
//
// process() takes each batch through four steps: read the headers and hash what the masks look at; find the cache's
// set; find the line; then, in order, run the line's trace on runs of packets that share it. A line from before the
// latest changes is asked first whether it still holds (cache_key.hpp). A packet without a line walks the tables
// (walk.cpp), which does to it what its rules say and leaves a trace in the cache if what becomes of it is a function
// of what the masks look at, and of what the trace's meters, first hits and tracked connections say of each packet. Its
// headers are read once more for that, and wholly. They are as they were: whoever edits a packet that shares its buffer
// with another of the batch edits a copy (rewrite.hpp).
//
// A trace with one meter, first hit or tracked connection runs it on packet by packet; then each run of packets goes on
// by what was said of them. A trace with several takes its packets one at a time, all the way: the next packet may meet
// the same meter.
//
// Threads: the lane's worker.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "datapath/steering/flow_cache.hpp"
#include "datapath/steering/stateful.hpp"
#include "datapath/steering/steering_impl.hpp"

namespace ovsdr::soft {

class Walk;

/// By what a packet came in: part of the cache's key.
struct Entrance {
    VportId source;
    bool from_queue;
    std::uint32_t sqn;

    [[nodiscard]] std::uint64_t packed() const noexcept {
        return static_cast<std::uint64_t>(from_queue) << 48 | static_cast<std::uint64_t>(source.value) << 32 | sqn;
    }
    [[nodiscard]] static VportId source_of(std::uint64_t packed) noexcept {
        return VportId{static_cast<std::uint16_t>(packed >> 32)};
    }
};

class Lane::Impl {
public:
    Impl(Steering& steering, unsigned worker);
    ~Impl();

    void process(const Entrance& entrance, rte_mbuf** packets, unsigned length) noexcept;
    void flush() noexcept;

    /// Frees `length` packets and counts them.
    void drop(DropReason reason, rte_mbuf** packets, unsigned length) noexcept;

    /// Queues for a destination; takes ownership. At most batch_length, which leave together.
    void output(std::uint16_t destination, rte_mbuf* const* packets, unsigned length) noexcept {
        Batch& batch = batches_[destination];
        unsigned held = pending_[destination];
        if (held == 0) dirty_[dirty_length_++] = destination;
        if (held + length > batch_length) {
            deliver(destination, held);
            held = 0;
        }
        std::copy_n(packets, length, batch.packets.begin() + held);
        pending_[destination] = static_cast<std::uint8_t>(held + length);
    }

    /// Runs a trace, or a stretch of one, on packets that it gives away.
    void execute(std::span<const Op> ops, rte_mbuf** packets, unsigned length) noexcept;

    /// Runs one op that keeps its packets; returns how many are left (a copy may find its pool empty).
    /// `registers` is what edits copy from.
    [[nodiscard]] unsigned apply(const Op& op, rte_mbuf** packets, unsigned length, const Key* registers) noexcept;

    /// Runs an op of state on one packet; `held` is the low byte of its register. Returns what goes there.
    [[nodiscard]] std::uint8_t run_stateful(const Op& op, const StatefulUse& use, rte_mbuf* packet,
                                            std::uint8_t held) noexcept;

    /// True for one call in `ratio`, by a generator of the lane's own.
    [[nodiscard]] bool draw(std::uint32_t ratio) noexcept {
        random_ ^= random_ << 13;
        random_ ^= random_ >> 7;
        random_ ^= random_ << 17;
        return ((random_ >> 32) * ratio) >> 32 == 0;
    }

    [[nodiscard]] Steering::Impl& steering() noexcept { return steering_; }
    [[nodiscard]] unsigned worker() const noexcept { return worker_; }

private:
    struct Batch {
        std::array<rte_mbuf*, batch_length> packets;
    };
    struct Lookup {
        alignas(64) std::array<std::uint64_t, FlowCache::max_words> words;
        std::uint32_t hash;
        FlowCache::Line* line;
    };

    void process_batch(const Entrance& entrance, rte_mbuf** packets, unsigned length) noexcept;
    [[nodiscard]] unsigned read_headers(const Entrance& entrance, rte_mbuf** packets, unsigned length) noexcept;
    /// All that the tables can ask for, by the batch's cache key.
    void read_whole(const Entrance& entrance, const rte_mbuf* packet, Key& key) const noexcept;
    void run(const Entrance& entrance, rte_mbuf** packets, unsigned length) noexcept;
    /// Whether the line, which has a packet's entrance and words, counts in this batch.
    [[nodiscard]] bool counts(FlowCache::Line& line) const noexcept {
        return line.epoch == epoch_ || renew(line);
    }
    [[nodiscard]] bool renew(FlowCache::Line& line) const noexcept;
    [[nodiscard]] bool is_dead(const FlowCache::Line& line) const noexcept;
    void remember(const FlowCache::Subject& subject, const Walk& walk) noexcept;
    void miss(const Entrance& entrance, unsigned index, rte_mbuf* packet) noexcept;
    void deliver(std::uint16_t destination, unsigned length) noexcept;
    void run_by_outcome(std::span<const Op> ops, rte_mbuf** packets, unsigned length) noexcept;
    void copy_run(std::span<const Op> ops, rte_mbuf** packets, unsigned length, std::uint32_t ratio) noexcept;
    void count_drops(DropReason reason, unsigned length) noexcept;
    [[nodiscard]] unsigned edit(const Op& op, rte_mbuf** packets, unsigned length, const Key& registers) noexcept;

    Steering::Impl& steering_;
    unsigned worker_;
    std::uint64_t random_;
    // Of the batch under way.
    const CacheKey* cached_by_ = nullptr;
    std::uint64_t epoch_ = 0;   // even: before the change that was under way
    bool changing_ = false;     // one was
    FlowCache cache_;
    Key common_{};              // the last frame that parse_fast() took; words from 8 on stay 0
    std::array<Lookup, batch_length> lookups_;
    std::unique_ptr<Batch[]> batches_;
    std::array<std::uint8_t, max_destinations> pending_{};
    std::array<std::uint16_t, max_destinations> dirty_;
    unsigned dirty_length_ = 0;
};

}  // namespace ovsdr::soft
