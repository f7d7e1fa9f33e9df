// Outcomes as values: an Error is a device that failed, a Reject a megaflow that cannot be offloaded exactly.
#pragma once

#include <string>
#include <tl/expected.hpp>
#include <utility>

#include "offload/dr/static_name.hpp"

namespace ovsdr {

/// A call to the device failed. `code` is a positive errno; `what` names the call and its object. With `code`, `call`
/// is what such failures are counted by: the function or command, or what was attempted; empty where nobody counts.
struct Error {
    int code;
    std::string what;
    StaticName call{};
};

template <typename T>
using Result = tl::expected<T, Error>;

}  // namespace ovsdr
