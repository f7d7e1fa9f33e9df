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
// Silence. A connection whose collector says nothing for silent_for has failed, if a Hello is unanswered, a segment is
// not acknowledged or Finished is not answered. Any message is a sign of life.
//
// Standby. With several collectors one is used at a time. When it has not been connected for three times retry_after,
// or was silent for so long, the next in the list is tried, in turn. The session goes on there at the first segment
// that the ring still has: what the collector before has acknowledged is in its files only. Nobody goes back to the
// first before the other has failed.
//
// Keys and certificates are asked for before each connection, so that others count from the next one on. Without them
// nobody is connected to: stats() says in `tls_fault` what this switch lacks.
//
// Interfaces. A frame names its interface by the place in a list that the collector learns with each Hello. A longer
// list ends the connection: the next one says it, and the collector begins another file.
//
// Threads: append(), tick(), has_unsealed() and finish() by one producer; stats() and set_interfaces() by anybody.
// Errors after create() are retried for ever; stats() has the last one.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/pages.hpp"
#include "offload/mirror/collector_address.hpp"
#include "offload/mirror/connection.hpp"
#include "offload/mirror/message_socket.hpp"
#include "offload/mirror/segment_ring.hpp"

namespace ovsdr::mirror {

/// This switch's files as they are now, or why there are none: a sentence for the user. Called by the sender's thread.
using TlsSource = std::function<Result<TlsFiles>()>;

struct SenderSpec {
    std::shared_ptr<dr::Device> device;
    PortAddress address{};
    std::string host, service;             ///< of the collector
    std::vector<CollectorAddress> standby{};   ///< tried when it cannot be reached; the same `tls`
    /// Who the collector is and who this switch is; asked for each connection. Either this or `plain`, which is said by
    /// name: create() refuses neither and both.
    TlsSource tls{};
    bool plain = false;                    ///< neither encrypted nor authenticated
    std::string mirror;                    ///< its name
    std::uint16_t application_tag;
    Geometry geometry;
    std::uint32_t snap_length = 65535;
    std::vector<MirrorInterface> interfaces;
    std::chrono::milliseconds seal_after{100};    ///< a segment that is not full is sent when it is so old
    std::chrono::milliseconds retry_after{1000};  ///< between two attempts to connect
    /// A collector that says nothing for so long, while a Hello is unanswered or segments are under way, has failed.
    std::chrono::milliseconds silent_for{10000};
    /// Called by the sender's thread, without locks, when SenderStats has another `connected`, `collector`,
    /// `last_error`, `tls_fault` or `last_bad`.
    std::function<void()> on_change{};
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
    std::string collector;            ///< HOST:PORT of the one that is used, or tried
    std::string last_error;           ///< why the last connection was not made, or ended, and whose it was
    std::string tls_fault;            ///< what is wrong with this switch's own files for TLS: nobody is tried
    std::string last_bad;             ///< the last segment that was called bad: which, where, how
};

class Sender {
public:
    [[nodiscard]] static Result<std::unique_ptr<Sender>> create(SenderSpec spec) noexcept;
    /// What is not acknowledged yet is lost: finish() first.
    ~Sender();
    Sender(const Sender&) = delete;
    Sender& operator=(const Sender&) = delete;

    /// False: dropped, for want of room or because no interface has the packet's number. Nothing is allocated, and
    /// nobody waits.
    bool append(const pcapng::EnhancedPacket& packet) noexcept;
    /// Counts frames as dropped that were lost elsewhere: the next segment tells the collector. By the producer.
    void drop(std::uint64_t frames) noexcept { ring_.drop(frames); }
    /// Seals what has become old. To be called every seal_after or so.
    void tick() noexcept;
    /// A longer list, for frames that are appended after this. The interfaces that there are stay as they are, since
    /// frames of theirs may be in the ring; EINVAL, with the reason, for another list, and nothing has changed then.
    Result<void> set_interfaces(std::vector<MirrorInterface> interfaces);
    /// There is something that a later tick() has to seal.
    [[nodiscard]] bool has_unsealed() const noexcept { return ring_.has_unsealed(); }
    /// No more frames come: true when the collector has everything within the time.
    bool finish(std::chrono::milliseconds within);
    /// Ends the connection, for good, and tells what the collector has not acknowledged: frames that are lost now, and
    /// drops that it does not know of. By the producer, who appends no more.
    SegmentRing::Left abandon() noexcept;

    [[nodiscard]] SenderStats stats() const;
    [[nodiscard]] std::uint64_t session() const noexcept { return session_; }
    /// The ring's memory, for tests that damage it.
    [[nodiscard]] std::span<std::byte> memory() noexcept { return memory_.get(); }

private:
    /// What lives as long as one connection.
    struct Link;

    explicit Sender(SenderSpec spec);
    [[nodiscard]] Result<void> start();
    void run() noexcept;
    [[nodiscard]] bool attempt();
    [[nodiscard]] Result<std::unique_ptr<TlsFilter>> own_tls() const;
    [[nodiscard]] Result<void> serve(std::unique_ptr<TlsFilter> tls);
    [[nodiscard]] Result<Accept> shake_hands(Link& link);
    [[nodiscard]] Result<Message> await_answer(Link& link) const;
    [[nodiscard]] Result<void> check_silence(Link& link);
    [[nodiscard]] Error silence() const;
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
    void note_tls(const std::string& fault);
    void tell_change() const;
    void choose_collector();
    void end() noexcept;

    const SenderSpec spec_;
    const std::uint64_t session_;
    const Pages memory_;
    Owner<ibv_mr> mr_;
    SegmentRing ring_;
    int wake_ = -1, stop_ = -1;   ///< eventfds
    std::atomic<bool> finishing_{false}, stopping_{false};

    mutable std::mutex mutex_;    ///< of stats_ and interfaces_
    std::condition_variable finished_changed_;
    SenderStats stats_;
    std::vector<MirrorInterface> interfaces_;
    std::atomic<std::size_t> interfaces_length_;   ///< of interfaces_, which never becomes shorter
    // The thread's own.
    std::uint64_t acknowledged_ = 0;
    bool finished_ = false;
    std::size_t collector_ = 0;         ///< 0: the first; n: standby[n - 1]
    std::chrono::steady_clock::time_point reached_{};   ///< when it was connected last, or tried first
    bool has_new_interfaces_ = false;   ///< what the connection ended for
    bool is_hopeless_ = false;          ///< the collector called a segment bad too often
    std::thread thread_;
};

}  // namespace ovsdr::mirror
