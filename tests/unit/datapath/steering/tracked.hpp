// Tracked connections for tests: their objects bit by bit, and segments. The object's fields are written out by their
// bit offsets once more, as the drivers have them.
#pragma once

#include "datapath/steering/conn_track.hpp"
#include "frames.hpp"

namespace ovsdr::soft::test {
namespace tracked {

using enum ConnTrack::Direction;

inline constexpr std::uint8_t valid = 0, changed = 0x02, invalid = 0x40, bad = 0x41, trap = 0x80;
inline constexpr std::uint16_t fin = 1, syn = 2, rst = 4, ack = 16;

struct ObjectField {
    unsigned bit, width;
};
inline constexpr ObjectField reply_max_ack{0, 32}, reply_max_win{32, 32}, reply_end{64, 32}, reply_sent_end{96, 32};
inline constexpr ObjectField original_max_ack{128, 32}, original_max_win{160, 32}, original_reply_end{192, 32},
    original_sent_end{224, 32};
inline constexpr ObjectField object_valid{480, 1}, state{481, 3}, freeze{484, 1}, assured{497, 1}, sack{498, 1},
    heartbeat{500, 1};
inline constexpr ObjectField retransmissions{505, 3}, exceeded{508, 1}, limit{509, 3};
inline constexpr ObjectField reply_scale{448, 4}, reply_liberal{453, 1}, original_scale{464, 4};
inline constexpr ObjectField original_liberal{469, 1};
inline constexpr ObjectField original_closed{468, 1}, reply_unacked{454, 1};

class Object {
public:
    Object& set(ObjectField field, std::uint64_t value) {
        for (unsigned i = 0; i < field.width; ++i) {
            const unsigned bit = field.bit + i;
            const auto one = static_cast<std::uint8_t>(0x80 >> bit % 8);
            image[bit / 8] = static_cast<std::uint8_t>(image[bit / 8] & ~one);
            if ((value >> (field.width - 1 - i) & 1) != 0) {
                image[bit / 8] = static_cast<std::uint8_t>(image[bit / 8] | one);
            }
        }
        return *this;
    }
    [[nodiscard]] std::uint64_t get(ObjectField field) const {
        std::uint64_t value = 0;
        for (unsigned i = 0; i < field.width; ++i) {
            value = value << 1 | (image[(field.bit + i) / 8] >> (7 - (field.bit + i) % 8) & 1);
        }
        return value;
    }
    ConnTrack::Image image{};
};

struct Words {
    std::uint32_t seq, acked = 0;
    std::uint16_t flags = ack, window = 1000;
    unsigned payload = 0;
};

[[nodiscard]] inline Bytes segment(const Words& words) {
    FrameSpec spec;
    spec.protocol = 6;
    spec.tcp_flags = words.flags;
    spec.payload = words.payload;
    Bytes frame = make_frame(spec);
    const auto put = [&frame](std::size_t at, std::uint32_t value, unsigned size) {
        for (unsigned i = 0; i < size; ++i) frame[at + i] = static_cast<std::uint8_t>(value >> 8 * (size - 1 - i));
    };
    put(38, words.seq, 4);
    put(42, words.acked, 4);
    put(48, words.window, 2);
    return frame;
}

/// SYN 1000 and SYN-ACK 5000 have been seen, with windows of 1000.
[[nodiscard]] inline Object after_syn_ack() {
    Object object;
    object.set(object_valid, 1).set(limit, 7).set(reply_scale, 15).set(original_scale, 15);
    object.set(original_sent_end, 1001).set(original_reply_end, 2001).set(original_max_win, 1000);
    return object.set(reply_sent_end, 5001).set(reply_end, 6001).set(reply_max_win, 1000).set(reply_max_ack, 1001);
}

}  // namespace tracked
}  // namespace ovsdr::soft::test
