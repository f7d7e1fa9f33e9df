// Memory on the device (MEMIC): what ibv_alloc_dm() gives, read and written by copies and by whoever registers it.
//
// There is no bus between it and the process: it is pages of ours, set to 0, and atomic operations at mapped addresses,
// which trap on a device, are not to be had.
// Source: ibv_alloc_dm(3).
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>

namespace ovsdr::soft {

class DeviceMemory {
public:
    static constexpr std::uint64_t device_size = 256u << 10;  ///< bytes that a device has

    /// Throws std::bad_alloc where the device has not that many bytes left. `size` at least 1.
    DeviceMemory(std::atomic<std::uint64_t>& taken, std::size_t size) : taken_(taken), size_(size) {
        const std::uint64_t before = taken_.fetch_add(size);
        void* const pages = before + size > device_size
                                ? MAP_FAILED
                                : mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (pages == MAP_FAILED) {
            taken_.fetch_sub(size);
            throw std::bad_alloc();
        }
        bytes_ = static_cast<std::byte*>(pages);
    }
    ~DeviceMemory() {
        munmap(bytes_, size_);
        taken_.fetch_sub(size_);
    }
    DeviceMemory(const DeviceMemory&) = delete;
    DeviceMemory& operator=(const DeviceMemory&) = delete;

    [[nodiscard]] std::byte* bytes() const noexcept { return bytes_; }
    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    /// Regions that it is registered as.
    std::atomic<unsigned> regions{0};

private:
    std::atomic<std::uint64_t>& taken_;
    std::byte* bytes_;
    const std::size_t size_;
};

}  // namespace ovsdr::soft
