// Packets on their way from a thread that forwards them to a process that writes them down.
//
// A ring is a stretch of memory that both have mapped: records, each a header and the bytes kept of a packet, and two
// positions that only grow. The producer never waits: what finds no room is not taken. Records are whole: one that
// would reach over the end begins at the start again, behind a header that says so.
//
// The producer works in two steps. stage() copies a record where the consumer does not look yet; publish() shows
// everything up to a position and takes back what was staged beyond. So a packet may be copied before it is sent, and
// shown only when it has been.
//
// The two do not trust each other. The producer keeps its own position and reads one number of the consumer's, of which
// a wrong value costs this ring's packets and nothing else. The consumer checks each record.
//
// Threads: one producer and one consumer, in one process or two. No lock, no allocation, no system call.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace ovsdr::capture {

/// Seen from the switch: `in` is what it received from a port.
enum class Direction : std::uint8_t { in = 1, out = 2 };

/// An uplink in LAG has two.
inline constexpr unsigned most_interfaces = 2;

/// Before each packet's bytes; both together are rounded up to a multiple of 8.
struct RecordHeader {
    std::uint32_t size;           ///< bytes kept
    std::uint32_t original_size;  ///< bytes of the packet
    std::uint64_t time;           ///< ns, CLOCK_MONOTONIC
    Direction direction;
    std::uint8_t interface;       ///< below most_interfaces
    std::uint16_t unused[3];
};
static_assert(sizeof(RecordHeader) == 24);

/// What has come by one interface. Written by the producer only.
struct SharedCounts {
    std::atomic<std::uint64_t> seen, accepted, dropped;
};

struct Counts {
    std::uint64_t seen = 0;      ///< in the direction that was asked for
    std::uint64_t accepted = 0;  ///< of these, by the filter
    std::uint64_t dropped = 0;   ///< of these, for want of room
};

/// The head of a ring in shared memory. The memory comes zeroed, which is its first state.
struct RingControl {
    alignas(64) std::atomic<std::uint64_t> written;  ///< bytes, the producer's
    std::array<SharedCounts, most_interfaces> counts;
    alignas(64) std::atomic<std::uint64_t> read;     ///< bytes, the consumer's
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free && sizeof(RingControl) == 128);

/// Bytes that a record takes.
[[nodiscard]] constexpr std::uint64_t record_size(std::uint32_t kept) noexcept {
    return (sizeof(RecordHeader) + std::uint64_t{kept} + 7) & ~std::uint64_t{7};
}

class Producer {
public:
    /// `data`: a power of two of bytes, at a multiple of 8. Both outlive the producer.
    Producer(RingControl& control, std::span<std::byte> data) noexcept : control_(&control), data_(data) {}

    /// Copies `header` and header.size bytes from `bytes`; false when there is no room.
    bool stage(const RecordHeader& header, const void* bytes) noexcept;

    /// Behind what has been staged.
    [[nodiscard]] std::uint64_t position() const noexcept { return staged_; }

    /// `position`: the last published one, or what position() said since.
    void publish(std::uint64_t position) noexcept;
    void publish() noexcept { publish(staged_); }

    /// Adds to what the consumer reads as counts.
    void count(unsigned interface, const Counts& more) noexcept;

private:
    RingControl* control_;
    std::span<std::byte> data_;
    std::uint64_t staged_ = 0;
};

class Consumer {
public:
    struct Record {
        RecordHeader header;
        std::span<const std::byte> bytes;  ///< in the ring, until pop()
    };

    Consumer(RingControl& control, std::span<const std::byte> data) noexcept : control_(&control), data_(data) {}

    /// The oldest record; nothing when there is none. Throws std::runtime_error when the ring is damaged.
    [[nodiscard]] std::optional<Record> front();

    /// Gives the room of what front() has returned back to the producer.
    void pop() noexcept;

    [[nodiscard]] Counts counts(unsigned interface) const noexcept;

private:
    RingControl* control_;
    std::span<const std::byte> data_;
    std::uint64_t read_ = 0;
    std::uint64_t next_ = 0;  ///< behind the record that front() has returned
};

}  // namespace ovsdr::capture
