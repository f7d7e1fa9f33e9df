#include "offload/dr/leak.hpp"

#include <atomic>
#include <cassert>
#include <cerrno>

namespace ovsdr::dr {

namespace {
std::atomic<std::uint64_t> leaked{0};
}

void note_destroyed(int code) noexcept {
    if (code == 0) return;
    assert(code != EBUSY && "destroyed before what depends on it");
    leaked.fetch_add(1, std::memory_order_relaxed);
}

std::uint64_t leaked_objects() noexcept { return leaked.load(std::memory_order_relaxed); }

}  // namespace ovsdr::dr
