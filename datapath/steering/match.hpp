// Masks and values as applications give them (mlx5dv_flow_match_parameters) turned into Keys, with every refusal of
// libmlx5: what it would match wider or not at all is not taken here either.
//
// Non-root tables follow libmlx5's builders: ip_version is the number 4 or 6 in mask and value alike and stands for a
// full match; L3 and L4 fields need it; cvlan_tag and svlan_tag are one qualifier (mask 1, value 0: untagged). Root
// tables are the firmware's: bits as they are.
//
// libmlx5 builds a mask from look-ups, some fields beginning one, others only riding along, or finds a definer for it.
//
// Errors: EINVAL (sizes, unknown criteria, a mask with criteria that no look-up begins for, a value outside its mask),
// EOPNOTSUPP (bits that no look-up takes).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "datapath/profile.hpp"
#include "datapath/steering/key.hpp"

namespace ovsdr::soft {

enum class DomainType : std::uint8_t { nic_rx, nic_tx, fdb };

/// match_criteria_enable: which 64-byte blocks of the parameters count.
namespace criteria {
inline constexpr std::uint8_t outer = 1, misc = 2, inner = 4, misc2 = 8, misc3 = 16, misc4 = 32, misc5 = 64;
}

/// All seven blocks of dr_match_param.
inline constexpr std::size_t match_param_size = 448;

struct MatchSpec {
    DomainType domain;
    bool root;
    std::uint8_t criteria;
    const Profile* profile;
};

/// A matcher's mask: `given` as the application wrote it, `key` as packets are masked.
struct MatchMask {
    Key given;
    Key key;
    std::uint8_t criteria;
    bool root;
    bool definer;  ///< one of the device's definers stands for it: only then has the matcher a layout
};

[[nodiscard]] int make_mask(const MatchSpec& spec, std::span<const std::uint8_t> given, MatchMask& mask) noexcept;

/// `value` is masked: what packets & mask.key must equal.
[[nodiscard]] int make_value(const MatchMask& mask, std::span<const std::uint8_t> given, Key& value) noexcept;

}  // namespace ovsdr::soft
