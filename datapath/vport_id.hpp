// The number of an eSwitch vport, as match parameters and DEVX commands carry it.
#pragma once

#include <compare>
#include <cstdint>

namespace ovsdr::soft {

/// 0 is the eSwitch manager, 0xFFFF the uplink, the rest are VFs.
struct VportId {
    std::uint16_t value;

    friend auto operator<=>(const VportId&, const VportId&) = default;
};

inline constexpr VportId manager_vport{0};
inline constexpr VportId uplink_vport{0xFFFF};

/// Physical ports of an uplink in LAG, numbered from 1 as the PRM has it; 0 stands for none of them.
inline constexpr unsigned lag_ports = 2;

/// Per device; also the bound of per-worker arrays indexed by a dense vport slot.
inline constexpr unsigned max_vports = 256;

/// Worker threads of one NIC at most.
inline constexpr unsigned max_workers = 16;

}  // namespace ovsdr::soft
