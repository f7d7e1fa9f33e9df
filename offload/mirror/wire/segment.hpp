// Segments: what is sent at once, and acknowledged at once.
//
// Model. A session is a row of segments, numbered from 0. Each has the geometry's size in memory at both ends and lies
// in slot `sequence % slots` there; so many blocks of it go over the wire as are used, the last one filled up with
// zeros. It begins with a header, behind which stand whole pcapng blocks: enhanced packets, whose interfaces the
// handshake describes.
//
// Block n of segment s is the session's block s * blocks() + n, whether or not the blocks before it were used: the
// first reference tag follows from the sequence number alone.
//
// The header names what T10-DIF's tags cannot: CRC signatures carry none, and no guard is made before the NIC reads the
// ring. `payload_crc` is made when a frame is written into the ring and goes with it into the file.
//
// Layout, 64 bytes, least significant byte first:
//
//   0 magic "DRMS"   4 version   6 header size   8 session   16 sequence   24 first reference tag   28 used bytes
//   32 frames lost since the segment before was sealed   40 time of sealing, ns since 1970
//   48 frames   52 CRC-32C of the payload   56 application tag   58 signature   60 CRC-32C of bytes 0 to 59
//
// The signature is its block size in the lower 13 bits and its type in the upper 3.
//
// Threads: values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "offload/mirror/wire/signature.hpp"

namespace ovsdr::mirror {

inline constexpr std::size_t header_size = 64;

/// What both ends' rings have in common.
struct Geometry {
    std::uint32_t segment_size;   ///< bytes without fields: a multiple of the signature's block size
    std::uint16_t slots;
    Signature signature;

    [[nodiscard]] bool operator==(const Geometry&) const noexcept = default;

    static constexpr std::uint32_t smallest_segment = 4096, largest_segment = 4 << 20;
    static constexpr std::uint16_t fewest_slots = 2, most_slots = 1024;
    static constexpr std::uint64_t largest_ring = 1ull << 30;

    /// The segment size of a ring that names none: with its fields a segment takes sixteen packets of the largest path
    /// MTU, 4096 bytes. A segment of 64 KiB would take a seventeenth for the rest of its fields.
    [[nodiscard]] static std::uint32_t usual_segment(const Signature& signature) noexcept {
        constexpr std::uint32_t on_wire = 16 * 4096;
        return on_wire / (signature.block_size + signature.field_size()) * signature.block_size;
    }

    /// Why no ring can have it; empty where one can.
    [[nodiscard]] std::string fault() const;
    [[nodiscard]] std::uint32_t blocks() const noexcept { return segment_size / signature.block_size; }
    /// Bytes of a ring's memory, and from one slot to the next. Slots begin with a page, so that a packet of 4096 bytes
    /// lies in one: in two it takes a tenth longer.
    [[nodiscard]] std::uint32_t slot_stride() const noexcept { return (segment_size + 4095) / 4096 * 4096; }
    [[nodiscard]] std::uint64_t ring_size() const noexcept { return std::uint64_t{slots} * slot_stride(); }
    [[nodiscard]] std::uint32_t first_reference(std::uint64_t sequence) const noexcept {
        return static_cast<std::uint32_t>(sequence * blocks());
    }
    [[nodiscard]] std::uint16_t slot_of(std::uint64_t sequence) const noexcept {
        return static_cast<std::uint16_t>(sequence % slots);
    }
};

struct SegmentHeader {
    std::uint64_t session;
    std::uint64_t sequence;
    std::uint32_t first_reference;
    std::uint32_t used;           ///< bytes, this header included
    std::uint64_t dropped;        ///< frames lost since the segment before was sealed: they found no room
    std::uint64_t sealed;         ///< nanoseconds since 1970
    std::uint32_t frames;
    std::uint32_t payload_crc;    ///< CRC-32C of the bytes from header_size to `used`
    std::uint16_t application_tag;
    Signature signature;

    [[nodiscard]] bool operator==(const SegmentHeader&) const noexcept = default;
};

enum class HeaderFault : std::uint8_t { none, size, magic, version, crc, contents };
[[nodiscard]] const char* text_of(HeaderFault fault) noexcept;

void encode(const SegmentHeader& header, std::span<std::byte, header_size> to) noexcept;

struct DecodedHeader {
    HeaderFault fault;
    SegmentHeader header;   ///< if there is no fault
};
/// Looks at the first header_size bytes and at nothing else. `contents`: a signature that is none, or `used` smaller
/// than the header.
[[nodiscard]] DecodedHeader decode_header(std::span<const std::byte> from) noexcept;

}  // namespace ovsdr::mirror
