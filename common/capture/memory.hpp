// The memory of one capture: its rings, one for each worker of the NIC.
//
// The NIC makes it, without a name, and passes its descriptor to the process that captures; it is gone when both have
// unmapped it. Its size is sealed: neither can take pages away under the other.
//
// Threads: any; the rings have their own rule.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/capture/ring.hpp"

namespace ovsdr::capture {

/// Of the layout. A process with another version must not read the memory.
inline constexpr std::uint32_t layout_version = 1;

class Memory {
public:
    /// Makes memory for `rings` rings of `ring_size` bytes of records each, a power of two, and touches every page, so
    /// that a first write waits for none. Throws std::system_error: ENOMEM, EMFILE.
    Memory(unsigned rings, std::size_t ring_size);

    /// Maps what another process has made; takes `descriptor` over. Throws std::system_error, or std::runtime_error
    /// when it is not what the other constructor makes.
    explicit Memory(int descriptor);

    ~Memory();
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;

    [[nodiscard]] int descriptor() const noexcept { return descriptor_; }
    [[nodiscard]] unsigned rings() const noexcept { return rings_; }
    [[nodiscard]] RingControl& control(unsigned ring) const noexcept;
    [[nodiscard]] std::span<std::byte> data(unsigned ring) const noexcept;

private:
    void map(bool new_memory);
    void release() noexcept;

    int descriptor_;
    unsigned rings_ = 0;
    std::size_t ring_size_ = 0;
    std::size_t size_ = 0;
    std::byte* begin_ = nullptr;
};

}  // namespace ovsdr::capture
