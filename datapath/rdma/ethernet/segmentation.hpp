// What a device does to packets that a queue sends, on demand: checksums, and the splitting of a large TCP segment.
//
// Segmentation (TSO). The application gives one header, Ethernet to TCP, and a payload of any length; each packet has
// the header and at most `mss` bytes of it. Of the header, a packet changes the IP length, IPv4's identification (one
// more each) and TCP's sequence number; PSH and FIN stay on the last packet only, CWR on the first. Checksums are
// filled in where the request asks for them, and are the application's otherwise.
//
// Threads: pure functions. Source: ibv_post_send(3), ibv_wr_post(3) (IBV_WR_TSO, IBV_SEND_IP_CSUM).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "datapath/steering/parser.hpp"

namespace ovsdr::soft {

/// Bytes of one request's payload (max_tso): a larger one completes with IBV_WC_LOC_LEN_ERR.
inline constexpr std::uint32_t most_segmented = 1 << 18;

/// Of the IPv4 header, and of TCP or UDP.
struct Checksums {
    bool ip = false, transport = false;

    [[nodiscard]] bool both() const noexcept { return ip && transport; }
};

/// Fills in those that `which` names of a frame. Leaves what it does not know, and what a fragment does not hold.
void fill_checksums(std::span<std::uint8_t> frame, Checksums which) noexcept;

/// Which of a frame's checksums are right. IPv6, which has none, counts as right; what the frame does not have, as
/// wrong.
[[nodiscard]] Checksums good_checksums(std::span<const std::uint8_t> frame) noexcept;
/// The same of a packet whose headers have been found, an IP packet alone too.
[[nodiscard]] Checksums good_checksums(std::span<const std::uint8_t> packet, const Headers& headers) noexcept;

/// Which piece of a request a packet is.
struct Segment {
    std::uint32_t offset;  ///< bytes of payload before it
    std::uint32_t size;    ///< bytes of payload in it
    std::uint32_t index;   ///< packets before it
    bool last;
};

/// Turns the request's header, which `frame` begins with, into that of `segment`; the payload follows it.
void write_segment_header(std::span<std::uint8_t> frame, const Segment& segment) noexcept;

}  // namespace ovsdr::soft
