#include "tests/differential/judge/chance.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>

namespace ovsdr::differential {

PatternBytes ones(unsigned bits) {
    PatternBytes mask{};
    for (unsigned i = 0; i < bits; ++i) mask[15 - i / 8] |= static_cast<std::uint8_t>(1U << i % 8);
    return mask;
}

PatternBytes number(std::uint64_t value) {
    PatternBytes bytes{};
    for (unsigned i = 0; i < 8; ++i) bytes[15 - i] = static_cast<std::uint8_t>(value >> 8 * i);
    return bytes;
}

PatternBytes random_bytes(Chance& chance) {
    PatternBytes bytes;
    for (std::size_t at = 0; at < bytes.size(); at += sizeof(std::uint64_t)) {
        const std::uint64_t some = chance();
        std::memcpy(bytes.data() + at, &some, sizeof some);
    }
    return bytes;
}

PatternBytes both(const PatternBytes& a, const PatternBytes& b) {
    PatternBytes result;
    for (std::size_t i = 0; i < a.size(); ++i) result[i] = a[i] & b[i];
    return result;
}

PatternBytes filled(Chance& chance, const PatternBytes& value, const PatternBytes& mask) {
    PatternBytes result = random_bytes(chance);
    for (std::size_t i = 0; i < result.size(); ++i) {
        result[i] = static_cast<std::uint8_t>((result[i] & ~mask[i]) | (value[i] & mask[i]));
    }
    return result;
}

PatternBytes part_of(Chance& chance, unsigned bits) {
    const PatternBytes whole = ones(bits);
    if (happens(chance, 60)) {
        const PatternBytes low = ones(below(chance, bits));
        PatternBytes prefix = whole;
        for (std::size_t i = 0; i < prefix.size(); ++i) prefix[i] &= static_cast<std::uint8_t>(~low[i]);
        return prefix;
    }
    const PatternBytes some = both(whole, random_bytes(chance));
    return some == PatternBytes{} ? whole : some;
}

std::string hex(const Pattern& pattern, unsigned bits) {
    const auto value_of = [](const PatternBytes& bytes) {
        std::uint64_t value = 0;
        for (unsigned i = 8; i < 16; ++i) value = value << 8 | bytes[i];
        return value;
    };
    const bool whole = pattern.mask == ones(bits);
    return whole ? fmt::format("{:#x}", value_of(pattern.value))
                 : fmt::format("{:#x}/{:#x}", value_of(pattern.value), value_of(pattern.mask));
}

std::string mac(const PatternBytes& bytes) {
    return fmt::format("{:02x}", fmt::join(bytes.begin() + 10, bytes.end(), ":"));
}

std::string ipv4_address(const PatternBytes& bytes) {
    return fmt::format("{}.{}.{}.{}", bytes[12], bytes[13], bytes[14], bytes[15]);
}

std::string ipv6_address(const PatternBytes& bytes) {
    std::string text;
    for (unsigned i = 0; i < 16; i += 2) text += fmt::format("{}{:x}", i == 0 ? "" : ":", bytes[i] << 8 | bytes[i + 1]);
    return text;
}

}  // namespace ovsdr::differential
