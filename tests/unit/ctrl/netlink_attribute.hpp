// Netlink attributes by hand, well-formed or not.
#pragma once

#include <cstdint>
#include <string>

/// With its padding.
inline std::string attribute(int type, const std::string& payload) {
    const std::uint16_t header[2] = {static_cast<std::uint16_t>(sizeof header + payload.size()),
                                     static_cast<std::uint16_t>(type)};
    std::string bytes(reinterpret_cast<const char*>(header), sizeof header);
    bytes += payload;
    bytes.resize((bytes.size() + 3) / 4 * 4);
    return bytes;
}
