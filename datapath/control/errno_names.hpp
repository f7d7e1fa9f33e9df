// Errno names, for people who write "ENOMEM" rather than 12.
#pragma once

#include <string_view>

namespace ovsdr::soft {

/// The errno of that name, 0 for a name that is none. Source: glibc's strerrorname_np(3).
[[nodiscard]] int errno_of(std::string_view name) noexcept;

}  // namespace ovsdr::soft
