// The one card of this process.
#pragma once

#include "tests/connectx/nic.hpp"

namespace ovsdr::connectx {

/// Made at the first call, and never destroyed: the process's own end may still close files.
[[nodiscard]] Nic& the_nic();

}   // namespace ovsdr::connectx
