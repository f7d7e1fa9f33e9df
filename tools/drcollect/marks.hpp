// What a collector's file has beside packets: blocks that say which segments it is made of.
//
// Model. A file is pcapng. Behind the section header and the interfaces stands a beginning: session and number of the
// first segment that may follow. Then, for each segment, its payload (enhanced packets), and behind it the segment's
// mark: its header as the switch sealed it, and its blocks' fields as they came over the wire, where they are kept.
// A segment without its mark was cut off. Interface statistics end the file.
//
// Both are blocks of type 0x80445243, from the range that the format leaves for local use; readers pass over them.
//
//   beginning: type, size, "BEGN", session, first segment, segment size, slots, signature (type, 0, block size),
//              application tag, CRC-32C of what is behind the size, size
//   segment:   type, size, "SEGM", size of the fields, header (64 bytes), fields, padding, size
//
// Threads: any. Source: draft-ietf-opsawg-pcapng, "General Block Structure".
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "offload/mirror/wire/segment.hpp"

namespace ovsdr::drcollect {

inline constexpr std::uint32_t mark_block = 0x80445243;

struct Beginning {
    std::uint64_t session;
    std::uint64_t first;   ///< segment
    std::uint16_t application_tag;
    mirror::Geometry geometry;

    [[nodiscard]] bool operator==(const Beginning&) const noexcept = default;
};

[[nodiscard]] std::vector<std::byte> encode(const Beginning& beginning);
/// `header`: the segment's first bytes. `fields`: may be empty.
[[nodiscard]] std::vector<std::byte> encode_mark(std::span<const std::byte, mirror::header_size> header,
                                                 std::span<const std::byte> fields);
/// Of a mark with fields of `fields_size` bytes, with all that belongs to its block.
[[nodiscard]] constexpr std::uint64_t size_of_mark(std::uint32_t fields_size) noexcept {
    return ((16 + mirror::header_size + std::uint64_t{fields_size} + 3) & ~std::uint64_t{3}) + 4;
}

/// What a local block is.
struct Mark {
    enum class Kind : std::uint8_t { none, beginning, segment } kind = Kind::none;
    Beginning beginning{};
    std::span<const std::byte> header, fields;   ///< of a segment: in the block that was read
};
/// `block`: a whole block of type mark_block, with its type and both sizes. Kind::none: damaged, or nothing of ours.
/// The header of a segment is not looked at.
[[nodiscard]] Mark decode_mark(std::span<const std::byte> block);

}  // namespace ovsdr::drcollect
