// What insertion_times.h has counted.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "ctrl/insertion_times.h"

namespace ovsdr::ctrl {

/// Upper bounds of all buckets but the last one, which has none; nanoseconds, and what takes just as long is below.
inline constexpr std::array<std::uint64_t, 15> insertion_bounds{
    5'000,     10'000,    25'000,     50'000,     100'000,    250'000,     500'000,      1'000'000,
    2'500'000, 5'000'000, 10'000'000, 50'000'000, 100'000'000, 500'000'000, 1'000'000'000};

struct InsertionHistogram {
    std::array<std::uint64_t, insertion_bounds.size() + 1> buckets{};   ///< each for itself, not cumulative
    std::uint64_t nanoseconds = 0;                                      ///< of all together
};

/// All threads' since start. `outcome`: not OVSDR_PUT_NOWHERE.
[[nodiscard]] InsertionHistogram insertion_times(ovsdr_put_outcome outcome) noexcept;

/// For tests: as if an insertion had taken so long in this thread.
void count_insertion(ovsdr_put_outcome outcome, std::uint64_t nanoseconds) noexcept;

}  // namespace ovsdr::ctrl
