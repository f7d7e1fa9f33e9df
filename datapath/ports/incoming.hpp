// A frame on its way in from a kernel that puts virtio's header before it: the frame's begin is read into a packet, and
// beside it what does not fit. Most are a whole packet then; of a long one segments are cut (unfinished.hpp).
//
// Threads: the worker's that owns the port.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "datapath/ports/unfinished.hpp"

struct rte_mbuf;

namespace ovsdr::soft {

/// The outermost VLAN tag, where the kernel has taken it out of the frame.
struct TakenTag {
    bool there = false;
    std::uint16_t type = 0, tci = 0;
};

class Incoming {
public:
    explicit Incoming(std::uint16_t room);

    /// Where to read to. `packet` is empty and has `room` bytes.
    [[nodiscard]] std::span<iovec> read_into(rte_mbuf* packet) noexcept;

    /// Bytes that read_into() has room for.
    [[nodiscard]] static constexpr std::size_t most() noexcept { return sizeof(VirtioHeader) + most_unfinished; }

    /// `size` bytes have been read. True: `packet` has the frame, finished; of one that is longer than its room, and
    /// not to be cut, what there is room for, more than the MTU allows. False: `cut` has begun to cut it, and it
    /// must stay here until that has no more.
    [[nodiscard]] bool finish(std::size_t size, const TakenTag& tag, rte_mbuf* packet, Unfinished& cut) noexcept;

private:
    const std::uint16_t room_;
    VirtioHeader says_{};
    std::unique_ptr<std::uint8_t[]> long_;  ///< room for a tag, and the frame
    std::array<iovec, 3> pieces_{};
};

}  // namespace ovsdr::soft
