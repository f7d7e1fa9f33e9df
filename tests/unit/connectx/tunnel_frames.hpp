// Frames in tunnels, put together by hand: by nothing of the engine's, nor of the library's.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "tests/unit/connectx/entries/frames.hpp"
#include "tests/unit/offload/tunnel_headers.hpp"

namespace ovsdr::connectx::test {

namespace tunnel = ovsdr::dr::test;
using Bytes = entries::test::Bytes;

inline void put(Bytes& bytes, std::size_t at, std::size_t value) {
    bytes[at] = static_cast<std::uint8_t>(value / 256);
    bytes[at + 1] = static_cast<std::uint8_t>(value % 256);
}

/// Without tags outside.
inline Bytes encapsulated(const Bytes& headers, const Bytes& inside) {
    Bytes frame = headers;
    frame.insert(frame.end(), inside.begin(), inside.end());
    const bool over_ipv6 = headers[12] == 0x86;
    const std::size_t l4 = over_ipv6 ? 54 : 34;
    if (over_ipv6) {
        put(frame, 18, frame.size() - l4);
    } else {
        put(frame, 16, frame.size() - 14);
        put(frame, 24, 0);
        entries::test::put_sum(frame, 24, entries::test::sum_of(frame, 14, 34));
    }
    if (headers[over_ipv6 ? 20 : 23] == 17) put(frame, l4 + 4, frame.size() - l4);
    return frame;
}

inline Bytes tagged(Bytes frame, std::uint8_t type = 0x81, std::uint8_t vid = 7) {
    const std::array<std::uint8_t, 4> tag{type, static_cast<std::uint8_t>(type == 0x88 ? 0xa8 : 0), 0, vid};
    frame.insert(frame.begin() + 12, tag.begin(), tag.end());
    return frame;
}

/// With other addresses than tunnels have outside: to 0e:1d:2c:3b:4a:59 from 0a:1b:2c:3d:4e:5f.
inline Bytes readdressed(Bytes frame) {
    constexpr std::array<std::uint8_t, 12> addresses{0x0e, 0x1d, 0x2c, 0x3b, 0x4a, 0x59,
                                                     0x0a, 0x1b, 0x2c, 0x3d, 0x4e, 0x5f};
    std::copy(addresses.begin(), addresses.end(), frame.begin());
    return frame;
}

/// Geneve over IPv4 with these bytes of options.
inline Bytes geneve_with(const Bytes& options) {
    Bytes headers = tunnel::geneve(0);
    headers[42] = static_cast<std::uint8_t>(options.size() / 4);
    headers.insert(headers.end(), options.begin(), options.end());
    return headers;
}

}  // namespace ovsdr::connectx::test
