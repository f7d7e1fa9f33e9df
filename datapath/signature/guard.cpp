#include "datapath/signature/guard.hpp"

#include <isa-l/crc.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "common/wide_registers.hpp"
#include "datapath/signature/crc64.hpp"

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

}  // namespace

Guard::Guard(GuardType type, std::uint64_t seed) noexcept : type_(type), register_(seed) {
    if (type == GuardType::crc32) register_ = ~seed & 0xFFFFFFFF;
    if (type == GuardType::t10_crc || type == GuardType::ip_checksum) register_ = seed & 0xFFFF;
}

void Guard::update(std::span<const std::byte> bytes) noexcept {
    if (bytes.empty()) return;
    const auto* const data = reinterpret_cast<const unsigned char*>(bytes.data());
    switch (type_) {
        case GuardType::t10_crc:
            register_ = crc16_t10dif(static_cast<std::uint16_t>(register_), data, bytes.size());
            leave_wide_registers();
            break;
        case GuardType::crc32:
            register_ = crc32_gzip_refl(static_cast<std::uint32_t>(register_), data, bytes.size());
            leave_wide_registers();
            break;
        case GuardType::crc32c:
            // ISA-L's prototype lacks the const.
            register_ = crc32_iscsi(const_cast<unsigned char*>(data), static_cast<int>(bytes.size()),
                                    static_cast<unsigned>(register_));
            leave_wide_registers();
            break;
        case GuardType::crc64_xp10:
            register_ = crc64_xp10(register_, bytes);
            break;
        case GuardType::ip_checksum: {
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
            break;
        }
    }
}

std::uint64_t Guard::value() const noexcept {
    switch (type_) {
        case GuardType::t10_crc:
        case GuardType::crc32:
            return register_;
        case GuardType::crc32c:
            return ~register_ & 0xFFFFFFFF;
        case GuardType::crc64_xp10:
            return ~register_;
        case GuardType::ip_checksum:
            break;
    }
    auto sum = static_cast<std::uint16_t>(register_);
    if constexpr (std::endian::native == std::endian::little) sum = static_cast<std::uint16_t>(sum << 8 | sum >> 8);
    return static_cast<std::uint16_t>(~sum);
}

}  // namespace ovsdr::soft::signature
