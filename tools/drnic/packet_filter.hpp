// Filters in libpcap's language, compiled for Ethernet.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace ovsdr::drnic {

/// The program, as the control socket takes it: [[code, jt, jf, k], …]. An empty text gives an empty one, which
/// everything passes. Throws Failure with libpcap's message.
[[nodiscard]] nlohmann::json compile_filter(const std::string& text, std::uint32_t snap_length);

}  // namespace ovsdr::drnic
