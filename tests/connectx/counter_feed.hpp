// What every flow counter shows besides what was counted on it: two numbers in the file that OVSDR_CONNECTX_COUNTERS
// names, packets and bytes.
//
// So a test makes traffic for a program that it does not run in: a daemon, say. The file is read again at each query;
// without one, and while it cannot be read, nothing is added.
#pragma once

#include "tests/connectx/device.hpp"

namespace ovsdr::connectx {

[[nodiscard]] Count fed_count();

}   // namespace ovsdr::connectx
