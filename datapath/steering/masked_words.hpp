// The words of a Key that a mask looks at: what a matcher or the flow cache hashes and compares.
#pragma once

#include <nmmintrin.h>

#include <array>
#include <cstdint>

#include "datapath/steering/key.hpp"

namespace ovsdr::soft {

struct MaskedWords {
    std::uint32_t length = 0;
    bool deep = false;  ///< looks_deep()
    std::array<std::uint8_t, Key::length> index{};
    std::uint8_t outcome_registers = 0;  ///< looked_at_outcomes()
    std::array<std::uint64_t, Key::length> mask{};

    MaskedWords() = default;
    explicit MaskedWords(const Key& key) noexcept
        : deep(looks_deep(key)), outcome_registers(looked_at_outcomes(key)) {
        for (unsigned i = 0; i < Key::length; ++i) {
            if (key.words[i] == 0) continue;
            index[length] = static_cast<std::uint8_t>(i);
            mask[length++] = key.words[i];
        }
    }

    /// Writes the masked words to `words` (of at least `length`) and returns their hash. CRC32C: three cycles a word,
    /// and SSE4.2 is what DPDK's own build asks for.
    [[nodiscard]] std::uint32_t extract(const Key& key, std::uint32_t seed, std::uint64_t* words) const noexcept {
        std::uint64_t hash = seed;
        for (std::uint32_t i = 0; i < length; ++i) {
            words[i] = key.words[index[i]] & mask[i];
            hash = _mm_crc32_u64(hash, words[i]);
        }
        return finish(static_cast<std::uint32_t>(hash));
    }

    [[nodiscard]] std::uint32_t hash(const Key& key, std::uint32_t seed) const noexcept {
        std::uint64_t hash = seed;
        for (std::uint32_t i = 0; i < length; ++i) hash = _mm_crc32_u64(hash, key.words[index[i]] & mask[i]);
        return finish(static_cast<std::uint32_t>(hash));
    }

    /// Whether the masked `key` equals `words`, which are masked.
    [[nodiscard]] bool equal(const Key& key, const std::uint64_t* words) const noexcept {
        std::uint64_t difference = 0;
        for (std::uint32_t i = 0; i < length; ++i) difference |= (key.words[index[i]] & mask[i]) ^ words[i];
        return difference == 0;
    }

    [[nodiscard]] bool overlaps(const Key& key) const noexcept {
        std::uint64_t common = 0;
        for (std::uint32_t i = 0; i < length; ++i) common |= key.words[index[i]] & mask[i];
        return common != 0;
    }

private:
    /// CRC is linear: low bits alone would be poor indices for keys that differ in few bits.
    [[nodiscard]] static std::uint32_t finish(std::uint32_t hash) noexcept {
        hash ^= hash >> 16;
        hash *= 0x7feb352dU;
        hash ^= hash >> 15;
        return hash;
    }
};

}  // namespace ovsdr::soft
