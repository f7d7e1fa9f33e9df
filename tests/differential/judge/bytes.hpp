// Bytes of a frame, one behind another, and their Internet checksum.
//
// Threads: pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ovsdr::differential {

using Bytes = std::vector<std::uint8_t>;

inline void put16(Bytes& bytes, unsigned value) {
    bytes.push_back(static_cast<std::uint8_t>(value >> 8));
    bytes.push_back(static_cast<std::uint8_t>(value));
}

inline void put32(Bytes& bytes, std::uint32_t value) {
    put16(bytes, value >> 16);
    put16(bytes, value);
}

[[nodiscard]] inline std::uint32_t sum_of(std::span<const std::uint8_t> bytes) {
    std::uint32_t sum = 0;
    for (std::size_t i = 0; i < bytes.size(); ++i) sum += i % 2 == 0 ? bytes[i] * 256U : bytes[i];
    return sum;
}

/// `sum`: of all that it covers, with 0 where it goes.
inline void put_checksum(Bytes& bytes, std::size_t at, std::uint32_t sum) {
    while (sum >> 16 != 0) sum = (sum & 0xFFFF) + (sum >> 16);
    bytes[at] = static_cast<std::uint8_t>(~sum >> 8);
    bytes[at + 1] = static_cast<std::uint8_t>(~sum);
}

}  // namespace ovsdr::differential
