#include "offload/dr/install/tunnel_rules.hpp"

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <utility>

namespace ovsdr::dr {

struct TunnelRules::Hold {
    Hold(std::shared_ptr<TunnelRules> of, std::shared_ptr<FlowTable> its_table) noexcept
        : rules(std::move(of)), table(std::move(its_table)) {}
    ~Hold() {
        if (option != nullptr) {
            option.reset();
            rules->option_let_go();
        }
        if (claimed) rules->release(*claimed, holder, table->key());
    }
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;

    std::shared_ptr<TunnelRules> rules;
    std::shared_ptr<FlowTable> table;
    std::optional<Digest> claimed;
    std::list<Holder>::iterator holder;   ///< if claimed
    GeneveOptionRef option;
};

TunnelRules::Digest TunnelRules::digest_of(const MatchPlan& match) noexcept {
    const auto hash = [](const MatchParam& param) {
        const std::string_view bytes(reinterpret_cast<const char*>(param.bytes.data()), param.bytes.size());
        return std::uint64_t{std::hash<std::string_view>{}(bytes)};
    };
    const std::uint64_t table = std::uint64_t{match.table.recirc_id} << 32 | match.table.tunnel_port;
    constexpr std::uint64_t odd = 0x9E3779B97F4A7C15ULL;
    return {hash(match.value) ^ table * odd, hash(match.mask) ^ table};
}

bool TunnelRules::Claim::is_free_for(const Ufid& ufid, const RulePlan& plan) const noexcept {
    return std::ranges::all_of(holders, [&](const Holder& holder) {
        return holder.ufid == ufid || (holder.path == plan.path && holder.unseen_flags == plan.match.unseen_flags);
    });
}

std::optional<NoWay> TunnelRules::obstacle_to(const Ufid& ufid, const RulePlan& plan) {
    const MatchPlan& match = plan.match;
    std::lock_guard lock(mutex_);
    const auto current = match.geneve_option ? parser_.current() : std::nullopt;
    if (current && *current != *match.geneve_option) {
        await_option_.insert(match.table);
        return other_geneve_option(match.table);
    }
    if (match.geneve_option && !current && Clock::now() < no_option_before_) {
        await_option_.insert(match.table);
        return no_geneve_option(match.table, no_option_before_);
    }
    const auto claim = claims_.find(digest_of(match));
    if (claim != claims_.end() && !claim->second.is_free_for(ufid, plan)) {
        claim->second.awaited = true;
        return coincides(match.table);
    }
    return std::nullopt;
}

Result<std::shared_ptr<FlowTable>> TunnelRules::hold(const Ufid& ufid, const RulePlan& plan,
                                                     std::shared_ptr<FlowTable> table) {
    const MatchPlan& match = plan.match;
    auto hold = std::make_shared<Hold>(shared_from_this(), std::move(table));   // let go of without the lock
    const Digest digest = digest_of(match);
    std::set<TableKey> waited;
    {
        std::lock_guard lock(mutex_);
        if (match.geneve_option) {
            auto option = parser_.acquire(*match.geneve_option);
            if (!option) return tl::unexpected(refused_option(std::move(option.error())));
            hold->option = std::move(*option);
            if (std::exchange(refused_options_, 0) >= most_refusals) waited = std::exchange(await_option_, {});
        }
        Claim& claim = claims_[digest];
        if (!claim.is_free_for(ufid, plan)) {
            return tl::unexpected(Error{EBUSY, "another megaflow has the same match to the device", "tun_flags"});
        }
        hold->holder = claim.holders.insert(claim.holders.end(), Holder{ufid, plan.path, match.unseen_flags});
        hold->claimed = digest;
    }
    tell(waited);
    FlowTable* const itself = hold->table.get();
    return std::shared_ptr<FlowTable>(std::move(hold), itself);
}

/// With the lock. A device that goes on refusing is not full: other megaflows go in meanwhile.
Error TunnelRules::refused_option(Error error) noexcept {
    if (error.code != EBUSY && ++refused_options_ >= most_refusals) no_option_before_ = Clock::now() + between_tries;
    return error;
}

/// The rule has left the device: whoever waits may have its match. Not while its twins are there.
void TunnelRules::release(const Digest& digest, std::list<Holder>::iterator holder, TableKey table) noexcept {
    bool awaited = false;
    {
        std::lock_guard lock(mutex_);
        const auto found = claims_.find(digest);
        Claim& claim = found->second;
        const auto is_twin = [&](const Holder& other) {
            return &other != &*holder && other.path == holder->path && other.unseen_flags == holder->unseen_flags;
        };
        if (std::ranges::none_of(claim.holders, is_twin)) awaited = std::exchange(claim.awaited, false);
        claim.holders.erase(holder);
        if (claim.holders.empty()) claims_.erase(found);
    }
    if (awaited) tables_->tell(table);
}

/// Perhaps others hold it still: who waits finds out. The parser is asked with the lock only, so that whoever is told
/// of the option's end is in `await_option_` by now, or sees it.
void TunnelRules::option_let_go() noexcept {
    std::set<TableKey> waiting;
    {
        std::lock_guard lock(mutex_);
        waiting = std::exchange(await_option_, {});
    }
    tell(waiting);
}

void TunnelRules::tell(const std::set<TableKey>& waiting) noexcept {
    for (const TableKey table : waiting) tables_->tell(table);
}

}  // namespace ovsdr::dr
