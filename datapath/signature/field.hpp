// Signature fields: what stands behind each block of a domain, and in which bytes.
//
// Model. A Field is the field's content as one 64-bit word, the way the device keeps it (the transient signature of a
// PSV): T10-DIF guard << 48 | application tag << 32 | reference tag; CRC32 and CRC32C in the upper half; CRC64 all of
// it. Bit k of a byte mask (check_mask, copy_mask) covers byte k of the word, byte 0 the least significant: this is the
// table of mlx5dv_wr_set_mkey_sig_block(3).
//
// Bytes. T10-DIF fields are big-endian (SBC-3). CRCs stand least significant byte first, as their bits leave the
// register and as iSCSI and NVMe/TCP carry digests: SPDK's accel_mlx5 reads the CRC32C that ConnectX wrote as a native
// word of a little-endian machine without swapping it. No public source shows the order of CRC32 and CRC64; they are
// taken to come out of the same register.
//
// Source: mlx5dv_wr_set_mkey_sig_block(3), rdma-core providers/mlx5 (SET_PSV's transient signature), T10 SBC-3.
#pragma once

#include <endian.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include "datapath/signature/guard.hpp"

namespace ovsdr::soft::signature {

using Field = std::uint64_t;

/// When a block's field is not checked at all.
enum class Escape : std::uint8_t {
    never,
    application_tag,                ///< application tag 0xFFFF
    application_and_reference_tag,  ///< and reference tag 0xFFFFFFFF
};

/// One domain of an MKEY. block_size 0: no signature.
struct Domain {
    std::uint32_t block_size = 0;  ///< bytes of data in front of each field
    bool t10dif = false;
    GuardType guard = GuardType::t10_crc;
    std::uint64_t seed = 0;
    std::uint16_t application_tag = 0;
    std::uint32_t reference_tag = 0;  ///< of block 0
    bool increment_reference_tag = false;
    Escape escape = Escape::never;

    [[nodiscard]] bool present() const noexcept { return block_size != 0; }
    /// Of a domain that is present, bytes.
    [[nodiscard]] std::uint32_t field_size() const noexcept {
        return t10dif || guard == GuardType::crc64_xp10 ? 8 : 4;
    }
    /// Same block size and type of field; what copy_mask needs.
    [[nodiscard]] bool same_structure(const Domain& other) const noexcept {
        return present() && block_size == other.block_size && t10dif == other.t10dif &&
               (t10dif || guard == other.guard);
    }

    /// Where byte `raw` of the data is when fields stand between; a field belongs to the block before it.
    [[nodiscard]] std::uint64_t framed(std::uint64_t raw) const noexcept {
        return present() ? raw + raw / block_size * field_size() : raw;
    }
    /// Bytes of data in the first `framed` bytes.
    [[nodiscard]] std::uint64_t raw(std::uint64_t framed) const noexcept;

    [[nodiscard]] Field field(std::uint64_t block, std::uint64_t guard_value) const noexcept;
    /// Encodes into field_size() bytes, and back.
    void store(Field field, std::span<std::byte> to) const noexcept;
    [[nodiscard]] Field load(std::span<const std::byte> from) const noexcept;
};

inline Field Domain::field(std::uint64_t block, std::uint64_t guard_value) const noexcept {
    if (t10dif) {
        const auto tag = static_cast<std::uint32_t>(reference_tag + (increment_reference_tag ? block : 0));
        return guard_value << 48 | std::uint64_t{application_tag} << 32 | tag;
    }
    return guard == GuardType::crc64_xp10 ? guard_value : guard_value << 32;
}

inline void Domain::store(Field field, std::span<std::byte> to) const noexcept {
    if (t10dif) {
        const std::uint64_t bytes = htobe64(field);
        std::memcpy(to.data(), &bytes, sizeof bytes);
    } else if (field_size() == 8) {
        const std::uint64_t bytes = htole64(field);
        std::memcpy(to.data(), &bytes, sizeof bytes);
    } else {
        const std::uint32_t bytes = htole32(static_cast<std::uint32_t>(field >> 32));
        std::memcpy(to.data(), &bytes, sizeof bytes);
    }
}

inline Field Domain::load(std::span<const std::byte> from) const noexcept {
    if (field_size() == 4) {
        std::uint32_t bytes;
        std::memcpy(&bytes, from.data(), sizeof bytes);
        return std::uint64_t{le32toh(bytes)} << 32;
    }
    std::uint64_t bytes;
    std::memcpy(&bytes, from.data(), sizeof bytes);
    return t10dif ? be64toh(bytes) : le64toh(bytes);
}

/// What an MKEY does between its domains.
struct Attributes {
    Domain memory, wire;
    std::uint8_t check_mask = 0;
    std::uint8_t copy_mask = 0;  ///< 0 unless the domains have the same structure
};

enum class ErrorType : std::uint8_t { none, guard, application_tag, reference_tag };

/// The first wrong part of a block, in the order that T10 gives: guard, application tag, reference tag.
struct Error {
    ErrorType type = ErrorType::none;
    std::uint64_t actual = 0;    ///< calculated from the data, or as configured
    std::uint64_t expected = 0;  ///< what the field has
    std::uint64_t offset = 0;    ///< of the block in its domain, fields included
};

/// Compares what a block's field has with what it should have.
[[nodiscard]] Error check(const Domain& domain, std::uint64_t block, Field found, Field calculated,
                          std::uint8_t check_mask) noexcept;

/// The bytes of a word that a byte mask names.
[[nodiscard]] constexpr std::uint64_t bits_of(std::uint8_t byte_mask) noexcept {
    // Byte k has the mask's bit k; 0x7F more carry it to the top of the byte, and nothing beyond.
    const std::uint64_t spread = byte_mask * 0x0101010101010101u & 0x8040201008040201u;
    return ((spread + 0x7F7F7F7F7F7F7F7Fu) >> 7 & 0x0101010101010101u) * 0xFF;
}

/// The masks' parts of a T10-DIF field.
inline constexpr std::uint8_t guard_bytes = 0xC0;
inline constexpr std::uint8_t application_tag_bytes = 0x30;
inline constexpr std::uint8_t reference_tag_bytes = 0x0F;

}  // namespace ovsdr::soft::signature
