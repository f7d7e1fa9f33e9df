// Signatures computed bit by bit: an oracle that shares nothing with datapath/signature but the words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "datapath/signature/field.hpp"

namespace ovsdr::soft::reference {

inline std::uint64_t reflect(std::uint64_t value, unsigned width) {
    std::uint64_t reflected = 0;
    for (unsigned i = 0; i < width; ++i) reflected |= (value >> i & 1) << (width - 1 - i);
    return reflected;
}

/// The CRC catalogue's model: one bit at a time, most significant first.
inline std::uint64_t crc(unsigned width, std::uint64_t polynomial, std::uint64_t seed, bool reflected, bool complement,
                         std::span<const std::byte> bytes) {
    const std::uint64_t mask = width == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << width) - 1;
    std::uint64_t value = seed & mask;  // all ones or zero: the same both ways round
    for (const std::byte byte : bytes) {
        for (unsigned i = 0; i < 8; ++i) {
            const std::uint64_t in = std::to_integer<unsigned>(byte) >> (reflected ? i : 7 - i) & 1;
            const std::uint64_t top = value >> (width - 1) & 1;
            value = value << 1 & mask;
            if (top ^ in) value ^= polynomial;
        }
    }
    if (reflected) value = reflect(value, width);
    return complement ? ~value & mask : value;
}

/// RFC 1071, word by word.
inline std::uint64_t ip_checksum(std::uint16_t seed, std::span<const std::byte> bytes) {
    std::uint32_t sum = seed;
    for (std::size_t i = 0; i < bytes.size(); i += 2) {
        std::uint32_t word = std::to_integer<std::uint32_t>(bytes[i]) << 8;
        if (i + 1 < bytes.size()) word |= std::to_integer<std::uint32_t>(bytes[i + 1]);
        sum += word;
        if (sum > 0xFFFF) sum -= 0xFFFF;
    }
    return ~sum & 0xFFFF;
}

/// A guard's bits.
inline std::uint64_t ones_of(signature::GuardType type) {
    using signature::GuardType;
    if (type == GuardType::crc64_xp10) return ~std::uint64_t{0};
    return type == GuardType::crc32 || type == GuardType::crc32c ? 0xFFFFFFFF : 0xFFFF;
}

inline std::uint64_t guard(signature::GuardType type, std::uint64_t seed, std::span<const std::byte> bytes) {
    using signature::GuardType;
    switch (type) {
        case GuardType::t10_crc:
            return crc(16, 0x8BB7, seed, false, false, bytes);
        case GuardType::ip_checksum:
            return ip_checksum(static_cast<std::uint16_t>(seed), bytes);
        case GuardType::crc32:
            return crc(32, 0x04C11DB7, seed, true, true, bytes);
        case GuardType::crc32c:
            return crc(32, 0x1EDC6F41, seed, true, true, bytes);
        case GuardType::crc64_xp10:
            return crc(64, 0xAD93D23594C93659, seed, true, true, bytes);
    }
    return 0;
}

/// The bytes of block `number`'s field, written out by hand.
inline std::vector<std::byte> field(const signature::Domain& domain, std::uint64_t number,
                                    std::span<const std::byte> block) {
    std::vector<std::byte> bytes;
    const std::uint64_t value = guard(domain.guard, domain.seed, block);
    const auto push = [&bytes](std::uint64_t byte) { bytes.push_back(static_cast<std::byte>(byte & 0xFF)); };
    if (domain.t10dif) {
        const std::uint64_t tag = domain.reference_tag + (domain.increment_reference_tag ? number : 0);
        push(value >> 8), push(value);
        push(domain.application_tag >> 8), push(domain.application_tag);
        push(tag >> 24), push(tag >> 16), push(tag >> 8), push(tag);
    } else {
        const unsigned size = domain.guard == signature::GuardType::crc64_xp10 ? 8 : 4;
        for (unsigned i = 0; i < size; ++i) push(value >> (8 * i));
    }
    return bytes;
}

/// Raw data as it stands in a domain; a last block that is not whole has no field.
inline std::vector<std::byte> framed(const signature::Domain& domain, std::span<const std::byte> raw) {
    if (domain.block_size == 0) return {raw.begin(), raw.end()};
    std::vector<std::byte> out;
    for (std::size_t at = 0, number = 0; at < raw.size(); at += domain.block_size, ++number) {
        const std::size_t size = std::min<std::size_t>(domain.block_size, raw.size() - at);
        const auto block = raw.subspan(at, size);
        out.insert(out.end(), block.begin(), block.end());
        if (size < domain.block_size) break;
        const auto bytes = field(domain, number, block);
        out.insert(out.end(), bytes.begin(), bytes.end());
    }
    return out;
}

}  // namespace ovsdr::soft::reference
