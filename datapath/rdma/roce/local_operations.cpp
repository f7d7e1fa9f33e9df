#include "datapath/rdma/roce/local_operations.hpp"

#include <cerrno>

namespace ovsdr::soft {

// Keys: mkey/umr.cpp.

int set_psv(DeviceState&, const void*, std::span<const std::byte>) noexcept {
    return EINVAL;
}

}  // namespace ovsdr::soft
