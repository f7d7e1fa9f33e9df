// The named fields of the device's match parameters (dr_match_param), as a table.
//
// Seven blocks of 512 bits; a mask's criteria say which of them count, one bit a block from the lowest.
// Source: dr_match_spec and dr_match_set_misc* in rdma-core's providers/mlx5/mlx5_ifc.h.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace ovsdr::oracle {

inline constexpr unsigned block_bits = 512;
inline constexpr unsigned match_blocks = 7;

struct MatchField {
    std::string_view name;  ///< block and field, "misc.source_port"
    std::uint16_t bit;      ///< of dr_match_param, from the most significant of its first byte
    std::uint8_t bits;

    [[nodiscard]] constexpr std::uint8_t criteria() const noexcept {
        return static_cast<std::uint8_t>(1U << bit / block_bits);
    }
};

/// In the order of their bits. Reserved bits have no field.
[[nodiscard]] std::span<const MatchField> match_fields() noexcept;

/// Aborts where there is no such field.
[[nodiscard]] const MatchField& match_field(std::string_view name) noexcept;

}  // namespace ovsdr::oracle
