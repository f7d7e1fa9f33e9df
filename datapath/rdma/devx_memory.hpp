// What DEVX commands name by number: memory that the application registered for queues (UMEMs).
//
// Threads: any. Source: mlx5dv_devx_umem_reg(3).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

namespace ovsdr::soft::devx {

struct Umem {
    std::byte* address;
    std::size_t size;
    unsigned access;  ///< enum ibv_access_flags
};

/// One for the process: numbers are unique in all devices.
class Registry {
public:
    [[nodiscard]] static Registry& instance();

    [[nodiscard]] std::uint32_t add(const Umem& umem);
    void remove(std::uint32_t id);
    /// `size` bytes at `offset` of a UMEM that the device may write to; nullptr: there are none.
    [[nodiscard]] std::byte* find(std::uint32_t id, std::uint64_t offset, std::size_t size);

private:
    std::mutex mutex_;
    std::uint32_t next_ = 1;
    std::map<std::uint32_t, Umem> umems_;
};

}  // namespace ovsdr::soft::devx
