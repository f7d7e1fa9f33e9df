// ASO objects as DEVX makes them, and the ACCESS_ASO work request that reads and writes them.
//
// The request (opcode 0x2d; opmod 1 connection tracking, 2 flow meter, 4 first hit) is a control segment whose last
// double word is the object's number, an ASO control segment of 48 bytes, and 64 bytes of data if it writes:
//
//   ASO control  0  va_h, 4 va_l (its lowest bit: read), 8 lkey, 12 data_mask_mode:2 0:6, 13 condition 1:4,
//                0:4 operand, 14 their offsets, 15 logical operation:2 data offset:6; 16..31 data and masks of the
//                conditions; 32 bitwise_data, 40 data_mask
//
// If the conditions hold, the object's bytes that data_mask selects (bit 63: the first) are replaced. If it reads, the
// object's 64 bytes as they were go to va first. Done: conditions that are always true or always false, data masks by
// bytes, which is what the public drivers use; others are refused.
//
// Threads: any.
// Source: mlx5_wqe_aso_ctrl_seg (Linux lib/aso.h), mlx5_aso_cseg (DPDK mlx5_prm.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>

#include "datapath/steering/aso.hpp"

namespace ovsdr::soft {

class DeviceState;

inline constexpr std::uint8_t opcode_access_aso = 0x2d;  ///< of a work queue entry; mlx5dv.h has no name for it

/// A device's ASO objects by number.
class AsoTable {
public:
    struct Found {
        std::shared_ptr<AsoBulk> bulk;
        unsigned index = 0;        ///< of the object in its bulk
        std::uint32_t access_pd = 0;
    };

    /// The numbers from `first` on, as many as the bulk has objects, are the bulk's.
    void add(std::uint32_t first, std::shared_ptr<AsoBulk> bulk, std::uint32_t access_pd);
    void remove(std::uint32_t first);
    /// No bulk: no such object.
    [[nodiscard]] Found find(std::uint32_t number);

private:
    struct Entry {
        std::shared_ptr<AsoBulk> bulk;
        std::uint32_t access_pd;
    };
    std::mutex mutex_;
    std::map<std::uint32_t, Entry> bulks_;
};

/// The queue that a request was posted to.
struct AsoRequester {
    std::uint32_t pdn;          ///< number of its protection domain: the object's access PD
    const void* domain;         ///< the same as memory regions know it
    unsigned stripe = 0;        ///< of MemoryTable::Reading
};

/// Does the request (a whole work queue entry, from its control segment on); 0, or the reason for an error completion:
/// EINVAL (too short, not an ACCESS_ASO, an opmod that is not the object's), ENOENT (no such object), EPERM (another
/// PD), EFAULT (the memory to read into), EOPNOTSUPP (see above).
[[nodiscard]] int access_aso(DeviceState& state, const AsoRequester& by, std::span<const std::byte> wqe) noexcept;

}  // namespace ovsdr::soft
