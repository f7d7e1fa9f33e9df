// Blocks of a pcapng file, written into the caller's memory: no allocation, no system call, no exception.
//
// A file is a section header, an interface description for each interface (they are numbered from 0 in the order in
// which they are written), packets, and in the end statistics of each interface. Each function here makes one block and
// keeps nothing, so blocks may be written to any place in any order that the format allows: into a file (file.hpp), or
// into segments of a ring.
//
// Sizes. write() returns the block's size in bytes, a multiple of 4, whether or not it fits: where `into` is smaller,
// nothing is written. write({}, block) therefore asks for the size.
//
// Times are nanoseconds since 1970. Numbers are in the byte order of this machine, which the section header tells.
//
// Source: draft-ietf-opsawg-pcapng, "PCAP Next Generation (pcapng) Capture File Format".
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace ovsdr::pcapng {

/// The first block. `application`: who wrote it; an empty text is left out, as all texts are.
struct SectionHeader {
    std::string_view application;
};

/// An Ethernet interface with times in nanoseconds.
struct InterfaceDescription {
    std::string_view name;
    std::string_view description;
    std::uint32_t snap_length;  ///< at most so many bytes of a packet are kept
    std::string_view filter;    ///< in libpcap's language
};

/// Seen from the interface: `inbound` is what it received.
enum class Direction : std::uint8_t { unknown = 0, inbound = 1, outbound = 2 };

struct EnhancedPacket {
    std::uint32_t interface;
    std::uint64_t time;
    std::span<const std::byte> bytes;  ///< what was kept, without FCS
    std::uint32_t original_size;       ///< on the wire, without FCS
    Direction direction;
};

/// Packets of one interface from `start` to `end`.
struct InterfaceStatistics {
    std::uint32_t interface;
    std::uint64_t start;
    std::uint64_t end;
    std::uint64_t received;   ///< seen, before the filter (isb_ifrecv)
    std::uint64_t accepted;   ///< by the filter, dropped ones included (isb_filteraccept)
    std::uint64_t dropped;    ///< accepted, and lost for want of room (isb_ifdrop)
    std::uint64_t delivered;  ///< written into this file (isb_usrdeliv)
};

/// Of each text at most 65,535 bytes are written: an option's length has 16 bits. Threads: any.
std::size_t write(std::span<std::byte> into, const SectionHeader& block) noexcept;
std::size_t write(std::span<std::byte> into, const InterfaceDescription& block) noexcept;
std::size_t write(std::span<std::byte> into, const EnhancedPacket& block) noexcept;
std::size_t write(std::span<std::byte> into, const InterfaceStatistics& block) noexcept;

}  // namespace ovsdr::pcapng
