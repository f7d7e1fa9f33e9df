// The packets' side of a memif connection: shared memory, one ring each way, and their wake-ups.
//
// A connection is put together by MemifPort out of what the protocol brings, complete before a worker sees it, and
// never changed afterwards. It dies when no worker can be using it.
//
// The peer is not trusted. What it can write (descriptors, indices) is read once, checked, and only then used; memory
// must be sealed against shrinking, and what a peer can take away all the same (huge pages) is copied under guard and
// holds no rings; a ring that makes no sense makes the connection broken, which ends it. A frame that
// is larger than a buffer comes out cut to the buffer's size, which is more than any MTU with that buffer allows.
//
// Threads: receive() and arm() from one worker; send() from one thread at a time; broken() from any.
#pragma once

#include <rte_mempool.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "datapath/ports/memif_wire.hpp"

struct rte_mbuf;

namespace ovsdr::soft::memif {

/// A file descriptor that is closed with its owner.
class FileDescriptor final {
public:
    FileDescriptor() = default;
    explicit FileDescriptor(int number) noexcept : number_(number) {}
    FileDescriptor(FileDescriptor&& other) noexcept;
    FileDescriptor& operator=(FileDescriptor&& other) noexcept;
    ~FileDescriptor();
    [[nodiscard]] int get() const noexcept { return number_; }

private:
    int number_ = -1;
};

enum class Role : std::uint8_t { server, client };
enum class Direction : std::uint8_t { client_to_server, server_to_client };

/// Where a ring is, as ADD_RING says it.
struct RingPlace {
    std::uint16_t region = 0;
    std::uint32_t offset = 0;
    std::uint8_t log2_size = 0;
};

class Connection {
public:
    Connection(Role role, rte_mempool* pool) noexcept;
    ~Connection();
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;

    // Setting up; these return nullptr, or what is wrong in the words of a DISCONNECT.

    /// Server: the next region that the client offers.
    [[nodiscard]] const char* add_region(const AddRegion& message, FileDescriptor file) noexcept;
    /// `event` must be an eventfd: whatever else it may be, we would write to it.
    [[nodiscard]] const char* add_ring(const AddRing& message, FileDescriptor event) noexcept;

    /// Client: makes memory with both rings, and their wake-ups.
    [[nodiscard]] const char* make_memory(unsigned log2_size, std::uint32_t buffer_size) noexcept;

    /// Both rings are there and make sense. The consumer does not want to be woken at first.
    [[nodiscard]] const char* complete() noexcept;

    // What a client tells its server.
    [[nodiscard]] int region_descriptor() const noexcept { return regions_[0].file.get(); }
    [[nodiscard]] std::uint64_t region_size() const noexcept { return regions_[0].size; }
    [[nodiscard]] const RingPlace& place(Direction direction) const noexcept { return side(direction).place; }
    /// Wakes the direction's consumer; -1 before there is one.
    [[nodiscard]] int event(Direction direction) const noexcept { return side(direction).event.get(); }
    [[nodiscard]] Direction receiving() const noexcept {
        return role_ == Role::server ? Direction::client_to_server : Direction::server_to_client;
    }

    [[nodiscard]] std::uint16_t receive(rte_mbuf** packets, std::uint16_t length) noexcept;
    [[nodiscard]] std::uint16_t send(rte_mbuf** packets, std::uint16_t length) noexcept;
    /// Whether the peer is to wake us.
    void arm(bool on) noexcept;

    /// The peer has broken the protocol.
    [[nodiscard]] bool broken() const noexcept { return broken_.load(std::memory_order_relaxed); }

private:
    struct Region {
        FileDescriptor file;
        std::byte* memory = nullptr;
        std::uint64_t size = 0;
        bool may_vanish = false;  ///< huge pages: a hole that the peer punches may find none to fill it with
    };
    struct Side {
        RingPlace place;
        FileDescriptor event;
        Ring* ring = nullptr;
        std::uint16_t size = 0;  ///< of the ring
        std::uint16_t next = 0;  ///< the next descriptor of ours
    };

    [[nodiscard]] Side& side(Direction direction) noexcept { return sides_[static_cast<unsigned>(direction)]; }
    [[nodiscard]] const Side& side(Direction direction) const noexcept {
        return sides_[static_cast<unsigned>(direction)];
    }
    [[nodiscard]] const char* locate(Side& side) noexcept;
    [[nodiscard]] std::byte* buffer(const Descriptor& descriptor, std::uint32_t length) noexcept;
    [[nodiscard]] rte_mbuf* take_frame(Side& side, std::uint16_t available) noexcept;
    [[nodiscard]] bool put_frame(Side& side, std::uint16_t& available, const rte_mbuf* packet) noexcept;
    void give_back(Side& side) noexcept;
    void wake_consumer(const Side& side) noexcept;

    const Role role_;
    rte_mempool* const pool_;
    const std::uint16_t room_;       ///< of a packet buffer
    std::uint32_t buffer_size_ = 0;  ///< client: of each buffer in the rings
    std::array<Region, most_regions> regions_;
    unsigned region_count_ = 0;
    std::array<Side, 2> sides_;
    std::atomic<bool> broken_{false};
};

}  // namespace ovsdr::soft::memif
