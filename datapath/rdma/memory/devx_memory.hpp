// What DEVX commands name by number: memory that the application registered for queues (UMEMs).
//
// Life cycle. A UMEM is the device's from add() to remove(); what stands on a piece of it keeps that piece, and the
// UMEM is busy meanwhile. The memory itself is the application's.
// Threads: any. Source: mlx5dv_devx_umem_reg(3).
#pragma once

#include <linux/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
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

/// A piece of a UMEM, which it keeps; empty: there is none.
using Buffer = std::shared_ptr<std::byte>;
using DoorbellRecord = std::shared_ptr<const std::atomic<__be32>>;

/// A device's.
class Umems {
public:
    [[nodiscard]] std::uint32_t add(const Umem& umem);
    /// EBUSY while somebody keeps a piece of it.
    [[nodiscard]] int remove(std::uint32_t number);
    /// `size` bytes at `offset` of a UMEM that the device may use as `use` says.
    [[nodiscard]] Buffer find(std::uint32_t number, std::uint64_t offset, std::size_t size, Use use);

private:
    std::mutex mutex_;
    std::uint32_t next_ = 1;
    std::map<std::uint32_t, std::shared_ptr<const Umem>> umems_;
};

/// Memory that a command names by three fields: valid, number and offset of a UMEM. Empty: not valid, not that large,
/// or not for that use.
[[nodiscard]] Buffer find_buffer(Umems& umems, std::span<const std::byte> in, prm::Field valid, prm::Field umem,
                                 prm::Field offset, std::size_t size, Use use);
/// A doorbell record of two words.
[[nodiscard]] DoorbellRecord find_doorbell(Umems& umems, std::span<const std::byte> in, prm::Field valid,
                                           prm::Field umem, prm::Field offset);

}  // namespace ovsdr::soft::devx
