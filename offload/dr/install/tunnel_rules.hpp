// What rules in the tables of tunnel ports need beside their table: a match of their own, and the Geneve option that
// the device looks for.
//
// Model. Megaflows of a tunnel port may differ in nothing that the device sees (compile/tunnel_match.hpp). A device
// takes two rules with one match and does not say which of them packets find, so that the second waits until the first
// has gone. Unless they are twins: one megaflow of several PMD threads, whose packets may find any of its rules.
//
// Those that need another Geneve option than the device looks for now wait, too. Who waits is tried again when its
// table is told to have changed. A device that refuses every option, since somebody else's may be in the way, is asked
// again after a while: those that wait are parked for so long. If it takes one, the others are told.
//
// Threads: any.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <unordered_map>

#include "offload/dr/compile/levels.hpp"
#include "offload/dr/device/geneve_option.hpp"
#include "offload/dr/install/table_set.hpp"

namespace ovsdr::dr {

class TunnelRules : public std::enable_shared_from_this<TunnelRules> {
public:
    TunnelRules(std::shared_ptr<Device> device, std::shared_ptr<TableSet> tables) noexcept
        : tables_(std::move(tables)), parser_(std::move(device)) {}

    /// Whoever is told of one is tried again when it may have gone.
    [[nodiscard]] std::optional<NoWay> obstacle_to(const Ufid& ufid, const RulePlan& plan);
    /// What the megaflow's rule in `table` keeps as long as it is there; it keeps the table. EBUSY: obstacle_to() has
    /// something to say since.
    [[nodiscard]] Result<std::shared_ptr<FlowTable>> hold(const Ufid& ufid, const RulePlan& plan,
                                                          std::shared_ptr<FlowTable> table);

private:
    using Clock = std::chrono::steady_clock;
    // Of options that the device refused: fewer than the backlog takes for a device that is full.
    static constexpr unsigned most_refusals = 4;
    static constexpr std::chrono::seconds between_tries{2};

    /// Of table, mask and value. Two that are equal by chance would only keep a megaflow in software.
    using Digest = std::array<std::uint64_t, 2>;
    struct DigestHash {
        std::size_t operator()(const Digest& digest) const noexcept { return digest[0]; }
    };
    /// Of one rule; a megaflow has two while one takes the other's place.
    struct Holder {
        Ufid ufid;
        Path path;
        std::uint8_t unseen_flags;
    };
    struct Claim {
        std::list<Holder> holders{};   ///< of several megaflows: twins
        bool awaited = false;

        [[nodiscard]] bool is_free_for(const Ufid& ufid, const RulePlan& plan) const noexcept;
    };
    struct Hold;

    [[nodiscard]] static Digest digest_of(const MatchPlan& match) noexcept;
    void release(const Digest& digest, std::list<Holder>::iterator holder, TableKey table) noexcept;
    [[nodiscard]] Error refused_option(Error error) noexcept;
    void option_let_go() noexcept;
    void tell(const std::set<TableKey>& waiting) noexcept;

    std::shared_ptr<TableSet> tables_;
    std::mutex mutex_;
    GeneveParser parser_;   ///< asked with the mutex, which the end of an option does not need
    std::unordered_map<Digest, Claim, DigestHash> claims_;
    std::set<TableKey> await_option_;
    /// How often in a row the device would not look for any option: somebody else's may be in the way.
    unsigned refused_options_ = 0;
    Clock::time_point no_option_before_{};   ///< it is not asked before that
};

}  // namespace ovsdr::dr
