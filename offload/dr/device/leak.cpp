#include "offload/dr/device/leak.hpp"

#include <atomic>
#include <cassert>
#include <cerrno>

namespace ovsdr::dr {

namespace {
std::atomic<std::uint64_t> leaked{0};
}

bool note_destroyed(int code) noexcept {
    if (code == 0) return true;
    [[maybe_unused]] const std::uint64_t before = leaked.fetch_add(1, std::memory_order_relaxed);
    assert((code != EBUSY || before != 0) && "destroyed before what depends on it");
    return false;
}

std::uint64_t leaked_objects() noexcept { return leaked.load(std::memory_order_relaxed); }

}  // namespace ovsdr::dr
