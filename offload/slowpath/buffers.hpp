// Buffers of one ring of the slow path: equal in size, in one mapping and one memory region.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

#include "offload/dr/result.hpp"

namespace ovsdr::slowpath {

class Buffers {
public:
    [[nodiscard]] static Result<Buffers> create(ibv_pd* pd, std::size_t length, std::size_t frame_size);
    Buffers(Buffers&& other) noexcept;
    Buffers& operator=(Buffers&&) = delete;
    ~Buffers();

    [[nodiscard]] std::uint8_t* frame(std::size_t index) const noexcept { return memory_ + index * frame_size_; }
    [[nodiscard]] ibv_sge element(std::size_t index, std::size_t size) const noexcept {
        return {reinterpret_cast<std::uintptr_t>(frame(index)), static_cast<std::uint32_t>(size), region_->lkey};
    }
    [[nodiscard]] std::size_t frame_size() const noexcept { return frame_size_; }

private:
    Buffers(std::uint8_t* memory, std::size_t size, std::size_t frame_size) noexcept
        : memory_(memory), size_(size), frame_size_(frame_size) {}

    std::uint8_t* memory_;
    std::size_t size_;
    std::size_t frame_size_;
    ibv_mr* region_ = nullptr;
};

}  // namespace ovsdr::slowpath
