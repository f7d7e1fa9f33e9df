#include "offload/slowpath/buffers.hpp"

#include <sys/mman.h>

#include <cerrno>
#include <utility>

#include "offload/slowpath/verbs_owner.hpp"

namespace ovsdr::slowpath {

Result<Buffers> Buffers::create(ibv_pd* pd, std::size_t length, std::size_t frame_size) {
    const std::size_t size = length * frame_size;
    void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return tl::unexpected(failure_of(errno, "mmap of slow-path buffers"));
    Buffers buffers(static_cast<std::uint8_t*>(memory), size, frame_size);
    buffers.region_ = ibv_reg_mr(pd, memory, size, IBV_ACCESS_LOCAL_WRITE);
    if (buffers.region_ == nullptr) return tl::unexpected(failure_of(errno, "ibv_reg_mr"));
    return buffers;
}

Buffers::Buffers(Buffers&& other) noexcept
    : memory_(std::exchange(other.memory_, nullptr)), size_(other.size_), frame_size_(other.frame_size_),
      region_(std::exchange(other.region_, nullptr)) {}

Buffers::~Buffers() {
    if (memory_ == nullptr) return;
    // Memory that the device knows must not go.
    if (region_ != nullptr && !dr::destroyed([this] { return ibv_dereg_mr(region_); })) return;
    munmap(memory_, size_);
}

}  // namespace ovsdr::slowpath
