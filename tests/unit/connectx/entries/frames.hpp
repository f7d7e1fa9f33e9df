// Frames with right checksums, for tests of rewriting: built and summed here, by nothing of the engine's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ovsdr::connectx::entries::test {

using Bytes = std::vector<std::uint8_t>;

/// What a test frame is: its headers stand at fixed places.
struct FrameKind {
    bool ipv6 = false;
    std::uint8_t protocol = 6;
    bool tagged = false;

    [[nodiscard]] std::size_t l3() const { return tagged ? 18 : 14; }
    [[nodiscard]] std::size_t l4() const { return l3() + (ipv6 ? 40 : 20); }
    [[nodiscard]] std::size_t l4_checksum() const {
        return l4() + (protocol == 6 ? 16U : protocol == 17 ? 6U : 2U);
    }
};

inline std::uint32_t sum_of(const Bytes& bytes, std::size_t begin, std::size_t end) {
    std::uint32_t sum = 0;
    for (std::size_t i = begin; i < end; ++i) sum += i % 2 == begin % 2 ? bytes[i] * 256U : bytes[i];
    return sum;
}

inline void put_sum(Bytes& bytes, std::size_t at, std::uint32_t sum) {
    while (sum > 0xFFFF) sum = sum % 0x10000 + sum / 0x10000;
    const std::uint32_t checksum = 0xFFFF - sum;
    bytes[at] = static_cast<std::uint8_t>(checksum / 256);
    bytes[at + 1] = static_cast<std::uint8_t>(checksum % 256);
}

/// Sums both checksums over all that they cover. UDP: 0xFFFF for a sum of 0.
inline Bytes summed(Bytes frame, const FrameKind& kind) {
    if (!kind.ipv6) {
        frame[kind.l3() + 10] = frame[kind.l3() + 11] = 0;
        put_sum(frame, kind.l3() + 10, sum_of(frame, kind.l3(), kind.l4()));
    }
    if (kind.protocol == 1) return frame;
    const std::size_t at = kind.l4_checksum(), addresses = kind.l3() + (kind.ipv6 ? 8 : 12);
    frame[at] = frame[at + 1] = 0;
    const auto size = static_cast<std::uint32_t>(frame.size() - kind.l4());
    put_sum(frame, at, sum_of(frame, addresses, kind.l4()) + kind.protocol + size +
                           sum_of(frame, kind.l4(), frame.size()));
    if (kind.protocol == 17 && frame[at] == 0 && frame[at + 1] == 0) frame[at] = frame[at + 1] = 0xFF;
    return frame;
}

/// From 02:00:00:00:00:01, TTL 64, ports 1000 and 2000, 11 bytes of payload.
inline Bytes frame_of(const FrameKind& kind) {
    Bytes frame{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1};
    const auto put = [&frame](std::initializer_list<std::uint8_t> more) {
        frame.insert(frame.end(), more.begin(), more.end());
    };
    const std::uint8_t l4_size = kind.protocol == 6 ? 31 : 19;
    if (kind.tagged) put({0x81, 0, 0x60, 5});
    if (kind.ipv6) {
        put({0x86, 0xDD, 0x6B, 0x9A, 0xBC, 0xDE, 0, l4_size, kind.protocol, 64});
        for (std::uint8_t i = 0; i < 32; ++i) frame.push_back(static_cast<std::uint8_t>(0x20 + 5 * i));
    } else {
        put({8, 0, 0x45, 0xB9, 0, static_cast<std::uint8_t>(20 + l4_size), 0x12, 0x34, 0x40, 0, 64, kind.protocol, 0, 0,
             10, 0, 0, 1, 10, 0, 0, 2});
    }
    if (kind.protocol == 6) {
        put({3, 0xE8, 7, 0xD0, 1, 2, 3, 4, 5, 6, 7, 8, 0x50, 0x18, 0x10, 0, 0, 0, 0, 0});
    } else if (kind.protocol == 17) {
        put({3, 0xE8, 7, 0xD0, 0, l4_size, 0, 0});
    } else {
        put({8, 0, 0, 0, 9, 9, 9, 9});
    }
    for (std::uint8_t i = 0; i < 11; ++i) frame.push_back(static_cast<std::uint8_t>(0xC0 + i));
    return summed(frame, kind);
}

}  // namespace ovsdr::connectx::entries::test
