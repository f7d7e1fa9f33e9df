// What the tests of copies for software ask of software.
#pragma once

#include <cstdint>
#include <string_view>

namespace ovsdr::dr::test {

inline constexpr std::uint32_t tap = 77;   ///< no port of the device
inline constexpr std::uint32_t stor0 = 60, stor1 = 61;   ///< storage mirrors' ports
inline constexpr std::string_view bytes{"\x0c\x01", 2};

}  // namespace ovsdr::dr::test
