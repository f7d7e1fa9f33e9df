// The one region of shared memory that a memif client makes: the rings to the server, the rings to the client, and
// behind them a buffer for each descriptor.
#pragma once

#include <cstddef>
#include <cstdint>

#include "datapath/ports/memif_wire.hpp"

namespace ovsdr::soft::memif {

inline constexpr unsigned usual_log2_ring = 10;
inline constexpr std::uint32_t usual_buffer_size = 2048;

enum class Direction : std::uint8_t { client_to_server, server_to_client };

/// Of a ring with its descriptors.
constexpr std::size_t ring_bytes(unsigned log2_size) noexcept {
    return sizeof(Ring) + (sizeof(Descriptor) << log2_size);
}

struct Layout {
    unsigned to_server = 1, to_client = 1;  ///< rings
    unsigned log2_ring = usual_log2_ring;   ///< descriptors of each
    std::uint32_t buffer_size = usual_buffer_size;

    /// Of all rings, in the region's order.
    [[nodiscard]] constexpr unsigned number_of(Direction direction, unsigned index) const noexcept {
        return direction == Direction::client_to_server ? index : to_server + index;
    }
    [[nodiscard]] constexpr std::uint64_t ring_offset(unsigned number) const noexcept {
        return number * ((ring_bytes(log2_ring) + alignof(Ring) - 1) / alignof(Ring) * alignof(Ring));
    }
    [[nodiscard]] constexpr std::uint64_t buffer_offset(unsigned number, std::uint32_t slot) const noexcept {
        return ring_offset(to_server + to_client) + ((std::uint64_t{number} << log2_ring) + slot) * buffer_size;
    }
    [[nodiscard]] constexpr std::uint64_t size() const noexcept { return buffer_offset(to_server + to_client, 0); }
};

/// Offsets in a region have 32 bits.
inline constexpr std::uint64_t largest_layout = std::uint64_t{1} << 32;

}  // namespace ovsdr::soft::memif
