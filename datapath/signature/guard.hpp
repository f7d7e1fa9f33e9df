// Block guards: the checksums that a signature field carries.
//
// Model. A Guard takes the bytes of one block in order, in pieces of any size, and has a value at any time. Values are
// plain numbers; field.hpp says in which order their bytes stand in memory and on the wire.
//
//   t10_crc      CRC-16 of T10 SBC-3: polynomial 0x8BB7, most significant bit first, no final complement
//   ip_checksum  complement of the ones' complement sum of big-endian 16-bit words (RFC 1071), as Linux' DIX does
//   crc32        CRC-32 of FC-PH (and IEEE 802.3): 0x04C11DB7 reflected, complemented
//   crc32c       Castagnoli's, of RFC 3720: 0x1EDC6F41 reflected, complemented
//   crc64_xp10   crc64.hpp, complemented
//
// The seed is what the register starts with. The final complement is applied for either seed: SPDK's accel_mlx5 undoes
// it for both when it hands CRC32C results of ConnectX to its callers.
//
// How CRCs are made: crc.hpp.
// Threads: a Guard by one at a time.
// Source: mlx5dv_wr_set_mkey_sig_block(3).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "datapath/signature/crc.hpp"

namespace ovsdr::soft::signature {

class Guard {
public:
    /// Of nothing: takes no bytes.
    Guard() noexcept = default;
    /// Of `seed` the bits that the type has.
    Guard(GuardType type, std::uint64_t seed) noexcept;

    /// At most 2^30 bytes at once.
    void update(std::span<const std::byte> bytes) noexcept {
        if (crc_ == nullptr) return update_checksum(bytes);
        register_ = crc_(register_, bytes);
    }
    /// Whether so many bytes can be copied and taken at once: copy().
    [[nodiscard]] bool copies(std::size_t size) const noexcept { return copying_.takes(size); }
    /// As update(), with a copy to `to`. false: memory was not there, and the guard means nothing any more.
    [[nodiscard]] bool copy(std::byte* to, std::span<const std::byte> from) noexcept {
        return copying_.function(register_, to, from);
    }
    [[nodiscard]] std::uint64_t value() const noexcept {
        return crc_ == nullptr ? checksum() : register_ ^ complement_;
    }

private:
    void update_checksum(std::span<const std::byte> bytes) noexcept;
    [[nodiscard]] std::uint64_t checksum() const noexcept;

    std::uint64_t register_{};     // ip_checksum: sum of native words
    std::uint64_t complement_{};   // of a CRC: the bits that are turned around in the end
    CrcFunction crc_ = nullptr;    // nullptr: ip_checksum
    CopyingCrc copying_;
    bool odd_ = false;             // ip_checksum: the next byte is the second of its word
};

}  // namespace ovsdr::soft::signature
