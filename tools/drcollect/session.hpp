// One connection of a switch: from its Hello to its end.
//
// Model. A ring of segments in registered memory, with one signature MKEY per slot that expects exactly the segment
// which comes next there. When a write has arrived, the NIC is asked whether every block was right, and then the
// segment's own header and CRC are checked: session, number, tags, sizes. A bad segment is named to the switch, which
// writes it again; good ones go into the file in their order. Only when they are as durable as promised, and their
// slots expect the segments that come next, is the switch told.
//
// What cannot be written (a full disk) stays in the ring, is tried again, and is not acknowledged: the switch's ring
// fills then. A segment stays in the ring until the file has made it durable: what a failed fdatasync() has lost is
// written again, to another file.
//
// While the session's file is read, and while the disk is slow or takes nothing, the switch gets a sign of life every
// few seconds (sign_of_life.hpp): Wait before Accept, behind it a Progress that says what the one before did.
//
// Threads: run() by one; ask_to_stop() by any.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "offload/mirror/connection.hpp"
#include "offload/mirror/message_socket.hpp"
#include "tools/drcollect/capture_file.hpp"
#include "tools/drcollect/counters.hpp"
#include "tools/drcollect/session_ring.hpp"
#include "tools/drcollect/sign_of_life.hpp"

namespace ovsdr::drcollect {

struct SessionSpec {
    std::shared_ptr<dr::Device> device;
    mirror::PortAddress address{};
    std::string folder;
    FileLimits limits{};
    bool keep_fields = true;                       ///< in the file, so that it can be verified later
    std::uint64_t largest_ring = 256ull << 20;     ///< bytes that a switch may ask for
    std::chrono::milliseconds retry_write{1000};
    SignOfLife::Rhythm sign_of_life{};
};

class Session {
public:
    /// `peer`: who is there, for people. The Hello has been read. `memory`: what rings of all sessions may take.
    Session(const SessionSpec& spec, Counters& counters, MemoryLimit& memory, mirror::MessageSocket socket,
            std::string peer, mirror::Hello hello);
    ~Session();
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

    /// Before run(), to a switch that waits for it. False: it has gone.
    [[nodiscard]] bool show_life();
    /// Until the switch has finished, or somebody has gone. Never throws.
    void run() noexcept;
    /// Instead of run().
    void refuse(const mirror::Refuse& why);
    void ask_to_stop() noexcept;
    /// How the session's last file ended: before run() as others left it, behind it as this one did. Nothing: it has to
    /// be read.
    void know(std::optional<KnownEnd> end) noexcept { known_ = std::move(end); }
    [[nodiscard]] std::optional<KnownEnd> known_end() noexcept { return std::move(known_); }
    [[nodiscard]] std::uint64_t number() const noexcept { return hello_.session; }

    /// The ring, for tests that damage it. Called with each segment between its arrival and the look at its header.
    void (*on_arrival)(std::span<std::byte> segment, std::uint64_t sequence) = nullptr;

private:
    struct Slot {
        bool arrived = false;   ///< and is good
        mirror::SegmentHeader header{};
        /// What the NIC said when a write of no segment had come: it may be of the one that is about to be looked at.
        std::optional<mlx5dv_mkey_err> verdict{};
    };
    using Begun = tl::expected<void, mirror::Refuse>;

    [[nodiscard]] Begun begin();
    [[nodiscard]] Begun make_ring();
    [[nodiscard]] Begun open_file();
    void watch_reading(std::uint64_t read, std::uint64_t size);
    [[nodiscard]] Result<void> open_all();
    [[nodiscard]] Begun accept();
    [[nodiscard]] Result<void> serve();
    [[nodiscard]] Result<void> reap();
    [[nodiscard]] Result<void> take(const ibv_wc& completion);
    [[nodiscard]] Result<void> look_at(std::uint64_t sequence, std::uint32_t arrived_size);
    [[nodiscard]] Result<bool> check_blocks(std::uint64_t sequence);
    [[nodiscard]] Result<void> say_bad(const mirror::Bad& bad);
    [[nodiscard]] Result<void> look_at_all();
    void write_segments();
    [[nodiscard]] Result<void> say_stalled();
    [[nodiscard]] Result<void> open_slots();
    [[nodiscard]] Result<void> hear();
    [[nodiscard]] bool ring_is_open() const noexcept { return opened_ >= base_ + geometry_.slots; }
    void wait();
    void end(const std::string& why, bool finished);

    [[nodiscard]] bool has_to_be_written(std::uint64_t sequence) {
        return slot_of(sequence).arrived && slot_of(sequence).header.sequence == sequence;
    }
    void count_gap(SessionCounters& counted);
    void count_durable(std::uint64_t first, const std::string& wrong);
    [[nodiscard]] Slot& slot_of(std::uint64_t sequence) { return slots_[geometry_.slot_of(sequence)]; }

    const SessionSpec& spec_;
    Counters& counters_;
    MemoryLimit& memory_;
    mirror::MessageSocket socket_;
    const std::string peer_;
    const mirror::Hello hello_;
    const mirror::Geometry geometry_;
    int stop_ = -1;   ///< eventfd
    std::unique_ptr<SessionRing> ring_;
    std::unique_ptr<CaptureFile> file_;
    std::unique_ptr<mirror::Connection> connection_;   ///< goes before the memory that it writes to
    std::vector<Slot> slots_;
    std::uint64_t opened_ = 0;      ///< slots expect segments below it
    std::uint64_t opening_ = 0;     ///< or will, when what is posted completes
    std::uint64_t told_ = 0;        ///< the last Progress
    std::chrono::steady_clock::time_point said_stalled_{};
    std::uint32_t receives_used_ = 0;
    std::optional<std::uint64_t> end_;   ///< the switch has finished
    std::chrono::steady_clock::time_point write_again_{};
    bool stalled_ = false, gap_is_counted_ = false;
    std::uint64_t base_ = 0;        ///< the first segment of this connection
    std::optional<KnownEnd> known_;
    std::unique_ptr<SignOfLife> life_;   ///< goes before the socket that it speaks by
};

}  // namespace ovsdr::drcollect
