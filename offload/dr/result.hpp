// Outcomes as values: an Error is a device that failed, a Reject a megaflow that cannot be offloaded exactly.
#pragma once

#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace ovsdr {

/// A call to the device failed. `code` is a positive errno; `what` names the call and its object.
struct Error {
    int code;
    std::string what;
};

template <typename T>
using Result = tl::expected<T, Error>;

}  // namespace ovsdr
