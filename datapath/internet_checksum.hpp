// The Internet checksum's sum: 16-bit words of ones' complement.
//
// Sums and checksums are in network order as they lie in memory: a word is read and written by memcpy, and no byte is
// swapped. Bytes that begin at an odd place of what is summed up do not fit in.
//
// Threads: pure functions. Source: RFC 1071.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace ovsdr::soft {

/// Down to 16 bits.
[[nodiscard]] inline std::uint16_t folded(std::uint64_t total) noexcept {
    total = (total >> 32) + (total & 0xffffffff);
    total = (total >> 32) + (total & 0xffffffff);
    total = (total >> 16) + (total & 0xffff);
    total = (total >> 16) + (total & 0xffff);
    return static_cast<std::uint16_t>(total);
}

/// Folded, so that sums may be added. An odd last byte counts as a word's first.
[[nodiscard]] inline std::uint64_t internet_sum(const std::uint8_t* bytes, std::size_t size) noexcept {
    const auto word = [](const std::uint8_t* from) noexcept {
        std::uint64_t value;
        std::memcpy(&value, from, sizeof value);
        return value;
    };
    // Two carries that do not wait for each other.
    unsigned __int128 even = 0, odd = 0;
    for (; size >= 32; bytes += 32, size -= 32) {
        even += word(bytes);
        odd += word(bytes + 8);
        even += word(bytes + 16);
        odd += word(bytes + 24);
    }
    for (; size >= 8; bytes += 8, size -= 8) even += word(bytes);
    if (size > 0) {
        std::uint64_t last = 0;
        std::memcpy(&last, bytes, size);
        odd += last;
    }
    const unsigned __int128 total = even + odd;
    return std::uint64_t{folded(static_cast<std::uint64_t>(total >> 64))} + folded(static_cast<std::uint64_t>(total));
}

/// Of bytes whose checksum field is 0, beside `more` that has been summed up.
[[nodiscard]] inline std::uint16_t internet_checksum(const std::uint8_t* bytes, std::size_t size,
                                                     std::uint64_t more = 0) noexcept {
    return static_cast<std::uint16_t>(~folded(internet_sum(bytes, size) + more));
}

}  // namespace ovsdr::soft
