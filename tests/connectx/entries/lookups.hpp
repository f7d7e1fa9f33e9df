// Look-ups: which bytes the device composes of a packet, for comparing them with an entry's mask and tag and for
// hashing.
//
// The model. A look-up type is a number in an entry; formats 1 and 2 have 9 bits (an entry format's lowest bit and an
// index), format 0 has 8, and both RX and TX types there, which read the same headers. These are 16 bytes. A definer is
// 32 bytes: an object of the firmware, made of the number of a layout and a mask, which a match entry names by id.
//
// Rows say which field stands where; bits without a row are not known here. An entry that looks at such a bit, or has a
// type that is not in the table, stops the engine. So does one that looks at a field that is not known of this packet:
// what is inside a tunnel, of a packet in none.
//
// Threads: pure functions and constants. Source: PRM, steering entry tag layouts.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "tests/connectx/entries/bits.hpp"
#include "tests/connectx/entries/packet_headers.hpp"

namespace ovsdr::connectx::entries {

/// 32 bytes as four numbers, first byte most significant. Look-ups of 16 bytes have the first half.
struct Vector {
    std::array<std::uint64_t, 4> words{};

    /// `size`: 16 or 32.
    [[nodiscard]] static Vector load(const std::uint8_t* bytes, std::size_t size) noexcept {
        Vector vector;
        for (std::size_t i = 0; i < size / 8; ++i) vector.words[i] = load64(bytes + 8 * i);
        return vector;
    }
    [[nodiscard]] bool zero() const noexcept { return (words[0] | words[1] | words[2] | words[3]) == 0; }
    [[nodiscard]] Vector without(const Vector& mask) const noexcept {
        Vector rest;
        for (std::size_t i = 0; i < words.size(); ++i) rest.words[i] = words[i] & ~mask.words[i];
        return rest;
    }
    [[nodiscard]] Vector within(const Vector& mask) const noexcept {
        Vector part;
        for (std::size_t i = 0; i < words.size(); ++i) part.words[i] = words[i] & mask.words[i];
        return part;
    }
    void put(Bits bits, std::uint32_t value) noexcept {
        const std::uint64_t kept = value & low_ones(bits.length);
        words[bits.offset / 64] |= kept << (64 - bits.length - bits.offset % 64);
    }
    friend bool operator==(const Vector&, const Vector&) = default;
};

struct LookupRow {
    Bits bits;
    Field field;
    Layer layer = Layer::outer;
};

struct Lookup {
    std::uint16_t type;
    std::string_view name;
    std::span<const LookupRow> rows;
};

/// Of a steering format (0, 1, 2), in ascending order of types; in formats 1 and 2 the layouts of definers follow, with
/// `definer_layout` in their types.
[[nodiscard]] std::span<const Lookup> lookups_of(unsigned format) noexcept;
inline constexpr std::uint16_t definer_layout = 0x8000;

/// Position in lookups_of(); -1 for what is not there.
[[nodiscard]] int find_lookup(unsigned format, std::uint16_t type) noexcept;

[[nodiscard]] Vector compose(const Lookup& lookup, const PacketHeaders& headers) noexcept;
/// The bits of fields that are not known of this packet.
[[nodiscard]] Vector unknown_bits(const Lookup& lookup, const PacketHeaders& headers) noexcept;
/// The bits that compose() can set.
[[nodiscard]] Vector bits_of(const Lookup& lookup) noexcept;

/// The bytes that a byte mask stands for; its highest bit is the first byte.
[[nodiscard]] Vector bytes_of(std::uint16_t byte_mask) noexcept;

/// Index into a hash table of `length` entries (a power of two). `size`: 16 or 32 bytes of `masked`.
[[nodiscard]] std::uint32_t hash_index(const Vector& masked, std::size_t size, std::uint64_t length) noexcept;

}  // namespace ovsdr::connectx::entries
