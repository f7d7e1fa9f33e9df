#include "datapath/signature/field.hpp"

#include <algorithm>

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
