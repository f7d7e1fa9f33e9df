// A mask or value of a matcher: dr_match_param's 448 bytes, bits counted from the most significant of the first byte.
#pragma once

#include <infiniband/mlx5dv.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tests/conformance/libmlx5_questions/match_fields.hpp"

namespace ovsdr::oracle {

class MatchBuffer {
public:
    static constexpr std::size_t all_blocks = 448;  ///< bytes
    static constexpr std::size_t capacity = 512;    ///< bytes; more than any device takes

    /// Zeros; `size` bytes are announced.
    explicit MatchBuffer(std::size_t size = all_blocks) noexcept { get()->match_sz = size; }

    MatchBuffer& set(const MatchField& field, std::uint64_t value) noexcept {
        for (unsigned i = 0; i < field.bits; ++i) set_bit(field.bit + i, (value >> (field.bits - 1 - i) & 1) != 0);
        return *this;
    }
    MatchBuffer& fill(const MatchField& field) noexcept { return set(field, ~std::uint64_t{0}); }
    MatchBuffer& set_bit(unsigned bit, bool on = true) noexcept {
        auto* byte = reinterpret_cast<std::uint8_t*>(get()->match_buf) + bit / 8;
        const auto one = static_cast<std::uint8_t>(0x80U >> bit % 8);
        *byte = static_cast<std::uint8_t>(on ? *byte | one : *byte & ~one);
        return *this;
    }

    [[nodiscard]] mlx5dv_flow_match_parameters* get() noexcept {
        return reinterpret_cast<mlx5dv_flow_match_parameters*>(words_.data());
    }

private:
    std::array<std::uint64_t, (sizeof(mlx5dv_flow_match_parameters) + capacity) / 8> words_{};
};

}  // namespace ovsdr::oracle
