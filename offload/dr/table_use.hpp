// What the tables of a device hold, by level: what Eswitch::table_use() says.
#pragma once

#include <span>
#include <vector>

#include "offload/dr/device/matcher.hpp"
#include "offload/dr/eswitch.hpp"

namespace ovsdr::dr {

/// By domain and level.
[[nodiscard]] std::vector<Eswitch::TableUse> table_use_of(std::span<const MatcherSet* const> tables);

}  // namespace ovsdr::dr
