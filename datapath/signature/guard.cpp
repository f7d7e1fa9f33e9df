#include "datapath/signature/guard.hpp"

#include <bit>
#include <cstring>

namespace ovsdr::soft::signature {

namespace {

/// The ones' complement sum of native 16-bit words in 16 bits.
[[nodiscard]] std::uint16_t fold(std::uint64_t sum) {
    while (sum >> 16) sum = (sum & 0xFFFF) + (sum >> 16);
    return static_cast<std::uint16_t>(sum);
}

/// Sum of the native 16-bit words of an even number of bytes; at most 2^30 of them.
[[nodiscard]] std::uint64_t sum_words(const std::byte* next, std::size_t size) {
    std::uint64_t sum = 0;
    for (; size >= 4; size -= 4, next += 4) {
        std::uint32_t words;
        std::memcpy(&words, next, sizeof words);
        sum += words;
    }
    if (size) {
        std::uint16_t word;
        std::memcpy(&word, next, sizeof word);
        sum += word;
    }
    return sum;
}

/// A byte as the first or second of a big-endian word, seen as a native word.
[[nodiscard]] std::uint64_t half_word(std::byte byte, bool second) {
    const bool low = (std::endian::native == std::endian::little) != second;
    return std::to_integer<std::uint64_t>(byte) << (low ? 0 : 8);
}

/// The bits of a type's register.
[[nodiscard]] std::uint64_t bits_of(GuardType type) {
    switch (type) {
        case GuardType::t10_crc:
        case GuardType::ip_checksum:
            return 0xFFFF;
        case GuardType::crc32:
        case GuardType::crc32c:
            return 0xFFFFFFFF;
        case GuardType::crc64_xp10:
            break;
    }
    return ~std::uint64_t{0};
}

}  // namespace

Guard::Guard(GuardType type, std::uint64_t seed) noexcept
    : register_(seed & bits_of(type)),
      complement_(type == GuardType::t10_crc ? 0 : bits_of(type)),
      crc_(wide_crc(type)),
      copying_(copying_crc(type)) {
    if (crc_ == nullptr) crc_ = narrow_crc(type);
}

void Guard::update_checksum(std::span<const std::byte> bytes) noexcept {
    if (bytes.empty()) return;
    std::uint64_t sum = register_;
    if (odd_) {
        sum += half_word(bytes.front(), true);
        bytes = bytes.subspan(1);
    }
    const std::size_t even = bytes.size() & ~std::size_t{1};
    sum += sum_words(bytes.data(), even);
    odd_ = even != bytes.size();
    if (odd_) sum += half_word(bytes.back(), false);
    register_ = fold(sum);
}

std::uint64_t Guard::checksum() const noexcept {
    auto sum = static_cast<std::uint16_t>(register_);
    if constexpr (std::endian::native == std::endian::little) sum = static_cast<std::uint16_t>(sum << 8 | sum >> 8);
    return static_cast<std::uint16_t>(~sum);
}

}  // namespace ovsdr::soft::signature
