// What DEVX commands name by number: memory that the application registered for queues (UMEMs).
//
// Threads: any. Source: mlx5dv_devx_umem_reg(3).
#pragma once

#include <linux/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>

#include "datapath/rdma/prm.hpp"

namespace ovsdr::soft::devx {

struct Umem {
    std::byte* address;
    std::size_t size;
    unsigned access;  ///< enum ibv_access_flags
};

/// What the device does with a piece of a UMEM: completion rings are written, everything else is only read.
enum class Use : std::uint8_t { read, write };

/// One for the process: numbers are unique in all devices.
class Registry {
public:
    [[nodiscard]] static Registry& instance();

    [[nodiscard]] std::uint32_t add(const Umem& umem);
    void remove(std::uint32_t id);
    /// `size` bytes at `offset` of a UMEM that the device may use as `use` says; nullptr: there are none.
    [[nodiscard]] std::byte* find(std::uint32_t id, std::uint64_t offset, std::size_t size, Use use);

private:
    std::mutex mutex_;
    std::uint32_t next_ = 1;
    std::map<std::uint32_t, Umem> umems_;
};

/// Memory that a command names by three fields: valid, number and offset of a UMEM. nullptr: not valid, not that large, or
/// not for that use.
[[nodiscard]] std::byte* find_buffer(std::span<const std::byte> in, prm::Field valid, prm::Field umem, prm::Field offset,
                                     std::size_t size, Use use);
/// A doorbell record of two words.
[[nodiscard]] const std::atomic<__be32>* find_doorbell(std::span<const std::byte> in, prm::Field valid, prm::Field umem,
                                                       prm::Field offset);

}  // namespace ovsdr::soft::devx
