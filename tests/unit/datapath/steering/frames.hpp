// Frames for tests, written out byte by byte; checksums computed from scratch.
#pragma once

#include <cstdint>
#include <vector>

namespace ovsdr::soft::test {

using Bytes = std::vector<std::uint8_t>;

struct FrameSpec {
    std::uint64_t dmac = 0x020000000002, smac = 0x020000000001;
    std::vector<std::uint32_t> tags;  ///< TPID << 16 | TCI, outermost first
    unsigned version = 4;             ///< 4, 6, or 0 for an ARP-like frame
    std::uint8_t protocol = 17;
    std::uint8_t tos = 0;
    std::uint8_t ttl = 64;
    std::uint16_t place = 0;          ///< IPv4: flags and fragment offset as on the wire
    bool fragment_header = false;     ///< IPv6: with `place` as its offset and M
    bool hop_by_hop = false;          ///< IPv6
    std::uint32_t source = 0x0a000001, destination = 0x0a000002;  ///< lowest 32 bits of IPv6 addresses
    std::uint16_t sport = 1000, dport = 2000;
    std::uint16_t tcp_flags = 0x10;
    bool udp_checksum = true;
    unsigned payload = 22;
};

[[nodiscard]] Bytes make_frame(const FrameSpec& spec);

/// The same with `content` for its payload.
[[nodiscard]] Bytes make_frame(FrameSpec spec, const Bytes& content);

/// Whether the IPv4 header's and the L4 header's checksums (unless absent) are right. True for what has none.
[[nodiscard]] bool checksums_right(const Bytes& frame);

/// Computes them anew.
void fix_checksums(Bytes& frame);

}  // namespace ovsdr::soft::test
