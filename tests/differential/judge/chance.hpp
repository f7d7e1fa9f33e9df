// Chance, and bit patterns: what megaflows and packets are drawn with.
//
// Threads: pure; one seed, one sequence.
#pragma once

#include <array>
#include <cstdint>
#include <random>
#include <string>

namespace ovsdr::differential {

using Chance = std::mt19937_64;
[[nodiscard]] inline std::uint32_t below(Chance& chance, std::uint32_t limit) {
    return static_cast<std::uint32_t>(chance() % limit);
}
[[nodiscard]] inline bool happens(Chance& chance, unsigned percent) { return below(chance, 100) < percent; }

/// Big endian, right aligned: an IPv4 address is the last four bytes.
using PatternBytes = std::array<std::uint8_t, 16>;
struct Pattern {
    PatternBytes value{}, mask{};
    friend bool operator==(const Pattern&, const Pattern&) = default;
};

/// The lowest `bits`.
[[nodiscard]] PatternBytes ones(unsigned bits);
[[nodiscard]] PatternBytes number(std::uint64_t value);
[[nodiscard]] PatternBytes random_bytes(Chance& chance);
/// The bits that both have.
[[nodiscard]] PatternBytes both(const PatternBytes& a, const PatternBytes& b);
/// The value within the mask, chance elsewhere.
[[nodiscard]] PatternBytes filled(Chance& chance, const PatternBytes& value, const PatternBytes& mask);
/// A prefix of `bits`, or any of them; not none.
[[nodiscard]] PatternBytes part_of(Chance& chance, unsigned bits);

/// "0x12", or "0x12/0x3f" where the mask is not all of `bits`; 64 bits at most.
[[nodiscard]] std::string hex(const Pattern& pattern, unsigned bits);
[[nodiscard]] std::string mac(const PatternBytes& bytes);
[[nodiscard]] std::string ipv4_address(const PatternBytes& bytes);
[[nodiscard]] std::string ipv6_address(const PatternBytes& bytes);

}  // namespace ovsdr::differential
