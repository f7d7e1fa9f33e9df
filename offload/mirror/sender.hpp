// A mirror's way to its collector: what is appended here is in the collector's file, or it is counted as lost.
//
// Model. A producer appends frames to a ring (segment_ring.hpp). A thread of the sender's connects to the collector,
// writes what is sealed, several segments at a time, and releases what the collector has acknowledged and the NIC has
// done with. When the connection fails in any way, another is made, with another queue pair, and the session goes on
// behind what the collector has. Meanwhile the ring fills; when it is full, frames are dropped and counted, and the
// next segment tells the collector how many.
//
// A segment that the collector calls bad is written again. If the ring's own memory has changed since the segment was
// sealed, it is emptied first: its frames are counted as damaged, and the collector learns their number.
//
// Threads: append(), tick() and finish() by one producer; stats() by anybody. Errors after create() are retried for
// ever; stats() has the last one.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "offload/mirror/connection.hpp"
#include "offload/mirror/message_socket.hpp"
#include "offload/mirror/segment_ring.hpp"

namespace ovsdr::mirror {

struct SenderSpec {
    std::shared_ptr<dr::Device> device;
    PortAddress address{};
    std::string host, service;             ///< of the collector
    std::string mirror;                    ///< its name
    std::uint16_t application_tag;
    Geometry geometry;
    std::uint32_t snap_length = 65535;
    std::vector<MirrorInterface> interfaces;
    std::chrono::milliseconds seal_after{100};    ///< a segment that is not full is sent when it is so old
    std::chrono::milliseconds retry_after{1000};  ///< between two attempts to connect
};

struct SenderStats {
    bool connected = false;
    bool finished = false;            ///< nothing more comes, and the collector has it all
    std::uint64_t frames = 0;         ///< appended
    std::uint64_t dropped = 0;        ///< frames that found no room
    std::uint64_t damaged = 0;        ///< frames that were in segments whose memory changed in the ring
    std::uint64_t sealed = 0;         ///< segments
    std::uint64_t acknowledged = 0;   ///< segments
    std::uint64_t released = 0;       ///< segments whose room in the ring is free again
    std::uint64_t resent = 0;         ///< segments written again because the collector called them bad
    std::array<std::uint64_t, 8> bad{};   ///< by BadKind
    std::uint64_t connections = 0;    ///< made so far
    std::string last_error;           ///< why the last connection was not made, or ended
    std::string last_bad;             ///< the last segment that was called bad: which, where, how
};

class Sender {
public:
    [[nodiscard]] static Result<std::unique_ptr<Sender>> create(SenderSpec spec) noexcept;
    /// What is not acknowledged yet is lost: finish() first.
    ~Sender();
    Sender(const Sender&) = delete;
    Sender& operator=(const Sender&) = delete;

    /// False: dropped. Nothing is allocated, and nobody waits.
    bool append(const pcapng::EnhancedPacket& packet) noexcept;
    /// Seals what has become old. To be called every seal_after or so.
    void tick() noexcept;
    /// No more frames come: true when the collector has everything within the time.
    bool finish(std::chrono::milliseconds within);

    [[nodiscard]] SenderStats stats() const;
    [[nodiscard]] std::uint64_t session() const noexcept { return session_; }
    /// The ring's memory, for tests that damage it.
    [[nodiscard]] std::span<std::byte> memory() noexcept { return memory_.get(); }

private:
    /// Pages of our own.
    class Pages {
    public:
        explicit Pages(std::size_t size);
        ~Pages();
        Pages(const Pages&) = delete;
        Pages& operator=(const Pages&) = delete;
        [[nodiscard]] std::span<std::byte> get() const noexcept { return bytes_; }

    private:
        std::span<std::byte> bytes_;
    };
    /// What lives as long as one connection.
    struct Link;

    explicit Sender(SenderSpec spec);
    [[nodiscard]] Result<void> start();
    void run() noexcept;
    [[nodiscard]] Result<void> serve();
    [[nodiscard]] Result<Accept> shake_hands(Link& link);
    [[nodiscard]] Result<void> turn(Link& link);
    [[nodiscard]] Result<void> hear(Link& link);
    [[nodiscard]] Result<void> hear_bad(Link& link, const Bad& bad);
    [[nodiscard]] Result<void> reap(Link& link);
    [[nodiscard]] Result<void> post(Link& link);
    [[nodiscard]] Result<void> post_one(Link& link, std::uint64_t sequence);
    void release(Link& link);
    void wait(Link& link) const;
    void wake() const noexcept;
    void note(const Error& error);

    const SenderSpec spec_;
    const std::uint64_t session_;
    const Pages memory_;
    Owner<ibv_mr> mr_;
    SegmentRing ring_;
    int wake_ = -1, stop_ = -1;   ///< eventfds
    std::atomic<bool> finishing_{false}, stopping_{false};

    mutable std::mutex mutex_;    ///< of stats_
    std::condition_variable finished_changed_;
    SenderStats stats_;
    // The thread's own.
    std::uint64_t acknowledged_ = 0;
    bool finished_ = false;
    std::thread thread_;
};

}  // namespace ovsdr::mirror
