// Bit fields of device structures: big endian, bit 0 is the most significant bit of the first byte.
//
// Names of fields come from layouts.hpp. A field of a structure inside another is outer / inner:
// get(command, create_qp_in::qpc / qpc::cqn_snd).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>

namespace ovsdr::connectx {

struct Field {
    std::uint32_t offset, width;   ///< bits

    /// `inner` of the structure that stands in this field.
    [[nodiscard]] constexpr Field operator/(Field inner) const { return {offset + inner.offset, inner.width}; }
    /// Where the field begins, in bytes. For fields that begin on one.
    [[nodiscard]] constexpr std::size_t byte() const { return offset / 8; }
};

/// A command ends before a field that it must have.
struct InputTooShort : std::out_of_range {
    using std::out_of_range::out_of_range;
};
/// The caller's buffer ends before a field that belongs into the answer.
struct OutputTooShort : std::out_of_range {
    using std::out_of_range::out_of_range;
};

/// At most 64 bits. Throws InputTooShort.
[[nodiscard]] inline std::uint64_t get(std::span<const std::uint8_t> structure, Field field) {
    if (field.offset + field.width > structure.size() * 8) throw InputTooShort("a field is behind the end");
    std::uint64_t value = 0;
    for (std::uint32_t bit = field.offset; bit < field.offset + field.width; ++bit) {
        value = value << 1 | (structure[bit / 8] >> (7 - bit % 8) & 1U);
    }
    return value;
}

/// The low bits of `value`; what is around them stays. Throws OutputTooShort.
inline void set(std::span<std::uint8_t> structure, Field field, std::uint64_t value) {
    if (field.offset + field.width > structure.size() * 8) throw OutputTooShort("a field is behind the end");
    for (std::uint32_t i = 0; i < field.width; ++i) {
        const std::uint32_t bit = field.offset + i;
        const auto mask = static_cast<std::uint8_t>(0x80U >> bit % 8);
        const bool on = value >> (field.width - 1 - i) & 1U;
        structure[bit / 8] = static_cast<std::uint8_t>(on ? structure[bit / 8] | mask : structure[bit / 8] & ~mask);
    }
}

}   // namespace ovsdr::connectx
