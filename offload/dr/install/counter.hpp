// Flow counters: slots of DEVX counter bulks, read in bulk by one poller.
//
// Model. A bulk is one firmware object with many counters; a Counter is one slot of it, handed out to one megaflow and
// taken back when that is forgotten. Hardware counters only ever grow, so a slot remembers the value it started from:
// whoever gets a slot begins at 0.
//
// Life cycle of a slot: acquire() → rules count with action() → the last of those rules is destroyed and the domain
// drained → CounterPool::give_back() reads the final value and the slot is free.
//
// Neighbourhoods. A query reads a bulk from its first slot on, so counters that go together should lie together:
// whoever acquires one may say a number which those that will go together with it have too. The more bulks there are,
// the more of them are filled side by side, each for its share of the neighbourhoods: half as many as there are in all,
// so that no more than a quarter of the slots lies idle for that.
//
// The poller sleeps while no slot is out, and reads every bulk in use twice a second otherwise; with many up to twenty
// times a second: it rests five times as long as it read, 50 to 500 ms. read() is memory only.
// Once there are some bulks it also makes further ones ahead of need: a bulk is a firmware command, for which nobody
// who installs megaflows should have to wait.
//
// While there are few bulks, bring_up_to_date() lets whoever looks at a single megaflow see what it counted just now;
// with many, asking for each would cost more than what the poller has read is worth.
//
// Threads: any. Errors: those of ALLOC_FLOW_COUNTER and QUERY_FLOW_COUNTER; a failing poll is counted and tried again.
// Source: PRM ALLOC/QUERY_FLOW_COUNTER; mlx5dv_devx_obj_create(3), mlx5dv_dr_flow(3) "Action: Flow Count".
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "offload/dr/device/action.hpp"
#include "offload/dr/device/caps.hpp"

namespace ovsdr::dr {

class CounterBulk;
class CounterPool;

/// A slot that is ours. Move-only; empty by default and after a move.
class Counter {
public:
    Counter() noexcept = default;
    ~Counter();
    Counter(Counter&& other) noexcept;
    Counter& operator=(Counter&& other) noexcept;

    [[nodiscard]] explicit operator bool() const noexcept { return bulk_ != nullptr; }

    /// The action that counts into this slot; the bulk's own.
    [[nodiscard]] mlx5dv_dr_action* action() const noexcept;
    /// As of the last poll.
    [[nodiscard]] FlowStats read() const noexcept;
    /// Fetches what read() looks at first.
    void prefetch() const noexcept;
    /// Reads the slot's bulk again when the pool has few and the last time is more than a moment ago.
    void bring_up_to_date() const noexcept;
    /// A rule stays in the device that counts into the slot: nobody gets it any more.
    void withhold() noexcept;
    /// As it was acquired.
    [[nodiscard]] std::int16_t bytes_uncounted() const noexcept { return bytes_uncounted_; }
    /// As `dr/show` numbers it: the device's counter id.
    [[nodiscard]] std::uint32_t id() const noexcept;

private:
    friend class CounterPool;
    Counter(CounterBulk* bulk, std::uint32_t slot, std::int16_t bytes_uncounted, bool polled) noexcept;

    CounterBulk* bulk_ = nullptr;   ///< of a pool
    std::uint32_t slot_ = 0;
    std::int16_t bytes_uncounted_ = 0;
    bool polled_ = false;
};

class CounterPool {
public:
    [[nodiscard]] static Result<std::unique_ptr<CounterPool>> create(std::shared_ptr<Device> device,
                                                                     const DeviceCaps& caps) noexcept;
    /// All Counters are gone by now.
    ~CounterPool();

    /// `bytes_uncounted`: what the device counts too few for each packet, below 0 too many; read() adds it.
    /// A counter that is not `polled` does not keep the poller awake: read_now() reads it, and total() is without it.
    [[nodiscard]] Result<Counter> acquire(std::int16_t bytes_uncounted, bool polled = true,
                                          std::uint32_t neighbourhood = 0) noexcept;

    struct Leaving {
        Counter* counter;     ///< not empty; empty after it
        FlowStats* counted;   ///< out
    };
    /// The slots are free. Asks the device, once for each bulk: final for counters that no rule counts into any more,
    /// when the domain has been drained. When the device does not answer, what is known already counts. Changes the
    /// order of `leaving`.
    void give_back(std::span<Leaving> leaving) noexcept;

    /// Asks the device what it has counted; it may go on counting. When that does not answer: as last read.
    FlowStats read_now(const Counter& counter) noexcept;
    /// The same for many: asks once for each bulk, and read() has the answers. May throw std::bad_alloc.
    void read_now(std::span<const Counter* const> counters);

    /// Reads all bulks again that were last read more than a moment ago, when they are few.
    void bring_up_to_date() noexcept;
    /// Of all slots that are polled, those given back included, as last read.
    [[nodiscard]] FlowStats total() const noexcept;
    [[nodiscard]] std::uint64_t failed_polls() const noexcept;

    static constexpr std::chrono::milliseconds poll_interval{500};
    // With many bulks. Where OVS needs more than half of max-revalidator (250 ms) to look at all megaflows it deletes
    // those that had no packets since it looked last and for 200 ms; with more than flow-limit of them, for 100 ms.
    static constexpr std::chrono::milliseconds shortest_poll_interval{50};
    static constexpr std::size_t few_bulks = 4;             ///< bring_up_to_date() reads with at most so many
    static constexpr std::chrono::milliseconds moment{2};   ///< and only what is older
    // Of many bulks that are filled side by side many are full at once: as many again must be there by then.
    static constexpr std::size_t no_spares_below = 8;       ///< bulks
    static constexpr std::size_t bulks_per_spare = 2;       ///< one is made ahead for so many, and no more
    static constexpr std::size_t most_spares = 32;          ///< than so many

private:
    friend class Counter;
    CounterPool(std::shared_ptr<Device> device, unsigned bulk_log) noexcept;
    [[nodiscard]] Result<CounterBulk*> bulk_for(std::uint32_t neighbourhood);
    [[nodiscard]] Result<CounterBulk*> open_bulk();
    CounterBulk* add_bulk(std::unique_ptr<CounterBulk> bulk);
    [[nodiscard]] bool wants_spares() const noexcept;
    void make_spares(std::unique_lock<std::mutex>& lock) noexcept;
    void read_all(std::unique_lock<std::mutex>& lock) noexcept;
    void pass_full_bulks() noexcept;                        ///< first_with_room_ is right then
    [[nodiscard]] CounterBulk* any_with_room() noexcept;    ///< the first; NULL: none
    void release(CounterBulk* bulk, std::uint32_t slot, bool polled) noexcept;
    using Clock = std::chrono::steady_clock;
    void poll() noexcept;
    /// How long the poller rests behind a round that took so long.
    [[nodiscard]] Clock::duration interval_behind(Clock::duration round) const noexcept;

    std::shared_ptr<Device> device_;
    unsigned bulk_log_;                       ///< 128 << n counters per bulk; single_counter: one
    mutable std::mutex mutex_;
    std::condition_variable wake_;
    std::vector<std::unique_ptr<CounterBulk>> bulks_;
    std::atomic<std::size_t> bulk_count_{0};  ///< bulks_.size(), for whoever does not hold the mutex
    enum class Use : std::uint8_t { spare, open, closed };   ///< never opened; one of open_; was one
    std::vector<Use> uses_;                   ///< by number of the bulk
    std::vector<CounterBulk*> open_;          ///< that a share of the neighbourhoods fills now, or NULL; a power of two
    std::size_t first_with_room_ = 0;         ///< none below has
    std::size_t spares_ = 0;                  ///< bulks of that Use
    std::chrono::steady_clock::time_point no_more_until_{};   ///< the device refused a bulk a moment ago
    std::uint64_t polled_slots_ = 0;          ///< handed out, of those that are polled
    std::uint64_t failed_polls_ = 0;
    bool ending_ = false;
    std::thread poller_;
};

}  // namespace ovsdr::dr
