// Flow meters: what colour a packet gets.
//
// The model. A meter has tokens, which are bytes; a packet of one that counts packets costs 128. While they are not
// negative a packet is green and takes its tokens, whatever its length; else it is red and takes none. Time stands
// still: a bucket is full when the meter was written with timestamp 0, and no token ever comes back.
//
// One bucket only, and packets that come in green: who asks for more is stopped.
//
// Threads: pure functions. Source: PRM flow_meter_parameters; Linux's en/tc/meter.c.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tests/connectx/device.hpp"

namespace ovsdr::connectx::entries {

/// As registers hold it.
enum class Colour : std::uint8_t { red = 0, yellow = 1, green = 2 };

/// Takes the tokens out of the parameters. `size`: of the frame. Throws Stopped for what is not known here.
[[nodiscard]] Colour meter(MeterParameters& parameters, std::size_t size);

}  // namespace ovsdr::connectx::entries
