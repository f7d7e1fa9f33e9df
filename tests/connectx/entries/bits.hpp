// Bit ranges of device structures: bit 0 is the most significant bit of the first byte, numbers are big endian.
//
// Threads: pure functions. Source: the tables of the PRM.
#pragma once

#include <cstdint>

namespace ovsdr::connectx::entries {

/// At most 32 bits, within one aligned 32-bit word.
struct Bits {
    std::uint16_t offset;
    std::uint8_t length;
};

[[nodiscard]] constexpr std::uint32_t low_ones(unsigned length) noexcept {
    return length >= 32 ? UINT32_MAX : (std::uint32_t{1} << length) - 1;
}

[[nodiscard]] constexpr std::uint16_t load16(const std::uint8_t* bytes) noexcept {
    return static_cast<std::uint16_t>(bytes[0] << 8 | bytes[1]);
}

[[nodiscard]] constexpr std::uint32_t load32(const std::uint8_t* bytes) noexcept {
    return static_cast<std::uint32_t>(load16(bytes)) << 16 | load16(bytes + 2);
}

[[nodiscard]] constexpr std::uint64_t load64(const std::uint8_t* bytes) noexcept {
    return static_cast<std::uint64_t>(load32(bytes)) << 32 | load32(bytes + 4);
}

constexpr void store16(std::uint8_t* bytes, std::uint16_t value) noexcept {
    bytes[0] = static_cast<std::uint8_t>(value >> 8);
    bytes[1] = static_cast<std::uint8_t>(value);
}

constexpr void store32(std::uint8_t* bytes, std::uint32_t value) noexcept {
    store16(bytes, static_cast<std::uint16_t>(value >> 16));
    store16(bytes + 2, static_cast<std::uint16_t>(value));
}

[[nodiscard]] constexpr std::uint32_t get(const std::uint8_t* structure, Bits bits) noexcept {
    const std::uint32_t word = load32(structure + bits.offset / 32 * 4);
    return (word >> (32 - bits.length - bits.offset % 32)) & low_ones(bits.length);
}

/// Bits of `value` above the range are left out.
constexpr void set(std::uint8_t* structure, Bits bits, std::uint32_t value) noexcept {
    std::uint8_t* const place = structure + bits.offset / 32 * 4;
    const unsigned shift = 32U - bits.length - bits.offset % 32U;
    const std::uint32_t mask = low_ones(bits.length) << shift;
    store32(place, (load32(place) & ~mask) | (value << shift & mask));
}

}  // namespace ovsdr::connectx::entries
