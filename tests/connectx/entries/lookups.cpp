#include "tests/connectx/entries/lookups.hpp"

#include <algorithm>

#include "tests/connectx/entries/lookup_tables.hpp"

namespace ovsdr::connectx::entries {

namespace {

/// The reflected polynomial of IEEE 802.3. The device begins with 0, inverts nothing and takes the result's bytes in
/// reverse.
constexpr std::uint32_t crc_polynomial = 0xEDB88320;

constexpr std::array<std::uint32_t, 256> make_crc_table() noexcept {
    std::array<std::uint32_t, 256> table{};
    for (std::uint32_t byte = 0; byte < table.size(); ++byte) {
        std::uint32_t rest = byte;
        for (int bit = 0; bit < 8; ++bit) rest = (rest & 1) != 0 ? rest >> 1 ^ crc_polynomial : rest >> 1;
        table[byte] = rest;
    }
    return table;
}

constexpr std::array<std::uint32_t, 256> crc_table = make_crc_table();

static_assert(std::ranges::is_sorted(tables::v0::all, {}, &Lookup::type));
static_assert(std::ranges::is_sorted(tables::v1::all, {}, &Lookup::type));

}  // namespace

std::span<const Lookup> lookups_of(unsigned format) noexcept {
    if (format == 0) return tables::v0::all;
    return tables::v1::all;
}

int find_lookup(unsigned format, std::uint16_t type) noexcept {
    const auto all = lookups_of(format);
    const auto found = std::ranges::lower_bound(all, type, {}, &Lookup::type);
    return found != all.end() && found->type == type ? static_cast<int>(found - all.begin()) : -1;
}

Vector compose(const Lookup& lookup, const PacketHeaders& headers) noexcept {
    Vector vector;
    for (const LookupRow& row : lookup.rows) vector.put(row.bits, headers.of(row.layer)[row.field]);
    return vector;
}

Vector unknown_bits(const Lookup& lookup, const PacketHeaders& headers) noexcept {
    Vector vector;
    for (const LookupRow& row : lookup.rows) {
        if (!headers.knows(row.layer, row.field)) vector.put(row.bits, UINT32_MAX);
    }
    return vector;
}

Vector bits_of(const Lookup& lookup) noexcept {
    Vector vector;
    for (const LookupRow& row : lookup.rows) vector.put(row.bits, UINT32_MAX);
    return vector;
}

Vector bytes_of(std::uint16_t byte_mask) noexcept {
    Vector vector;
    for (unsigned i = 0; i < 16; ++i) {
        if ((byte_mask >> (15 - i) & 1) != 0) vector.words[i / 8] |= std::uint64_t{0xFF} << (56 - i % 8 * 8);
    }
    return vector;
}

std::uint32_t hash_index(const Vector& masked, std::size_t size, std::uint64_t length) noexcept {
    std::uint32_t crc = 0;
    for (std::size_t i = 0; i < size; ++i) {
        const auto byte = static_cast<std::uint8_t>(masked.words[i / 8] >> (56 - i % 8 * 8));
        crc = crc >> 8 ^ crc_table[(crc ^ byte) & 0xFF];
    }
    return static_cast<std::uint32_t>(__builtin_bswap32(crc) & (length - 1));
}

}  // namespace ovsdr::connectx::entries
