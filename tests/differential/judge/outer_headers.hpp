// The bytes of a tunnel between the outer IP header and the frame inside.
//
// Threads: pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tests/differential/judge/recipe.hpp"

namespace ovsdr::differential {

/// VXLAN's, Geneve's or GRE's header, with what `outer` says of it, and `frame`. UDP's is not there, GRE's checksum is.
[[nodiscard]] std::vector<std::uint8_t> in_tunnel(const Recipe& outer, std::span<const std::uint8_t> frame);

}  // namespace ovsdr::differential
