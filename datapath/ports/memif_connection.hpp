// The packets' side of a memif connection: shared memory, rings each way, and their wake-ups.
//
// A connection is put together by MemifPort out of what the protocol brings, complete before a worker sees it, and
// never changed afterwards. It dies when no worker can be using it.
//
// The peer is not trusted. What it can write (descriptors, indices) is read once, checked, and only then used; memory
// must be sealed against shrinking, and what a peer can take away all the same (huge pages) is copied under guard and
// holds no rings; a ring that makes no sense makes the connection broken, which ends it. So does a frame in too many
// pieces. A frame that is larger than a buffer comes out cut to the buffer's size, which is more than any MTU with that
// buffer allows.
//
// Each direction has as many rings as the client made, numbered from 0. A ring with a higher number gives nothing and
// takes nothing. Rings that a peer has put into each other's place harm nobody but that peer.
//
// Threads: receive() and arm() of a ring from one worker; send() by a ring from one thread at a time; broken() from
// any.
#pragma once

#include <rte_mempool.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "datapath/ports/memif_layout.hpp"
#include "datapath/ports/memif_wire.hpp"
#include "datapath/vport_id.hpp"

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

/// Each way. More than there can be workers would have nothing to do.
inline constexpr unsigned most_rings = max_workers;

enum class Role : std::uint8_t { server, client };

/// Where a ring is, as ADD_RING says it.
struct RingPlace {
    std::uint16_t region = 0;
    std::uint32_t offset = 0;
    std::uint8_t log2_size = 0;
};

class Connection {
public:
    /// `most`: rings each way that there may be, 1 to most_rings.
    Connection(Role role, rte_mempool* pool, unsigned most) noexcept;
    ~Connection();
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;

    // Setting up; these return nullptr, or what is wrong in the words of a DISCONNECT.

    /// Server: the next region that the client offers.
    [[nodiscard]] const char* add_region(const AddRegion& message, FileDescriptor file) noexcept;
    /// Server: the next ring of its direction. `event` must be an eventfd: whatever else it may be, we would write to
    /// it.
    [[nodiscard]] const char* add_ring(const AddRing& message, FileDescriptor event) noexcept;

    /// Client: makes memory with these rings, and their wake-ups. It is not larger than largest_layout.
    [[nodiscard]] const char* make_memory(const Layout& layout) noexcept;

    /// There are rings both ways, and all make sense. No consumer wants to be woken at first.
    [[nodiscard]] const char* complete() noexcept;

    // What a client tells its server.
    [[nodiscard]] int region_descriptor() const noexcept { return regions_[0].file.get(); }
    [[nodiscard]] std::uint64_t region_size() const noexcept { return regions_[0].size; }
    [[nodiscard]] unsigned ring_count(Direction direction) const noexcept { return rings(direction).count; }
    [[nodiscard]] const RingPlace& place(Direction direction, unsigned ring) const noexcept {
        return rings(direction).ends[ring].place;
    }
    /// Wakes the ring's consumer.
    [[nodiscard]] int event(Direction direction, unsigned ring) const noexcept {
        return rings(direction).ends[ring].event.get();
    }
    [[nodiscard]] Direction receiving() const noexcept {
        return role_ == Role::server ? Direction::client_to_server : Direction::server_to_client;
    }
    [[nodiscard]] Direction sending() const noexcept {
        return role_ == Role::server ? Direction::server_to_client : Direction::client_to_server;
    }

    // `ring`: below most_rings.
    [[nodiscard]] std::uint16_t receive(unsigned ring, rte_mbuf** packets, std::uint16_t length) noexcept;
    [[nodiscard]] std::uint16_t send(unsigned ring, rte_mbuf** packets, std::uint16_t length) noexcept;
    /// Whether the peer is to wake us when there is something in the ring.
    void arm(unsigned ring, bool on) noexcept;

    /// The peer has broken the protocol.
    [[nodiscard]] bool broken() const noexcept { return broken_.load(std::memory_order_relaxed); }

private:
    struct Region {
        FileDescriptor file;
        std::byte* memory = nullptr;
        std::uint64_t size = 0;
        bool may_vanish = false;  ///< huge pages: a hole that the peer punches may find none to fill it with
    };
    /// Our end of a ring. Alone in its cache line: each is another worker's.
    struct alignas(64) RingEnd {
        RingPlace place;
        FileDescriptor event;
        Ring* ring = nullptr;    ///< nullptr: there is none of this number
        std::uint16_t size = 0;  ///< of the ring
        std::uint16_t next = 0;  ///< the next descriptor of ours
    };
    struct Rings {
        std::array<RingEnd, most_rings> ends;
        unsigned count = 0;
    };

    [[nodiscard]] Rings& rings(Direction direction) noexcept {
        return direction == receiving() ? from_peer_ : to_peer_;
    }
    [[nodiscard]] const Rings& rings(Direction direction) const noexcept {
        return direction == receiving() ? from_peer_ : to_peer_;
    }
    [[nodiscard]] const char* locate(RingEnd& located) noexcept;
    [[nodiscard]] std::byte* buffer(const Descriptor& descriptor, std::uint32_t length) noexcept;
    [[nodiscard]] rte_mbuf* take_frame(RingEnd& from, std::uint16_t available) noexcept;
    [[nodiscard]] bool put_frame(RingEnd& to, std::uint16_t& available, const rte_mbuf* packet) noexcept;
    void give_back(RingEnd& from) noexcept;
    void wake_consumer(const RingEnd& to) noexcept;

    const Role role_;
    rte_mempool* const pool_;
    const unsigned most_;            ///< rings each way
    const std::uint16_t room_;       ///< of a packet buffer
    std::uint32_t buffer_size_ = 0;  ///< client: of each buffer in the rings
    std::array<Region, most_regions> regions_;
    unsigned region_count_ = 0;
    std::uint64_t mapped_ = 0;       ///< server: of all regions
    Rings from_peer_, to_peer_;
    std::atomic<bool> broken_{false};
};

}  // namespace ovsdr::soft::memif
