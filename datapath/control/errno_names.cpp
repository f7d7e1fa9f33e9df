#include "datapath/control/errno_names.hpp"

#include <cerrno>
#include <cstring>

namespace ovsdr::soft {

int errno_of(std::string_view name) noexcept {
    constexpr int last = 133;  // EHWPOISON
    for (int code = 1; code <= last; ++code) {
        const char* known = strerrorname_np(code);
        if (known != nullptr && name == known) return code;
    }
    // The library knows one name for each number; these two have a second one.
    if (name == "EWOULDBLOCK") return EWOULDBLOCK;
    if (name == "EOPNOTSUPP" || name == "ENOTSUP") return EOPNOTSUPP;
    return 0;
}

}  // namespace ovsdr::soft
