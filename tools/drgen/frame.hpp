// The frames that drgen sends, and how it knows them again.
//
// Ethernet, up to two VLAN tags, IPv4, UDP, and in the UDP payload a signature that fits even into the smallest frame:
//
//   bytes 0-1    run: a number that this run has chosen, so that an earlier run's frames are not counted
//   byte  2      stream
//   byte  3      version, 1
//   bytes 4-7    sequence number within the stream
//   bytes 8-11   when it was sent: units of 16 ns since the run began, modulo 2^32 (68 s)
//   bytes 12-13  Internet checksum (RFC 1071) of the whole payload
//
// then a pattern to the frame's end. All fields are big-endian. VLAN tags and headers may change on the way; the
// payload may not. Sizes are those of the frame without FCS.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace ovsdr::drgen {

using MacAddress = std::array<std::uint8_t, 6>;

inline constexpr std::size_t signature_size = 14;
inline constexpr std::size_t smallest_frame = 60;
inline constexpr std::size_t largest_frame = 9978 + 22;

/// What all frames of a stream share.
struct StreamHeader {
    std::uint8_t stream;
    std::uint16_t run;
    MacAddress source, destination;
    std::vector<std::uint16_t> vlans;  ///< outer first, at most two
};

/// The smallest frame with so many VLAN tags that has room for a signature.
[[nodiscard]] constexpr std::size_t smallest_size(std::size_t vlan_tags) noexcept {
    const std::size_t needed = 14 + 4 * vlan_tags + 20 + 8 + signature_size;
    return needed < smallest_frame ? smallest_frame : needed;
}

/// A frame of one stream and size, complete but for what changes from one to the next.
class FrameTemplate {
public:
    /// `size` from smallest_size(header.vlans.size()) to largest_frame.
    FrameTemplate(const StreamHeader& header, std::size_t size);

    [[nodiscard]] std::size_t size() const noexcept { return bytes_.size(); }

    /// Writes size() bytes. `flow` chooses source address and port.
    void write(std::uint8_t* out, std::uint32_t flow, std::uint32_t sequence, std::uint32_t time) const noexcept;

private:
    std::vector<std::uint8_t> bytes_;
    std::size_t ip_;             ///< offset of the IPv4 header
    std::uint32_t header_sum_;   ///< of the IPv4 header, without source address and checksum
    std::uint32_t payload_sum_;  ///< of the payload, without sequence number, time and checksum
};

struct Signature {
    std::uint8_t stream;
    std::uint32_t sequence;
    std::uint32_t time;
    bool intact;  ///< length and checksum are right
};

/// nullopt for a frame that is not of this run.
[[nodiscard]] std::optional<Signature> read_signature(std::span<const std::uint8_t> frame, std::uint16_t run) noexcept;

}  // namespace ovsdr::drgen
