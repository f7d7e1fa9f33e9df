#include "offload/mirror/segment_ring.hpp"

#include <algorithm>
#include <cstring>

#include "offload/mirror/wire/guard.hpp"

namespace ovsdr::mirror {
namespace {

/// The longest frame whose block fits behind the header.
std::uint32_t longest_frame(std::uint32_t segment_size) noexcept {
    const std::size_t overhead = pcapng::write({}, pcapng::EnhancedPacket{});
    return static_cast<std::uint32_t>((segment_size - header_size - overhead) & ~std::size_t{3});
}

/// One writer; others only look.
void count(std::atomic<std::uint64_t>& counter, std::uint64_t more = 1) noexcept {
    counter.store(counter.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
}

}  // namespace

SegmentRing::SegmentRing(const Geometry& geometry, std::uint64_t session, std::uint16_t application_tag,
                         std::span<std::byte> memory, std::uint32_t snap_length)
    : geometry_(geometry),
      session_(session),
      application_tag_(application_tag),
      memory_(memory),
      snap_length_(std::min(snap_length, longest_frame(geometry.segment_size))),
      records_(geometry.slots) {}

bool SegmentRing::drop(std::uint64_t frames) noexcept {
    count(dropped_, frames);
    return false;
}

bool SegmentRing::append(pcapng::EnhancedPacket packet) noexcept {
    packet.bytes = packet.bytes.first(std::min<std::size_t>(packet.bytes.size(), snap_length_));
    const std::size_t size = pcapng::write({}, packet);
    for (;;) {
        if (!has_room()) return drop();
        Record& record = records_[geometry_.slot_of(filling_)];
        if (!open_) {
            record = {.used = header_size};
            first_time_ = packet.time;
            open_ = true;
        }
        const auto room = slot(filling_).subspan(record.used);
        if (size <= room.size()) {
            pcapng::write(room, packet);
            record.crc = crc32c(record.crc, room.first(size));
            record.used += static_cast<std::uint32_t>(size);
            ++record.frames;
            count(appended_);
            return true;
        }
        seal(packet.time);
    }
}

bool SegmentRing::seal_if_older(std::uint64_t then, std::uint64_t now) noexcept {
    if (!has_room()) return false;
    // A frame of the future: the clock was set back, and who knows how old it is.
    if (open_ && first_time_ >= then && first_time_ <= now) return false;
    return seal(now);
}

bool SegmentRing::seal(std::uint64_t now) noexcept {
    if (!has_room()) return false;
    Record& record = records_[geometry_.slot_of(filling_)];
    const std::uint64_t dropped = this->dropped() - dropped_told_;
    if (!open_) {
        if (dropped == 0) return false;
        record = {.used = header_size};   // nothing but the drops
    }
    record.dropped = dropped;
    record.sealed = now;
    dropped_told_ += dropped;
    write_header(filling_, record);
    ++filling_;
    open_ = false;
    sealed_.store(filling_, std::memory_order_release);
    return true;
}

void SegmentRing::write_header(std::uint64_t sequence, const Record& record) noexcept {
    const auto bytes = slot(sequence);
    encode({.session = session_,
            .sequence = sequence,
            .first_reference = geometry_.first_reference(sequence),
            .used = record.used,
            .dropped = record.dropped,
            .sealed = record.sealed,
            .frames = record.frames,
            .payload_crc = record.crc,
            .application_tag = application_tag_,
            .signature = geometry_.signature},
           bytes.first<header_size>());
    const std::size_t end = std::size_t{geometry_.signature.blocks_of(record.used)} * geometry_.signature.block_size;
    std::memset(bytes.data() + record.used, 0, end - record.used);
}

std::span<const std::byte> SegmentRing::blocks_of(std::uint64_t sequence) const noexcept {
    const std::uint32_t used = records_[geometry_.slot_of(sequence)].used;
    return slot(sequence).first(std::size_t{geometry_.signature.blocks_of(used)} * geometry_.signature.block_size);
}

bool SegmentRing::is_damaged(std::uint64_t sequence) const noexcept {
    const Record& record = records_[geometry_.slot_of(sequence)];
    const auto bytes = slot(sequence);
    const DecodedHeader decoded = decode_header(bytes);
    return decoded.fault != HeaderFault::none || decoded.header.sequence != sequence ||
           decoded.header.used != record.used || decoded.header.payload_crc != record.crc ||
           crc32c(0, bytes.first(record.used).subspan(header_size)) != record.crc;
}

SegmentRing::Left SegmentRing::left_from(std::uint64_t sequence) const noexcept {
    Left left{.frames = 0, .dropped = dropped() - dropped_told_};
    for (; sequence < sealed(); ++sequence) {
        const Record& record = records_[geometry_.slot_of(sequence)];
        left.frames += record.frames;
        left.dropped += record.dropped;
    }
    if (open_) left.frames += records_[geometry_.slot_of(filling_)].frames;
    return left;
}

std::uint32_t SegmentRing::empty(std::uint64_t sequence, std::uint64_t now) noexcept {
    Record& record = records_[geometry_.slot_of(sequence)];
    const std::uint32_t frames = record.frames;
    record = {.used = header_size, .frames = 0, .crc = 0, .dropped = record.dropped + record.frames, .sealed = now};
    write_header(sequence, record);
    return frames;
}

}  // namespace ovsdr::mirror
