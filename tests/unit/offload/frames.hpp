// Frames of a fixed size for tests: numbered ones, tagged ones, IPv4 with what a test sets of its headers.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

namespace ovsdr::dr::test::frames {

inline constexpr std::uint16_t experimental_type = 0x88b5;   // IEEE's for local experiments
inline constexpr std::size_t frame_size = 100;
using FrameBytes = std::vector<std::uint8_t>;

inline FrameBytes frame(std::uint32_t number, std::uint16_t type = experimental_type) {
    FrameBytes bytes(frame_size, 0);
    const std::uint8_t destination[] = {2, 0, 0, 0, 0, 2}, source[] = {2, 0, 0, 0, 0, 1};
    std::memcpy(bytes.data(), destination, 6);
    std::memcpy(bytes.data() + 6, source, 6);
    bytes[12] = static_cast<std::uint8_t>(type >> 8);
    bytes[13] = static_cast<std::uint8_t>(type);
    std::memcpy(bytes.data() + 60, &number, sizeof number);
    return bytes;
}

inline FrameBytes tagged(std::uint32_t number, std::uint16_t tci) {
    FrameBytes bytes = frame(number);
    const std::uint8_t tag[] = {0x81, 0x00, static_cast<std::uint8_t>(tci >> 8), static_cast<std::uint8_t>(tci)};
    bytes.insert(bytes.begin() + 12, tag, tag + 4);
    return bytes;
}

struct Ipv4 {
    std::uint8_t protocol = 17;
    std::uint16_t fragment = 0;        ///< flags and offset, as in the header
    std::uint8_t version_and_length = 0x45;
    std::uint16_t total_length = frame_size - 14;
    std::uint16_t source_port = 1000, destination_port = 2000;
    std::uint8_t ttl = 64, tos = 0, tcp_flags = 0x10;
};

inline FrameBytes ipv4(const Ipv4& fields) {
    FrameBytes bytes = frame(0, 0x0800);
    std::uint8_t* ip = bytes.data() + 14;
    const auto put16 = [](std::uint8_t* place, std::uint16_t value) {
        place[0] = static_cast<std::uint8_t>(value >> 8);
        place[1] = static_cast<std::uint8_t>(value);
    };
    ip[0] = fields.version_and_length;
    ip[1] = fields.tos;
    put16(ip + 2, fields.total_length);
    put16(ip + 6, fields.fragment);
    ip[8] = fields.ttl;
    ip[9] = fields.protocol;
    const std::uint8_t addresses[] = {10, 0, 0, 1, 10, 0, 0, 2};
    std::memcpy(ip + 12, addresses, sizeof addresses);
    std::uint32_t sum = 0;
    for (int i = 0; i < 20; i += 2) sum += static_cast<std::uint32_t>(ip[i] << 8 | ip[i + 1]);
    while (sum >> 16 != 0) sum = (sum & 0xFFFF) + (sum >> 16);
    put16(ip + 10, static_cast<std::uint16_t>(~sum));
    std::uint8_t* l4 = ip + 20;
    put16(l4, fields.source_port);   // ICMP: type and code
    put16(l4 + 2, fields.destination_port);
    if (fields.protocol == 17) put16(l4 + 4, frame_size - 34);
    if (fields.protocol == 6) l4[12] = 0x50, l4[13] = fields.tcp_flags;
    return bytes;
}

}  // namespace ovsdr::dr::test::frames
