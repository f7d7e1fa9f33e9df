// The ring of segments that a mirror fills: memory, and who may touch which part of it.
//
// Model. Segments are numbered from 0, and lie one after the other in `memory`, the caller's, at slot_of(sequence). One
// producer writes frames as pcapng enhanced packets into the segment behind the last sealed one. When a frame does not
// fit, or the segment has become too old, the segment is sealed: header, zeros up to the block's end. One consumer
// sends what is sealed and releases it when the collector has it. There is room as long as fewer than all slots are
// sealed and not released. Where there is none, frames are dropped and counted: nobody waits.
//
// The lengths and CRCs of what was sealed are kept outside of the ring as well. A segment whose memory has changed
// since can therefore be told, and emptied: the collector learns how many frames it had, and the session goes on.
//
// Threads: append(), drop(), seal_if_older() and seal() by the producer; release(), is_damaged() and empty() by the
// consumer; counters by anybody.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/pcapng/blocks.hpp"
#include "offload/mirror/wire/segment.hpp"

namespace ovsdr::mirror {

class SegmentRing {
public:
    /// `memory`: geometry.slots segments. `snap_length`: bytes of a frame that are kept, fewer where a segment has not
    /// so much room.
    SegmentRing(const Geometry& geometry, std::uint64_t session, std::uint16_t application_tag,
                std::span<std::byte> memory, std::uint32_t snap_length);

    /// False: no room, the frame is dropped and counted. `packet.bytes` is cut to the snap length here. Nothing is
    /// allocated.
    bool append(pcapng::EnhancedPacket packet) noexcept;
    /// Counts frames that are not appended. False.
    bool drop(std::uint64_t frames = 1) noexcept;
    /// Seals a segment whose first frame was appended before `then`, nanoseconds since 1970, and reports drops that no
    /// segment has told yet. True: something was sealed.
    bool seal_if_older(std::uint64_t then, std::uint64_t now) noexcept;
    /// Seals what there is: frames, or drops to be told. `now`: nanoseconds since 1970.
    bool seal(std::uint64_t now) noexcept;

    /// There is something that seal() would seal, or will once there is room. By the producer.
    [[nodiscard]] bool has_unsealed() const noexcept { return open_ || dropped() != dropped_told_; }

    /// Segments below it are sealed.
    [[nodiscard]] std::uint64_t sealed() const noexcept { return sealed_.load(std::memory_order_acquire); }
    [[nodiscard]] std::uint64_t released() const noexcept { return released_.load(std::memory_order_acquire); }
    /// Segments below `sequence`, at most sealed(), are the producer's again.
    void release(std::uint64_t sequence) noexcept { released_.store(sequence, std::memory_order_release); }

    /// What a sealed segment has to send: whole blocks.
    [[nodiscard]] std::span<const std::byte> blocks_of(std::uint64_t sequence) const noexcept;
    /// A sealed segment is not any more what it was when it was sealed.
    [[nodiscard]] bool is_damaged(std::uint64_t sequence) const noexcept;
    /// Makes a sealed segment one without frames that tells how many are lost. Returns how many it had.
    std::uint32_t empty(std::uint64_t sequence, std::uint64_t now) noexcept;

    /// Of segments from `sequence` on, which is not released yet, and of what is not sealed. By who is both producer
    /// and consumer at the time.
    struct Left {
        std::uint64_t frames = 0;    ///< that are in them
        std::uint64_t dropped = 0;   ///< that they tell, or were to tell
    };
    [[nodiscard]] Left left_from(std::uint64_t sequence) const noexcept;

    [[nodiscard]] const Geometry& geometry() const noexcept { return geometry_; }
    [[nodiscard]] std::uint32_t snap_length() const noexcept { return snap_length_; }
    /// Frames.
    [[nodiscard]] std::uint64_t appended() const noexcept { return appended_.load(std::memory_order_relaxed); }
    [[nodiscard]] std::uint64_t dropped() const noexcept { return dropped_.load(std::memory_order_relaxed); }

private:
    struct Record {
        std::uint32_t used = 0, frames = 0, crc = 0;
        std::uint64_t dropped = 0, sealed = 0;
    };

    [[nodiscard]] std::span<std::byte> slot(std::uint64_t sequence) const noexcept {
        return memory_.subspan(std::size_t{geometry_.slot_of(sequence)} * geometry_.slot_stride(),
                               geometry_.segment_size);
    }
    [[nodiscard]] bool has_room() const noexcept { return filling_ - released() < geometry_.slots; }
    void write_header(std::uint64_t sequence, const Record& record) noexcept;

    const Geometry geometry_;
    const std::uint64_t session_;
    const std::uint16_t application_tag_;
    const std::span<std::byte> memory_;
    const std::uint32_t snap_length_;
    std::vector<Record> records_;   ///< of slots: the producer's until sealed, then the consumer's

    // The producer's.
    alignas(64) std::uint64_t filling_ = 0;   ///< the segment that frames go into
    bool open_ = false;                       ///< there are frames in it
    std::uint64_t first_time_ = 0;            ///< of the first of them
    std::uint64_t dropped_told_ = 0;
    std::atomic<std::uint64_t> appended_{0}, dropped_{0};
    std::atomic<std::uint64_t> sealed_{0};
    // The consumer's.
    alignas(64) std::atomic<std::uint64_t> released_{0};
};

}  // namespace ovsdr::mirror
