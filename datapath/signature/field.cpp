#include "datapath/signature/field.hpp"

#include <endian.h>

#include <algorithm>
#include <cstring>

namespace ovsdr::soft::signature {

namespace {

[[nodiscard]] bool escaped(const Domain& domain, Field found) {
    if (domain.escape == Escape::never || (found >> 32 & 0xFFFF) != 0xFFFF) return false;
    return domain.escape == Escape::application_tag || (found & 0xFFFFFFFF) == 0xFFFFFFFF;
}

/// A guard as a number, out of the word.
[[nodiscard]] std::uint64_t guard_of(const Domain& domain, Field field) {
    if (domain.t10dif) return field >> 48;
    return domain.guard == GuardType::crc64_xp10 ? field : field >> 32;
}

}  // namespace

std::uint64_t Domain::raw(std::uint64_t framed) const noexcept {
    if (!present()) return framed;
    const std::uint64_t frame = block_size + field_size();
    return framed / frame * block_size + std::min<std::uint64_t>(framed % frame, block_size);
}

Field Domain::field(std::uint64_t block, std::uint64_t guard_value) const noexcept {
    if (t10dif) {
        const auto tag = static_cast<std::uint32_t>(reference_tag + (increment_reference_tag ? block : 0));
        return guard_value << 48 | std::uint64_t{application_tag} << 32 | tag;
    }
    return guard == GuardType::crc64_xp10 ? guard_value : guard_value << 32;
}

void Domain::store(Field field, std::span<std::byte> to) const noexcept {
    if (t10dif) {
        const std::uint64_t bytes = htobe64(field);
        std::memcpy(to.data(), &bytes, sizeof bytes);
    } else if (field_size() == 8) {
        const std::uint64_t bytes = htole64(field);
        std::memcpy(to.data(), &bytes, sizeof bytes);
    } else {
        const std::uint32_t bytes = htole32(static_cast<std::uint32_t>(field >> 32));
        std::memcpy(to.data(), &bytes, sizeof bytes);
    }
}

Field Domain::load(std::span<const std::byte> from) const noexcept {
    if (field_size() == 4) {
        std::uint32_t bytes;
        std::memcpy(&bytes, from.data(), sizeof bytes);
        return std::uint64_t{le32toh(bytes)} << 32;
    }
    std::uint64_t bytes;
    std::memcpy(&bytes, from.data(), sizeof bytes);
    return t10dif ? be64toh(bytes) : le64toh(bytes);
}

Error check(const Domain& domain, std::uint64_t block, Field found, Field calculated, std::uint8_t mask) noexcept {
    const Field wrong = (found ^ calculated) & bits_of(mask);
    if (wrong == 0 || escaped(domain, found)) return {};
    Error error;
    error.offset = block * (domain.block_size + domain.field_size());
    if (!domain.t10dif || (wrong & bits_of(guard_bytes))) {
        error.type = ErrorType::guard;
        error.actual = guard_of(domain, calculated);
        error.expected = guard_of(domain, found);
    } else if (wrong & bits_of(application_tag_bytes)) {
        error.type = ErrorType::application_tag;
        error.actual = calculated >> 32 & 0xFFFF;
        error.expected = found >> 32 & 0xFFFF;
    } else {
        error.type = ErrorType::reference_tag;
        error.actual = calculated & 0xFFFFFFFF;
        error.expected = found & 0xFFFFFFFF;
    }
    return error;
}

}  // namespace ovsdr::soft::signature
