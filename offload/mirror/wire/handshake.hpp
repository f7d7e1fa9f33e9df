// What switch and collector say to each other over TCP, beside the segments that go by RDMA.
//
// Model. The switch connects and says Hello. The collector says Accept, with the queue pair and the keys to write to,
// or Refuse, with the reason, and closes. From then on the switch writes segments; the collector says Progress when
// some are safe, Bad when one has to be sent again. While its disk keeps it waiting it gives a sign of life every few
// seconds: before Accept that is Wait, as often as it likes; behind it a Progress with the number of the one before. The switch says Finished when nothing more comes; the collector's
// last Progress answers it. Either end may close at any time: a session outlives its connections, and another Hello
// with its number goes on behind what the collector has.
//
// Frame: magic "DRMH", version, type (16 bits each), size of what follows (32 bits, most_payload at most). Numbers have
// their least significant byte first, texts their size in front. A version other than ours is refused whole: what it
// would mean is not guessed.
//
// Bounds. Every number that somebody computes with is looked at here: geometry (segment.hpp), 24 bits of queue pairs
// and PSNs, path MTUs that there are, printable texts of limited length, a key per slot, a part of a file that is no
// more than the file. A message with bytes left over is refused.
//
// Threads: values; a MessageReader by one at a time.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <tl/expected.hpp>
#include <variant>
#include <vector>

#include "offload/mirror/wire/segment.hpp"

namespace ovsdr::mirror {

inline constexpr std::uint16_t handshake_version = 1;
inline constexpr std::size_t frame_header_size = 12, most_payload = 32 << 10;
/// Of a session: nobody who adds a ring's slots to a segment's number comes round.
inline constexpr std::uint64_t most_segments = 1ull << 62;
/// Of a file, in bytes: whoever makes a percentage of it does not overflow.
inline constexpr std::uint64_t largest_file = 1ull << 56;
inline constexpr std::size_t longest_name = 64, longest_reason = 400, most_interfaces = 256;

/// One end of the reliable connection.
struct Endpoint {
    std::array<std::uint8_t, 16> gid;   ///< network byte order, as ibv_gid
    std::uint32_t qpn;
    std::uint32_t psn;                  ///< of the first packet that this end sends
    ibv_mtu mtu;                        ///< the largest that its port can

    [[nodiscard]] bool operator==(const Endpoint&) const noexcept = default;
};

/// A pcapng interface of the mirror; packets name it by its place in the list.
struct MirrorInterface {
    std::string name;
    std::uint32_t snap_length;

    [[nodiscard]] bool operator==(const MirrorInterface&) const noexcept = default;
};

/// Why no Hello has such a list; empty where one can.
[[nodiscard]] std::string fault_of(const std::vector<MirrorInterface>& interfaces);

struct Hello {
    std::uint64_t session;          ///< random, not 0; the same after each reconnect
    std::uint64_t oldest;           ///< the first segment that the switch still has
    std::uint16_t application_tag;
    Geometry geometry;
    Endpoint endpoint;
    std::string mirror;             ///< name of the mirror, as files are called
    std::vector<MirrorInterface> interfaces;

    [[nodiscard]] bool operator==(const Hello&) const noexcept = default;
};

/// When a segment counts as acknowledged.
enum class Durability : std::uint8_t {
    written = 1,   ///< the kernel has it: it survives the collector, not the machine
    synced = 2,    ///< fdatasync() has returned
};
[[nodiscard]] const char* text_of(Durability durability) noexcept;

/// Slot i is written to at address 0 of keys[i].
struct Accept {
    std::uint64_t next;             ///< the first segment that the collector wants
    Durability durability;
    Endpoint endpoint;
    std::vector<std::uint32_t> keys;

    [[nodiscard]] bool operator==(const Accept&) const noexcept = default;
};

enum class RefuseReason : std::uint8_t { malformed = 1, version = 2, geometry = 3, session = 4, busy = 5, device = 6 };
struct Refuse {
    RefuseReason reason;
    std::string detail;

    [[nodiscard]] bool operator==(const Refuse&) const noexcept = default;
};

/// Segments below `next` are as durable as promised, and their slots take the segments that come `slots` later.
struct Progress {
    std::uint64_t next;

    [[nodiscard]] bool operator==(const Progress&) const noexcept = default;
};

enum class BadKind : std::uint8_t {
    guard = 1,             ///< of a block
    application_tag = 2,   ///< of a block
    reference_tag = 3,     ///< of a block
    header = 4,            ///< no header, or its CRC is wrong
    sequence = 5,          ///< the header is another segment's: an old one, or one of another slot
    payload = 6,           ///< the payload's CRC is wrong, although every block was right on the wire
    size = 7,              ///< more or less came than the header says
};
[[nodiscard]] const char* text_of(BadKind kind) noexcept;

/// A segment to be sent again. `offset`: in the segment's data, fields not counted.
struct Bad {
    std::uint64_t sequence;
    BadKind kind;
    std::uint32_t offset;
    std::uint64_t actual;
    std::uint64_t expected;

    [[nodiscard]] bool operator==(const Bad&) const noexcept = default;
};

/// There will be no segment `end`; all below it will come.
struct Finished {
    std::uint64_t end;

    [[nodiscard]] bool operator==(const Finished&) const noexcept = default;
};

/// Between Hello and Accept or Refuse: the collector is reading the session's file, and the switch need not give it up.
struct Wait {
    std::uint64_t read;   ///< bytes
    std::uint64_t size;   ///< of the file, `read` or more; 0: reading has not begun

    [[nodiscard]] bool operator==(const Wait&) const noexcept = default;
};

/// In the order of their types on the wire, from 1.
using Message = std::variant<Hello, Accept, Refuse, Progress, Bad, Finished, Wait>;

[[nodiscard]] std::vector<std::byte> encode(const Message& message);

/// Why bytes are no message: what the peer is told.
using Malformed = Refuse;

/// `payload`: what stands behind a frame's header whose type is `type`.
[[nodiscard]] tl::expected<Message, Malformed> decode(std::uint16_t type, std::span<const std::byte> payload);

/// Makes messages of a stream of bytes. It keeps one message's bytes at most. After an error it stays with it.
class MessageReader {
public:
    /// Takes bytes from the front of `bytes`, and moves it behind what was taken: until a message is complete, or all
    /// are taken. Nothing: more bytes are needed.
    [[nodiscard]] tl::expected<std::optional<Message>, Malformed> read(std::span<const std::byte>& bytes);

private:
    [[nodiscard]] tl::expected<std::size_t, Malformed> frame_size() const;

    std::vector<std::byte> frame_;
    std::optional<Malformed> error_;
};

}  // namespace ovsdr::mirror
