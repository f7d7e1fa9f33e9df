// Blocks with their fields in one contiguous buffer: made and checked in place.
//
// Threads: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "datapath/signature/field.hpp"

namespace ovsdr::soft::signature {

/// Writes the field behind each whole block of `framed` (data and fields); `first` is the number of the first block.
inline void generate(const Domain& domain, std::uint64_t first, std::span<std::byte> framed) noexcept {
    const std::size_t frame = domain.block_size + domain.field_size();
    for (; framed.size() >= frame; framed = framed.subspan(frame), ++first) {
        Guard guard(domain.guard, domain.seed);
        guard.update(framed.first(domain.block_size));
        domain.store(domain.field(first, guard.value()), framed.subspan(domain.block_size, domain.field_size()));
    }
}

/// The first error in the whole blocks of `framed`.
[[nodiscard]] inline Error validate(const Domain& domain, std::uint64_t first, std::uint8_t check_mask,
                                    std::span<const std::byte> framed) noexcept {
    const std::size_t frame = domain.block_size + domain.field_size();
    for (; framed.size() >= frame; framed = framed.subspan(frame), ++first) {
        Guard guard(domain.guard, domain.seed);
        guard.update(framed.first(domain.block_size));
        const Field found = domain.load(framed.subspan(domain.block_size, domain.field_size()));
        const Error error = check(domain, first, found, domain.field(first, guard.value()), check_mask);
        if (error.type != ErrorType::none) return error;
    }
    return {};
}

}  // namespace ovsdr::soft::signature
