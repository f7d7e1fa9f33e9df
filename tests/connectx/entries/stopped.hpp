// The engine stops at what it does not know, and says its name: it never goes on as if nothing were there.
#pragma once

#include <stdexcept>

namespace ovsdr::connectx::entries {

class Stopped : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

}  // namespace ovsdr::connectx::entries
