// Megaflows that the device had no room for, in line to be tried again.
//
// Model. There are two lines: of those that the device has refused, and of those that it was not asked for. A failure
// need not be everybody's, and those that fail always must not hold up the others: whoever fails goes to the end of
// the refused, the newest of the others comes first, since packets are coming for it, and the two lines take turns.
//
// A thread tries from their fronts, each megaflow once a round: while that works it goes on at once, so that a long
// line is in as fast as the device takes it. After eight failures in a row, or when it has tried all, it rests: 20 ms
// at first, and twice as long whenever eight more have failed, up to a second. A device that is full is asked a few
// times a second, however long the lines are. room() says that something was taken out of the device, and shortens a
// long rest.
//
// Megaflows that wait for a table rather than for room are parked: nobody tries them until unpark(), or the time that
// they were parked until, and then they are those that the device was not asked for. What a megaflow leads to may be
// out of reach for the level of its own table, too: it waits for a change of either.
//
// is_full(): the last megaflows that were put failed one after another. New ones then join the line without asking the
// device, until it takes one. What the thread tries again in vain does not count: a megaflow may need what nobody else
// needs, and must not keep out all others.
//
// Threads: any. The thread calls `try_again` without a lock of the Backlog's; it sleeps while the line is empty.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "offload/dr/ids.hpp"
#include "offload/dr/result.hpp"

namespace ovsdr::dr {

class Backlog {
public:
    /// Tables whose coming or going may let a megaflow in.
    struct Awaited {
        TableKey table, own;
        friend auto operator<=>(const Awaited&, const Awaited&) = default;
    };

private:
    struct Waiting {
        Ufid ufid;
        bool asked;   ///< stands with those that the device has refused
        std::optional<Awaited> parked{};   ///< stands in no line, but waits for these tables
        std::uint32_t round = 0;           ///< that tried it last
    };
    using Line = std::list<Waiting>;

public:
    /// What became of a megaflow that was tried again. `refused`: by the device; it keeps its Place. `not_asked`: the
    /// megaflow has gone, or waits for a table, or needs the device no more, which says nothing about the device.
    enum class Attempt : std::uint8_t { taken, refused, not_asked };
    using TryAgain = std::function<Attempt(const Ufid&)>;
    using Time = std::chrono::steady_clock::time_point;

    /// A megaflow's place in the line, given up when it is destroyed. Move-only; empty by default. The Backlog outlives
    /// it.
    class Place {
    public:
        Place() noexcept = default;
        ~Place() { leave(); }
        Place(Place&& other) noexcept : backlog_(std::exchange(other.backlog_, nullptr)), entry_(other.entry_) {}
        Place& operator=(Place&& other) noexcept {
            std::swap(backlog_, other.backlog_);
            std::swap(entry_, other.entry_);
            return *this;
        }
        [[nodiscard]] explicit operator bool() const noexcept { return backlog_ != nullptr; }
        void leave() noexcept;
        [[nodiscard]] bool is_parked() const noexcept;

    private:
        friend class Backlog;
        Backlog* backlog_ = nullptr;
        Line::iterator entry_;
    };

    explicit Backlog(TryAgain try_again);
    /// Every Place has been given up.
    ~Backlog() { end(); }
    Backlog(const Backlog&) = delete;
    Backlog& operator=(const Backlog&) = delete;

    /// Ends the thread: nothing is tried again when this returns.
    void end() noexcept;

    /// `asked`: the device has refused it already.
    [[nodiscard]] Place join(const Ufid& ufid, bool asked);
    /// `until`: whoever waits for the same table is tried then, too.
    [[nodiscard]] Place park(const Ufid& ufid, const Awaited& awaited, std::optional<Time> until = std::nullopt);
    /// Whoever waits for `table` is tried at once.
    void unpark(TableKey table) noexcept;

    /// What became of an attempt to install a megaflow. `again`: it was the thread's.
    void refused(const Error& why, bool again) noexcept;
    void taken() noexcept;
    /// A rule has left the device.
    void room() noexcept;
    [[nodiscard]] bool is_full() const noexcept { return failures_.load(std::memory_order_relaxed) >= full_after; }

    /// For megaflows that the device was not asked for: why it took none of the last ones.
    [[nodiscard]] Error full() const;

    [[nodiscard]] std::size_t length() const;

    static constexpr unsigned full_after = 8;          ///< failures in a row, but for the thread's
    static constexpr unsigned failures_per_round = 8;
    static constexpr std::chrono::milliseconds shortest_rest{20}, longest_rest{1000};

private:
    using Clock = std::chrono::steady_clock;
    void work() noexcept;
    void try_until_it_fails(std::unique_lock<std::mutex>& lock) noexcept;
    // With the lock.
    [[nodiscard]] Line* next_line() noexcept;
    [[nodiscard]] std::optional<Attempt> try_next(std::unique_lock<std::mutex>& lock) noexcept;
    [[nodiscard]] bool is_empty() const noexcept { return asked_.empty() && unasked_.empty(); }
    [[nodiscard]] Line& line_of(const Waiting& waiting) noexcept;
    void now_in_line() noexcept;
    void to_front(TableKey table) noexcept;
    void unpark_due() noexcept;
    void wait_until(std::unique_lock<std::mutex>& lock, Time time) noexcept;

    TryAgain try_again_;
    std::atomic<unsigned> failures_{0};     ///< in a row, but for the thread's
    mutable std::mutex refusal_mutex_;      ///< held for a moment
    std::string refusal_;                   ///< what the last failure was
    std::atomic<bool> waiting_{false};      ///< somebody stands in line
    mutable std::mutex mutex_;
    std::condition_variable wake_;
    Line asked_, unasked_;
    std::map<Awaited, Line> parked_;        ///< none empty
    std::map<TableKey, Time> unpark_at_;    ///< where somebody is parked until a time, the first of them
    bool asked_is_next_ = false;            ///< whose turn it is
    std::optional<Line::iterator> tried_;   ///< without the lock; nobody once it has left
    std::uint32_t round_ = 0;
    std::chrono::milliseconds rest_ = shortest_rest;
    unsigned futile_ = 0;                   ///< attempts in a row that the device refused, since rest_ is so long
    Clock::time_point last_round_{}, next_round_{};
    bool ending_ = false;
    std::thread thread_;
};

}  // namespace ovsdr::dr
