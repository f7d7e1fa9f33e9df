// What stands behind each block of a protected segment, computed by this processor.
//
// The NICs at both ends make and check these fields; a file is checked later, by whoever has only the file. Therefore
// nothing of the soft NIC's signature engine is used here: the two agree, or a test fails.
//
//   t10dif_crc    CRC-16 of T10 SBC-3 (0x8BB7), seed 0, then application tag and reference tag; all big-endian
//   t10dif_csum   IP checksum (RFC 1071), seed 0, and the same tags
//   crc32         CRC-32 of FC-PH and IEEE 802.3, seed all ones, complemented, least significant byte first
//   crc32c        Castagnoli's, of RFC 3720, likewise
//   crc64         CRC-64 of Microsoft's XP10 format (catalogue: CRC-64/NVME), likewise
//
// Threads: any.
// Source: mlx5dv_wr_set_mkey_sig_block(3), T10 SBC-3.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "offload/mirror/wire/signature.hpp"

namespace ovsdr::mirror {

/// The guard of one block, as a plain number.
[[nodiscard]] std::uint64_t guard_of(SignatureType type, std::span<const std::byte> block) noexcept;

/// Writes the field behind `block` into `to`, which has signature.field_size() bytes.
void write_field(const Signature& signature, BlockTags tags, std::span<const std::byte> block,
                 std::span<std::byte> to) noexcept;

/// The first thing that is wrong with a block, in T10's order: guard, application tag, reference tag.
enum class BlockFault : std::uint8_t { none, guard, application_tag, reference_tag };
struct BlockCheck {
    BlockFault fault = BlockFault::none;
    std::uint64_t actual = 0;     ///< computed from the data, or as the session has it
    std::uint64_t expected = 0;   ///< what the field says
};
/// Words as mlx5dv_mkey_check(3) has them. `field` has signature.field_size() bytes.
[[nodiscard]] BlockCheck check_field(const Signature& signature, BlockTags tags, std::span<const std::byte> block,
                                     std::span<const std::byte> field) noexcept;

/// CRC-32C of bytes that follow others: `before` is what it was of those, 0 at the beginning.
[[nodiscard]] std::uint32_t crc32c(std::uint32_t before, std::span<const std::byte> bytes) noexcept;

}  // namespace ovsdr::mirror
