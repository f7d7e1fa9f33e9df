// The inside of a Steering: what its control calls change and its lanes read.
//
// One mutex orders all changes. While one is under way that can concern a lane's packets, the epoch of their cache's
// key is odd, and it is another one afterwards: cache_key.hpp says what lanes may do by it.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "common/block_pool.hpp"
#include "datapath/steering/cache_keys.hpp"
#include "datapath/steering/program.hpp"
#include "datapath/steering/rcu.hpp"
#include "datapath/steering/room.hpp"
#include "datapath/steering/steering.hpp"
#include "datapath/steering/structure.hpp"

namespace ovsdr::soft {

class Matcher;

/// Vports and receive queues that packets may leave by; also the bound of a lane's transmit batches.
inline constexpr unsigned max_destinations = 2048;
/// The co-tenant's sink is always destination 0; as a vport's slot, 0 means "not attached".
inline constexpr std::uint16_t cotenant_destination = 0;

class Steering::Impl {
public:
    explicit Impl(const Profile& profile);
    ~Impl();

    /// Holds the control mutex while something else than a rule changes: packets of `scope` walk the tables anew.
    class Change {
    public:
        explicit Change(Impl& impl, SourceScope scope = SourceScope::all()) noexcept
            : impl_(impl), lock_(impl.control_), scope_(scope) {
            impl_.cache_keys.begin(scope_);
        }
        ~Change() { impl_.cache_keys.end(scope_); }
        Change(const Change&) = delete;
        Change& operator=(const Change&) = delete;

    private:
        Impl& impl_;
        std::lock_guard<std::mutex> lock_;
        SourceScope scope_;
    };

    /// Holds the control mutex while a rule comes; without stay() it has not come. Throws std::bad_alloc.
    class RuleComes {
    public:
        RuleComes(Impl& impl, MatcherView& matcher, const RuleNode& rule)
            : impl_(impl), matcher_(matcher), effect_(CacheKeys::effect_of(matcher, rule)), lock_(impl.control_) {
            impl_.cache_keys.begin_adding(matcher, rule, effect_);
        }
        ~RuleComes() { impl_.cache_keys.end_adding(matcher_, effect_, stays_); }
        RuleComes(const RuleComes&) = delete;
        RuleComes& operator=(const RuleComes&) = delete;
        void stay() noexcept { stays_ = true; }

    private:
        Impl& impl_;
        MatcherView& matcher_;
        CacheKeys::RuleEffect effect_;
        std::lock_guard<std::mutex> lock_;
        bool stays_ = false;
    };

    /// Holds the control mutex while a rule goes.
    class RuleGoes {
    public:
        RuleGoes(Impl& impl, MatcherView& matcher, const RuleNode& rule) noexcept
            : impl_(impl), matcher_(matcher), effect_(CacheKeys::effect_of(matcher, rule)), lock_(impl.control_) {
            impl_.cache_keys.begin_removing(matcher, rule, effect_);
        }
        ~RuleGoes() { impl_.cache_keys.end_removing(matcher_, effect_); }
        RuleGoes(const RuleGoes&) = delete;
        RuleGoes& operator=(const RuleGoes&) = delete;

    private:
        Impl& impl_;
        MatcherView& matcher_;
        CacheKeys::RuleEffect effect_;
        std::lock_guard<std::mutex> lock_;
    };

    /// Holds the control mutex while what lanes do stays as it is.
    [[nodiscard]] std::lock_guard<std::mutex> unchanged() noexcept { return std::lock_guard(control_); }

    // Control, each taking a Change of its own.
    [[nodiscard]] int attach(VportId vport, Sink sink);
    [[nodiscard]] int attach_lag_port(unsigned port, Sink sink, Sink strict);
    void detach(VportId vport) noexcept;
    void set_cotenant_sink(Sink sink) noexcept;
    void set_transport(Filter transport);
    [[nodiscard]] int set_geneve_option(const GeneveOption& option);
    void add_send_rule(std::uint32_t sqn, VportId vport);
    void remove_send_rule(std::uint32_t sqn);
    void set_lag_port(std::uint32_t sqn, unsigned port, bool strict);

    /// A number for `sink`, shared by all who ask for the same one. ENOSPC.
    [[nodiscard]] int acquire_destination(const Sink& sink, std::uint16_t& destination);
    /// Gives it back; the caller has waited for a grace period since it was last reachable.
    void release_destination(std::uint16_t destination) noexcept;

    // Under unchanged(): a matcher comes and goes without rules.
    void add_matcher(Matcher& matcher, std::vector<Matcher*>& among, std::atomic<const MatcherList*>& published);
    void remove_matcher(Matcher& matcher, std::vector<Matcher*>& among, std::atomic<const MatcherList*>& published);

    /// Where a vport's packets go, or 0. Threads: any.
    [[nodiscard]] std::uint16_t slot_of(VportId vport) const noexcept {
        return slots_[vport.value].load(std::memory_order_acquire);
    }
    /// Where a queue's packets for the uplink go: slot_of(uplink_vport) but for those that have chosen a port.
    /// Threads: any.
    [[nodiscard]] std::uint16_t uplink_slot_of(std::uint32_t sqn) const noexcept;
    /// Nanoseconds on a clock that never goes back: what meters fill by. Threads: any.
    [[nodiscard]] std::uint64_t now() const noexcept {
        const std::uint64_t stopped = stopped_clock.load(std::memory_order_relaxed);
        if (stopped != 0) [[unlikely]] return stopped;
        const std::chrono::nanoseconds time = std::chrono::steady_clock::now().time_since_epoch();
        return static_cast<std::uint64_t>(time.count());
    }

    /// The kernel's rule for a queue. Threads: lanes.
    [[nodiscard]] bool send_rule(std::uint32_t sqn, VportId& vport) const noexcept;

    /// What flow caches are keyed by now, for packets of that source. Threads: lanes until they are quiescent, and
    /// those whom no change can meet.
    [[nodiscard]] CacheKey& cache_key(VportId source) const noexcept { return cache_keys.of(source); }
    /// What packets are taken apart by. Threads: as cache_key().
    [[nodiscard]] const ParserSetup& parser_setup() const noexcept { return cache_key(manager_vport).parser; }

    const Profile& profile;
    bool plain_function = false;
    Room room;
    BlockPool rule_blocks;
    Rcu rcu;
    /// For tests: what now() says, unless 0.
    std::atomic<std::uint64_t> stopped_clock{0};
    CacheKeys cache_keys;
    /// Root tables belong to the device, not to a domain object; by DomainType.
    std::array<std::atomic<const MatcherList*>, 3> root_lists;
    std::array<std::vector<Matcher*>, 3> root_matchers;
    std::array<std::atomic<const Sink*>, max_destinations> sinks;
    std::atomic<const Filter*> transport{nullptr};

    /// Of a worker's lane, which alone writes them.
    struct alignas(64) WorkerCounts {
        std::array<std::atomic<std::uint64_t>, drop_reasons> drops;
        std::atomic<std::uint64_t> looked_up;   ///< in the flow cache
        std::atomic<std::uint64_t> walked;      ///< of those: found nothing there
    };
    static_assert(sizeof(WorkerCounts) == 64);
    std::array<WorkerCounts, max_workers> counts;

private:
    using SendRules = std::map<std::uint32_t, VportId>;
    struct LagChoice {
        std::uint8_t port;
        bool strict;
    };
    using LagChoices = std::map<std::uint32_t, LagChoice>;

    [[nodiscard]] std::uint16_t free_destination() const noexcept;
    [[nodiscard]] static constexpr unsigned lag_place(unsigned port, bool strict) noexcept {
        return (port - 1) * 2 + strict;
    }
    /// Puts a changed copy in a map's place.
    template <typename Map, typename Edit>
    void replace(std::atomic<const Map*>& published, Edit edit) {
        const Map* old = published.load(std::memory_order_relaxed);
        auto next = std::make_unique<Map>(*old);
        edit(*next);
        published.store(next.release(), std::memory_order_release);
        rcu.retire(const_cast<Map*>(old));
    }
    void publish(const std::vector<Matcher*>& among, std::atomic<const MatcherList*>& published);

    std::mutex control_;
    std::array<std::uint32_t, max_destinations> destination_users_{};
    std::unique_ptr<std::atomic<std::uint16_t>[]> slots_;  // by vport number
    std::atomic<const SendRules*> send_rules_;
    std::array<std::atomic<std::uint16_t>, 2 * lag_ports> lag_slots_{};  // by port and strictness; 0: no LAG
    std::atomic<const LagChoices*> lag_choices_;
};

}  // namespace ovsdr::soft
