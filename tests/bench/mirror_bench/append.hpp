// What it costs to get a frame into a mirror's ring, and how much of that is the copy.
//
// Model. Frames lie in buffers of their own, as in a receive queue. `whole` is SegmentRing::append(). `without_copy`
// does everything else that an append does: the header and the options of the block, and the CRC-32C of the frame
// where it lies. That is what would be left if an MKEY gathered frames out of the receive queue's buffers.
#pragma once

#include <cstddef>

namespace ovsdr::bench {

/// Seconds of this thread for each byte of a frame, the best of several rounds.
struct AppendCost {
    double whole, without_copy;
};

[[nodiscard]] AppendCost measure_append(std::size_t frame_size, double seconds);

/// Seconds of this thread so far.
[[nodiscard]] double thread_seconds();

}  // namespace ovsdr::bench
