// A storage mirror of a switch: takes frames out of the queues of devices and from software, and gives each to the
// sender once.
//
// Model. Copies that devices take come up on a queue of each device that is this mirror's alone (slowpath::CopyQueue of
// a mirror_kind()). One thread of the mirror's receives from all of them, in batches, and sleeps while nothing comes.
// It also has segments sealed that have become old. Frames that software forwards come by send(), from any thread; the
// device's filter and its sampling are done to them here, in the same sense. Both ways end in the ring of the session's
// sender. Where the ring has no room the frame is dropped and counted: nobody waits for a collector.
//
// A session is a Sender and its list of interfaces. It can be replaced while frames come: each is in the one or in the
// other. Counters are the mirror's and go on. What a session that has ended could not deliver is lost: it is counted
// here, and the next session's first header tells its collector.
//
// The frames of the handshakes of this process's mirrors (own_connections.hpp) are left out, whichever way they come.
//
// Time. A frame has the realtime clock of the moment when its batch was taken: all frames of a batch (32 at most) have
// the same. Completions' own times are not asked for.
//
// Threads: any, but for what is said. The lock is held for one batch at a time: software waits for the thread no longer
// than 32 frames take to be copied into the ring.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "offload/mirror/interface_list.hpp"
#include "offload/mirror/sender.hpp"
#include "offload/slowpath/copy_queue.hpp"

namespace ovsdr::mirror {

/// A frame that software forwards to the mirror. `in_port`: of the datapath, the one that it came in by.
struct SoftwareFrame {
    std::span<const std::byte> bytes;
    dr::OdpPort in_port;
};

/// In frames.
struct MirrorCounts {
    std::uint64_t taken = 0, taken_bytes = 0;   ///< into the ring; bytes as on the wire, before they are cut
    std::uint64_t dropped = 0;                  ///< no room in the ring
    std::uint64_t software = 0;                 ///< came by send(), those that follow among them
    std::uint64_t software_passed_over = 0;     ///< by sampling
    std::uint64_t software_filtered = 0;        ///< of no service
    std::uint64_t own = 0;                      ///< of mirrors' handshakes: left out
    std::uint64_t undelivered = 0;              ///< taken, but by a session that ended before its collector had them
};

class Session {
public:
    /// `spec.interfaces` are set here. `names` outlives the session.
    [[nodiscard]] static Result<std::unique_ptr<Session>> create(SenderSpec spec, const PortNames& names) noexcept;

    [[nodiscard]] Sender& sender() noexcept { return *sender_; }
    /// False: dropped. By one at a time.
    bool append(std::span<const std::byte> frame, std::size_t original_size, dr::OdpPort in_port,
                std::uint64_t time) noexcept;

private:
    explicit Session(InterfaceList interfaces) noexcept : interfaces_(std::move(interfaces)) {}
    [[nodiscard]] std::uint32_t interface_of(dr::OdpPort port) noexcept;

    InterfaceList interfaces_;
    std::unique_ptr<Sender> sender_;
};

class Mirror {
public:
    /// A queue and what the thread found in it.
    struct Source {
        explicit Source(std::shared_ptr<slowpath::CopyQueue> opened) noexcept : queue(std::move(opened)) {}
        const std::shared_ptr<slowpath::CopyQueue> queue;
        std::atomic<std::uint64_t> without_work = 0;   ///< copies that came after their megaflows had gone
        std::atomic<bool> leaving = false;             ///< nothing more comes: let go of it when it is empty
        /// The thread is to look at the queue once more then, or later.
        std::atomic<slowpath::CopyQueue::Clock::time_point> look_again{slowpath::CopyQueue::Clock::time_point{}};

        // The thread's own. A queue is replaced again while others keep the thread from its sleep.
        slowpath::CopyQueue::Tended tend() noexcept;
        [[nodiscard]] bool tends_again() const noexcept;
        std::optional<slowpath::CopyQueue::Clock::time_point> tend_again;
    };

    [[nodiscard]] static Result<std::unique_ptr<Mirror>> start(std::unique_ptr<Session> session,
                                                               dr::MirrorSteering steering) noexcept;
    /// The thread empties the queues that have been stopped, and ends. The session goes as it is: finish it first.
    ~Mirror();
    Mirror(const Mirror&) = delete;
    Mirror& operator=(const Mirror&) = delete;

    /// Frames go there from now on. Returns the session before, for somebody to finish.
    [[nodiscard]] std::shared_ptr<Session> replace(std::unique_ptr<Session> session) noexcept;
    /// What the session before could not deliver.
    void add_undelivered(const SegmentRing::Left& left) noexcept;
    /// For frames of software; devices are told by Eswitch::set_mirror_port().
    void steer(dr::MirrorSteering steering);

    /// Receives from the queue from now on.
    [[nodiscard]] std::shared_ptr<Source> add(std::shared_ptr<slowpath::CopyQueue> queue);
    /// Stops the queue. What has come up is still taken, a moment later.
    void remove(Source& source) noexcept;
    /// A queue has something to do that is no copy.
    void wake() const noexcept;
    /// Has the thread look at the queue once more then, or later.
    void look_later(Source& source, slowpath::CopyQueue::Clock::time_point when) const noexcept;

    /// From any thread; frames of one call have the same time.
    void send(std::span<const SoftwareFrame> frames) noexcept;

    /// Nothing more is received: the thread has taken all that was in stopped queues and ended. Of queues that have not
    /// been stopped it takes as much as they could hold, and no more: copies may come faster than it takes them.
    void stop_receiving() noexcept;
    /// As Sender::finish(); frames that come meanwhile and later are dropped, and nobody waits who brings one. After
    /// stop_receiving(). Whoever calls it while somebody else does waits for him first.
    bool finish(std::chrono::milliseconds within);
    /// As Sender::abandon(), after finish(); once, for whoever is first.
    SegmentRing::Left abandon() noexcept;

    [[nodiscard]] MirrorCounts counts() const;
    [[nodiscard]] SenderStats sender_stats() const;
    [[nodiscard]] std::uint64_t session_number() const;

private:
    using Clock = std::chrono::steady_clock;

    Mirror(std::unique_ptr<Session> session, dr::MirrorSteering steering) noexcept
        : session_(std::move(session)), steering_(std::move(steering)) {}
    void run() noexcept;
    void look_for_sources();
    bool receive() noexcept;
    void take(Source& source, std::span<const slowpath::Frame> frames) noexcept;
    void append(std::span<const std::byte> frame, std::size_t original_size, dr::OdpPort in_port,
                std::uint64_t time) noexcept;
    [[nodiscard]] bool is_own(std::span<const std::byte> frame) noexcept;
    [[nodiscard]] bool is_wanted(std::span<const std::byte> frame) noexcept;
    [[nodiscard]] bool tick() noexcept;
    void sleep(bool something_is_unsealed) noexcept;
    [[nodiscard]] bool has_leaving() const noexcept;

    mutable std::mutex mutex_;   ///< for a batch
    std::shared_ptr<Session> session_;   ///< once `ending_`, finish() is its only producer
    bool ending_ = false;
    OwnConnections::Look own_;
    dr::MirrorSteering steering_;
    MirrorCounts counts_;
    std::uint64_t random_ = 0;
    bool ticks_ = false;         ///< the thread will look at segments by itself

    mutable std::mutex sources_mutex_;
    std::vector<std::shared_ptr<Source>> sources_;
    std::atomic<unsigned> version_ = 0;   ///< counted when sources_ has been changed

    std::mutex finish_mutex_;   ///< of who finishes the session
    bool abandoned_ = false;

    std::mutex join_mutex_;
    std::atomic<bool> stopping_ = false;
    int wake_fd_ = -1;
    std::thread thread_;
    // The thread's own.
    std::vector<std::shared_ptr<Source>> received_from_;
    unsigned seen_ = 0;
    Clock::time_point next_tick_{};
};

}  // namespace ovsdr::mirror
