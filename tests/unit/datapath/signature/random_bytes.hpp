// Random content for blocks that are signed.
#pragma once

#include <cstddef>
#include <random>
#include <vector>

namespace ovsdr::soft::signature {

inline std::vector<std::byte> random_bytes(std::mt19937& random, std::size_t size) {
    std::vector<std::byte> bytes(size);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    return bytes;
}

}  // namespace ovsdr::soft::signature
