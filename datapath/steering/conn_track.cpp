#include "datapath/steering/conn_track.hpp"

#include <algorithm>

#include "datapath/steering/hold.hpp"
#include "datapath/steering/key.hpp"
#include "datapath/steering/parser.hpp"

namespace ovsdr::soft {
namespace {

using Direction = ConnTrack::Direction;

/// Sequence numbers go round.
[[nodiscard]] constexpr bool before(std::uint32_t a, std::uint32_t b) noexcept {
    return static_cast<std::int32_t>(a - b) < 0;
}

enum State : std::uint8_t { syn_recv, established, fin_wait, close_wait, last_ack, time_wait };

enum Flag : std::uint8_t {
    fin = 0x01, syn = 0x02, rst = 0x04, psh = 0x08, ack = 0x10, urg = 0x20, ece = 0x40, cwr = 0x80
};

/// As last_index names them.
enum Index : std::uint8_t { index_syn = 1, index_syn_ack = 2, index_fin = 4, index_ack = 8, index_rst = 16 };

/// Bits of the object, the most significant of byte 0 first.
struct Bits {
    unsigned at, length;
};
constexpr Bits last_end{256, 32}, last_acked{288, 32}, last_seq{320, 32}, last_win{352, 16};
constexpr Bits last_dir{378, 1}, last_index{379, 5};
constexpr Bits valid{480, 1}, state_bits{481, 3}, freeze_track{484, 1}, connection_assured{497, 1};
constexpr Bits sack_permitted{498, 1}, heartbeat{500, 1}, max_ack_window{501, 3}, retransmissions{505, 3};
constexpr Bits limit_exceeded{508, 1}, limit{509, 3};

/// Of one direction.
struct Side {
    Bits max_ack, max_win, reply_end, sent_end, scale, close_initiated, liberal, data_unacked, max_ack_seen;
};
[[nodiscard]] constexpr Side side_at(unsigned window, unsigned flags) noexcept {
    return {{window, 32},    {window + 32, 32}, {window + 64, 32}, {window + 96, 32}, {flags, 4},
            {flags + 4, 1},  {flags + 5, 1},    {flags + 6, 1},    {flags + 7, 1}};
}
/// By Direction.
constexpr std::array sides{side_at(128, 464), side_at(0, 448)};

constexpr std::uint32_t least_ack_window = 66000, largest_window = 0x7fffffff;
constexpr std::uint8_t no_scaling = 0xf;

struct Segment {
    std::uint32_t seq, end, acked, sacked;
    std::uint16_t window;
    std::uint8_t flags;  ///< without PSH, ECE and CWR

    [[nodiscard]] Index index() const noexcept {
        if ((flags & rst) != 0) return index_rst;
        if ((flags & syn) != 0) return (flags & ack) != 0 ? index_syn_ack : index_syn;
        return (flags & fin) != 0 ? index_fin : index_ack;
    }
};

[[nodiscard]] bool possible(std::uint8_t flags) noexcept {
    switch (flags & ~urg) {
        case ack:
        case fin | ack:
        case syn | ack: return (flags & (syn | ack | urg)) != (syn | ack | urg);
        case syn: return true;
        case rst:
        case rst | ack: return (flags & urg) == 0;
        default: return false;
    }
}

/// The highest number that a SACK option names, or `acked`.
[[nodiscard]] std::uint32_t highest_sacked(const std::uint8_t* options, unsigned length, std::uint32_t acked) noexcept {
    constexpr std::uint8_t end_of_options = 0, no_operation = 1, selective = 5;
    std::uint32_t highest = acked;
    for (unsigned i = 0; i < length && options[i] != end_of_options;) {
        if (options[i] == no_operation) {
            ++i;
            continue;
        }
        if (i + 2 > length || options[i + 1] < 2 || i + options[i + 1] > length) break;
        for (unsigned k = i + 2; options[i] == selective && k + 8 <= i + options[i + 1]; k += 8) {
            const std::uint32_t end = load_be32(options + k + 4);
            if (before(acked, end) && before(highest, end)) highest = end;
        }
        i += options[i + 1];
    }
    return highest;
}

/// False for a bad packet.
[[nodiscard]] bool read_segment(const std::uint8_t* frame, std::uint32_t frame_size, Segment& segment) noexcept {
    constexpr std::uint8_t protocol_tcp = 6;
    const Headers headers = locate(frame, frame_size);
    if (headers.l4 == 0 || headers.fragment || headers.l4_protocol != protocol_tcp) return false;
    const std::uint8_t* tcp = frame + headers.l4;
    const unsigned header_size = (tcp[12] >> 4) * 4U;
    if (header_size < 20 || headers.l4 + header_size > headers.end) return false;
    segment.flags = tcp[13] & (fin | syn | rst | ack | urg);
    if (!possible(segment.flags)) return false;
    const unsigned controls = ((segment.flags & syn) != 0) + ((segment.flags & fin) != 0);
    segment.seq = load_be32(tcp + 4);
    segment.end = segment.seq + (headers.end - headers.l4 - header_size) + controls;
    segment.acked = load_be32(tcp + 8);
    if ((segment.flags & rst) != 0 && segment.acked == 0) segment.flags &= static_cast<std::uint8_t>(~ack);
    segment.sacked = highest_sacked(tcp + 20, header_size - 20, segment.acked);
    segment.window = load_be16(tcp + 14);
    return true;
}

/// The object as fields, for as long as it is held.
class Connection {
public:
    Connection(ConnTrack::Image& image, Direction direction) noexcept
        : image_(image),
          direction_(direction),
          own_(sides[static_cast<unsigned>(direction)]),
          peer_(sides[1 - static_cast<unsigned>(direction)]) {}

    [[nodiscard]] bool tracked() const noexcept { return get(valid) != 0 && get(freeze_track) == 0; }
    void give_up() noexcept { set(valid, 0); }

    /// A SYN or SYN-ACK can only be one of those that made the connection, once more.
    [[nodiscard]] bool repeats_handshake(const Segment& segment) const noexcept {
        const bool initiates = direction_ == Direction::initiator;
        return segment.index() == (initiates ? index_syn : index_syn_ack) && !before(get(own_.sent_end), segment.end) &&
               (initiates || !before(get(peer_.sent_end), segment.acked));
    }
    [[nodiscard]] bool is_open() const noexcept { return get(state_bits) != syn_recv; }

    [[nodiscard]] bool in_window(const Segment& segment) const noexcept {
        if (get(own_.liberal) != 0) return true;
        const std::uint32_t peer_end = get(peer_.sent_end), peer_window = std::min(get(peer_.max_win), largest_window);
        const bool resets = (segment.flags & rst) != 0;
        if (resets && get(peer_.max_ack_seen) != 0 && before(segment.seq, get(peer_.max_ack))) return false;
        if (before(get(own_.reply_end), segment.seq)) return false;
        if (peer_window != 0 && before(segment.end, get(own_.sent_end) - peer_window)) return false;
        if ((segment.flags & ack) == 0) return true;
        const std::uint64_t scaled = static_cast<std::uint64_t>(get(own_.max_win)) << get(max_ack_window);
        const auto window =
            static_cast<std::uint32_t>(std::clamp<std::uint64_t>(scaled, least_ack_window, largest_window));
        const std::uint32_t sacked = sacked_by(segment);
        return !before(peer_end, sacked) && !before(sacked, peer_end - window);
    }

    void move_windows(const Segment& segment) noexcept {
        const std::uint32_t scale = get(own_.scale);
        const bool scaled = (segment.flags & syn) == 0 && scale != no_scaling;
        const std::uint32_t window = static_cast<std::uint32_t>(segment.window) << (scaled ? scale : 0);
        if (before(get(own_.sent_end), segment.end)) {
            set(own_.sent_end, segment.end);
            set(own_.data_unacked, 1);
        }
        if ((segment.flags & rst) != 0) return;
        // Without an ACK flag there is no acknowledgement, but there is a window.
        const bool acknowledges = (segment.flags & ack) != 0;
        const std::uint32_t acked = acknowledges ? segment.acked : get(peer_.sent_end);
        const std::uint32_t sacked = acknowledges ? sacked_by(segment) : acked;
        set(own_.max_win, std::min(std::max(get(own_.max_win), window + (sacked - acked)), largest_window));
        // What was sent past the window was allowed by one that nobody has seen.
        const std::uint32_t allowed = get(own_.reply_end);
        if (get(peer_.max_win) != 0 && before(allowed, segment.end)) {
            const std::uint64_t more = std::uint64_t{get(peer_.max_win)} + (segment.end - allowed);
            set(peer_.max_win, static_cast<std::uint32_t>(std::min<std::uint64_t>(more, largest_window)));
        }
        const std::uint32_t reach = sacked + std::max<std::uint32_t>(window, 1);
        if (before(get(peer_.reply_end), reach)) set(peer_.reply_end, reach);
        if (!acknowledges) return;
        if (get(own_.max_ack_seen) == 0 || before(get(own_.max_ack), acked)) set(own_.max_ack, acked);
        set(own_.max_ack_seen, 1);
        if (acked == get(peer_.sent_end)) set(peer_.data_unacked, 0);
    }

    /// True when the state is another one now.
    [[nodiscard]] bool move_state(const Segment& segment) noexcept {
        const auto was = static_cast<State>(get(state_bits));
        if (was >= established && segment.index() == index_ack) set(connection_assured, 1);
        if ((segment.flags & fin) != 0) set(own_.close_initiated, 1);
        const State now = (segment.flags & rst) != 0 ? time_wait : next(was, segment);
        set(state_bits, now);
        return now != was;
    }

    void remember(const Segment& segment) noexcept {
        const std::uint32_t from = direction_ == Direction::initiator ? 1 : 0;
        const bool again = segment.index() == index_ack && get(last_index) == index_ack && get(last_dir) == from &&
                           get(last_seq) == segment.seq && get(last_acked) == segment.acked &&
                           get(last_end) == segment.end && get(last_win) == segment.window;
        const std::uint32_t times = again ? std::min(get(retransmissions) + 1, 7U) : 0;
        set(retransmissions, times);
        if (times > get(limit)) set(limit_exceeded, 1);
        set(last_dir, from);
        set(last_index, segment.index());
        set(last_seq, segment.seq);
        set(last_acked, segment.acked);
        set(last_end, segment.end);
        set(last_win, segment.window);
        set(heartbeat, 1);
    }

private:
    [[nodiscard]] std::uint32_t sacked_by(const Segment& segment) const noexcept {
        return get(sack_permitted) != 0 ? segment.sacked : segment.acked;
    }

    [[nodiscard]] State next(State was, const Segment& segment) const noexcept {
        if (was == time_wait) return was;
        const bool own_closed = get(own_.close_initiated) != 0, peer_closed = get(peer_.close_initiated) != 0;
        const bool own_acked = get(own_.data_unacked) == 0, peer_acked = get(peer_.data_unacked) == 0;
        if (own_closed && peer_closed) return own_acked && peer_acked ? time_wait : last_ack;
        if (own_closed || peer_closed) return (own_closed ? own_acked : peer_acked) ? close_wait : fin_wait;
        const bool answers = direction_ == Direction::initiator && segment.index() == index_ack;
        return was == syn_recv && answers ? established : was;
    }

    [[nodiscard]] std::uint32_t get(Bits bits) const noexcept {
        if (bits.length == 32) return load_be32(&image_[bits.at / 8]);
        if (bits.length == 16) return load_be16(&image_[bits.at / 8]);
        return image_[bits.at / 8] >> (8 - bits.at % 8 - bits.length) & ((1U << bits.length) - 1);
    }
    void set(Bits bits, std::uint32_t value) noexcept {
        std::uint8_t* at = &image_[bits.at / 8];
        if (bits.length == 32) return store_be32(at, value);
        if (bits.length == 16) return store_be16(at, static_cast<std::uint16_t>(value));
        const unsigned shift = 8 - bits.at % 8 - bits.length;
        const std::uint32_t mask = ((1U << bits.length) - 1) << shift;
        *at = static_cast<std::uint8_t>((*at & ~mask) | (value << shift & mask));
    }

    ConnTrack::Image& image_;
    const Direction direction_;
    const Side own_, peer_;
};

}  // namespace

ConnTrack::Image ConnTrack::exchange(const Image& image, std::uint64_t bytes) noexcept {
    const Hold hold(taken_);
    const Image was = image_;
    for (unsigned i = 0; i < size; ++i) {
        if ((bytes >> (63 - i) & 1) != 0) image_[i] = image[i];
    }
    return was;
}

std::uint8_t ConnTrack::track(Direction direction, const std::uint8_t* frame, std::uint32_t frame_size) noexcept {
    Segment segment{};
    const bool good = read_segment(frame, frame_size, segment);
    const Hold hold(taken_);
    Connection connection(image_, direction);
    if (!connection.tracked()) return trap;
    if (!good) return invalid | bad_packet;
    const bool begins = (segment.flags & syn) != 0, repeats = begins && connection.repeats_handshake(segment);
    if (repeats && connection.is_open()) return 0;
    if ((begins && !repeats) || !connection.in_window(segment)) {
        connection.give_up();
        return invalid;
    }
    connection.move_windows(segment);
    const bool changed = connection.move_state(segment);
    connection.remember(segment);
    return changed ? state_changed : 0;
}

}  // namespace ovsdr::soft
