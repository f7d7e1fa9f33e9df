// Reading and writing fields of device structures: big-endian bit ranges, as the PRM and rdma-core's tables give them.
//
// Words: a Field is (bit offset, bits) where bit 0 is the most significant bit of the first byte of the structure. A
// field of up to 32 bits lies within one 32-bit word; one of 64 bits is aligned to 64.
//
// Threads: pure functions.
#pragma once

#include <endian.h>

#include <cstdint>
#include <cstring>

namespace ovsdr::dr::prm {

struct Field {
    std::uint16_t bit_offset;
    std::uint8_t bits;

    friend bool operator==(const Field&, const Field&) = default;
};

/// At the head of every command's output, and two of its values.
inline constexpr Field status{0, 8};
inline constexpr std::uint32_t bad_parameter = 0x3, bad_resource = 0x5;

[[nodiscard]] constexpr std::uint32_t ones(unsigned bits) noexcept {
    return bits >= 32 ? 0xFFFFFFFFU : (std::uint32_t{1} << bits) - 1;
}

/// Value of `field`, host order. `structure` holds at least the 32-bit word that the field lies in.
[[nodiscard]] inline std::uint32_t get(const void* structure, Field field) noexcept {
    std::uint32_t word;
    std::memcpy(&word, static_cast<const std::uint8_t*>(structure) + field.bit_offset / 32 * 4, sizeof word);
    return (be32toh(word) >> (32 - field.bits - field.bit_offset % 32)) & ones(field.bits);
}

/// Bits of `value` above the field's width are left out.
inline void set(void* structure, Field field, std::uint32_t value) noexcept {
    std::uint8_t* place = static_cast<std::uint8_t*>(structure) + field.bit_offset / 32 * 4;
    const unsigned shift = 32 - field.bits - field.bit_offset % 32;
    const std::uint32_t mask = ones(field.bits) << shift;
    std::uint32_t word;
    std::memcpy(&word, place, sizeof word);
    word = htobe32((be32toh(word) & ~mask) | ((value << shift) & mask));
    std::memcpy(place, &word, sizeof word);
}

[[nodiscard]] inline std::uint64_t get64(const void* structure, unsigned byte_offset) noexcept {
    std::uint64_t word;
    std::memcpy(&word, static_cast<const std::uint8_t*>(structure) + byte_offset, sizeof word);
    return be64toh(word);
}

}  // namespace ovsdr::dr::prm
