// Domains of each kind, for tests.
#pragma once

#include "datapath/signature/field.hpp"

namespace ovsdr::soft::signature {

inline constexpr std::uint64_t ones = ~std::uint64_t{0};

inline Domain t10(std::uint32_t block_size, GuardType guard, std::uint64_t seed) {
    return {.block_size = block_size,
            .t10dif = true,
            .guard = guard,
            .seed = seed,
            .application_tag = 0xABCD,
            .reference_tag = 0xFFFFFFFE,
            .increment_reference_tag = true};
}
inline Domain crc(std::uint32_t block_size, GuardType guard, std::uint64_t seed) {
    return {.block_size = block_size, .guard = guard, .seed = seed};
}

}  // namespace ovsdr::soft::signature
