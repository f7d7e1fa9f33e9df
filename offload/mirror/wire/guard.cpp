#include "offload/mirror/wire/guard.hpp"

#include <isa-l/crc.h>

#include <array>
#include <bit>
#include <cstring>

#include "common/wide_registers.hpp"

namespace ovsdr::mirror {
namespace {

template <typename Crc>
Crc behind_isal(Crc crc) noexcept {
    leave_wide_registers();
    return crc;
}

// ISA-L takes bytes that it does not change without const.
unsigned char* isal(std::span<const std::byte> bytes) noexcept {
    return const_cast<unsigned char*>(reinterpret_cast<const unsigned char*>(bytes.data()));
}

/// Eight tables, so that eight bytes take one step. Debian's ISA-L has other CRC-64 polynomials only.
constexpr auto crc64_tables = [] {
    constexpr std::uint64_t reflected_polynomial = 0x9A6C9329AC4BC9B5;
    std::array<std::array<std::uint64_t, 256>, 8> tables{};
    for (std::uint64_t byte = 0; byte < 256; ++byte) {
        std::uint64_t crc = byte;
        for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? reflected_polynomial : 0);
        tables[0][byte] = crc;
    }
    for (std::size_t table = 1; table < 8; ++table) {
        for (std::size_t byte = 0; byte < 256; ++byte) {
            const std::uint64_t before = tables[table - 1][byte];
            tables[table][byte] = before >> 8 ^ tables[0][before & 0xFF];
        }
    }
    return tables;
}();

std::uint64_t crc64(std::span<const std::byte> bytes) noexcept {
    static_assert(std::endian::native == std::endian::little);
    std::uint64_t crc = ~std::uint64_t{0};
    for (; bytes.size() >= 8; bytes = bytes.subspan(8)) {
        std::uint64_t word;
        std::memcpy(&word, bytes.data(), sizeof word);
        word ^= crc;
        crc = 0;
        for (unsigned i = 0; i < 8; ++i) crc ^= crc64_tables[7 - i][word >> 8 * i & 0xFF];
    }
    for (const std::byte byte : bytes) {
        crc = crc >> 8 ^ crc64_tables[0][(crc ^ std::to_integer<std::uint64_t>(byte)) & 0xFF];
    }
    return ~crc;
}

/// All block sizes are even.
std::uint64_t ip_checksum(std::span<const std::byte> bytes) noexcept {
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i + 1 < bytes.size(); i += 2) {
        sum += std::to_integer<unsigned>(bytes[i]) << 8 | std::to_integer<unsigned>(bytes[i + 1]);
    }
    while (sum > 0xFFFF) sum = (sum & 0xFFFF) + (sum >> 16);
    return ~sum & 0xFFFF;
}

void store_big(std::uint64_t value, std::span<std::byte> to) noexcept {
    for (std::size_t i = 0; i < to.size(); ++i) to[i] = static_cast<std::byte>(value >> 8 * (to.size() - 1 - i));
}
std::uint64_t load_big(std::span<const std::byte> from) noexcept {
    std::uint64_t value = 0;
    for (const std::byte byte : from) value = value << 8 | std::to_integer<std::uint64_t>(byte);
    return value;
}
std::uint64_t load_little(std::span<const std::byte> from) noexcept {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < from.size(); ++i) value |= std::to_integer<std::uint64_t>(from[i]) << 8 * i;
    return value;
}

}  // namespace

std::uint32_t crc32c(std::uint32_t before, std::span<const std::byte> bytes) noexcept {
    return ~behind_isal(crc32_iscsi(isal(bytes), static_cast<int>(bytes.size()), ~before));
}

std::uint64_t guard_of(SignatureType type, std::span<const std::byte> block) noexcept {
    switch (type) {
        case SignatureType::t10dif_crc:
            return behind_isal(crc16_t10dif(0, isal(block), block.size()));
        case SignatureType::t10dif_csum:
            return ip_checksum(block);
        case SignatureType::crc32:
            return behind_isal(crc32_gzip_refl(0, isal(block), block.size()));
        case SignatureType::crc32c:
            return crc32c(0, block);
        case SignatureType::crc64:
            return crc64(block);
    }
    return 0;
}

void write_field(const Signature& signature, BlockTags tags, std::span<const std::byte> block,
                 std::span<std::byte> to) noexcept {
    const std::uint64_t guard = guard_of(signature.type, block);
    if (signature.has_tags()) {
        store_big(guard, to.first(2));
        store_big(tags.application, to.subspan(2, 2));
        store_big(tags.reference, to.subspan(4, 4));
    } else {
        for (std::size_t i = 0; i < to.size(); ++i) to[i] = static_cast<std::byte>(guard >> 8 * i);
    }
}

BlockCheck check_field(const Signature& signature, BlockTags tags, std::span<const std::byte> block,
                       std::span<const std::byte> field) noexcept {
    const std::uint64_t guard = guard_of(signature.type, block);
    const std::uint64_t found = signature.has_tags() ? load_big(field.first(2)) : load_little(field);
    if (guard != found) return {BlockFault::guard, guard, found};
    if (!signature.has_tags()) return {};
    if (const auto tag = load_big(field.subspan(2, 2)); tag != tags.application) {
        return {BlockFault::application_tag, tags.application, tag};
    }
    if (const auto tag = load_big(field.subspan(4, 4)); tag != tags.reference) {
        return {BlockFault::reference_tag, tags.reference, tag};
    }
    return {};
}

}  // namespace ovsdr::mirror
