// One tracked TCP connection: a state machine and the windows of both directions, checked and moved on packet by
// packet.
//
// The object is the device's own 64 bytes (conn_track_aso, big-endian), which an application fills when it has seen the
// SYN and the SYN-ACK:
//     reply_dir, original_dir (16 bytes each: max_ack, max_win, reply_end, sent_end); last_end, last_ack, last_seq,
//     last_win, last_dir, last_index; per direction scale, close_initiated, liberal_enabled, data_unacked, max_ack;
//     valid, state, freeze_track, connection_assured, sack_permitted, challenged_acked, heartbeat, max_ack_window,
//     retransmission_counter, retransmission_limit_exceeded, retransmission_limit.
// States: 0 SYN-ACK seen, 1 established, 2 first FIN, 3 first FIN acknowledged, 4 second FIN, 5 both acknowledged.
//
// The verdict goes into a register's low byte: bits 7..6 valid 0, invalid 1, trap 2; bit 1 the state has changed; bit 0
// the packet is bad.
//
// The layout, what each field holds, the states and the verdict's bits are public (DPDK's mlx5_prm.h, rte_flow.h and
// mlx5_flow.h). How the device checks is not; here it does what those fields are for, after G. van Rooij, "Real
// Stateful TCP Packet Filtering in IP Filter", as Linux does:
//   - Without `valid`, or with freeze_track: trap, and nothing changes.
//   - Bad (and invalid), and nothing changes: no TCP segment, a fragment, a header that is cut short, flags that
//     contradict.
//   - With n = max(66000, max_win << max_ack_window) of the sender, and the receiver's own values: a segment from `seq`
//     to `end` that acknowledges up to `ack` is in its window if seq <= reply_end, end >= sent_end - receiver's
//     max_win, ack <= receiver's sent_end, ack >= receiver's sent_end - n, and, for a RST, seq >= receiver's max_ack.
//     liberal_enabled: each segment is. No window is larger than 2^31 - 1.
//   - Invalid, and `valid` goes, as rte_flow.h has it ("an invalid state is set"): a segment outside; a SYN or SYN-ACK
//     that is no repetition of the connection's own, as are those that go its way with numbers that were used before.
//     From state 1 on a repetition changes nothing: it was late, or an acknowledgement was lost.
//   - A SACK option's highest number counts as acknowledged where sack_permitted says so; challenged_acked stays as
//     written. In a RST an acknowledgement of 0 is none.
//   - RST ends in state 5, as there is no other closed one, and nothing leads out of it.
//   - A segment like the one before counts in retransmission_counter; past the limit retransmission_limit_exceeded is
//     set, and that is all.
//
// Sharing. One worker at a time has the object, for the tens of nanoseconds of a check: segments of a connection are
// judged one after another, as 64 bytes of state allow no other way. Workers with other connections never meet.
//
// Threads: any.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

namespace ovsdr::soft {

class ConnTrack {
public:
    static constexpr unsigned size = 64;  ///< bytes
    using Image = std::array<std::uint8_t, size>;

    enum class Direction : std::uint8_t { initiator = 0, responder = 1 };

    /// What a verdict is made of.
    static constexpr std::uint8_t invalid = 1 << 6, trap = 2 << 6, state_changed = 1 << 1, bad_packet = 1 << 0;

    ConnTrack() = default;
    ConnTrack(const ConnTrack&) = delete;
    ConnTrack& operator=(const ConnTrack&) = delete;

    /// The object as it is; the bytes that `bytes` selects (bit 63: byte 0) are replaced.
    Image exchange(const Image& image, std::uint64_t bytes) noexcept;

    /// Judges a frame that goes in `direction`, and moves on.
    [[nodiscard]] std::uint8_t track(Direction direction, const std::uint8_t* frame, std::uint32_t frame_size) noexcept;

private:
    Image image_{};
    std::atomic_flag taken_;
};

}  // namespace ovsdr::soft
