// The keys of the flow caches, by source vport, and what makes them: whose packets which masks can meet.
//
// Model. What a rule that names its source vport looks at, and each change of it, concerns that vport's packets alone.
// The first such rule gives the vport a key of its own (cache_key.hpp), which it keeps. Rules that name none concern
// all keys. A mask counts for a key while its matcher has a rule that can meet the key's packets; so do inner headers
// while a rule that takes an L2 tunnel away can.
//
// A key grows at once. It may be larger than it has to be: then lines are finer, and no less right. So a key that is
// less than `least_age` old shrinks later, with the first change thereafter of whatever rule: a mask whose only rule
// comes and goes empties the cache once a second and not each time.
//
// Epochs of a vport's own key begin far above those of the common one: a line from before it had one is never of it.
//
// Threads: of() from lanes until they are quiescent; everything else by one writer at a time.
#pragma once

#include <array>
#include <atomic>
#include <bitset>
#include <cstdint>
#include <memory>
#include <vector>

#include "datapath/steering/cache_key.hpp"
#include "datapath/steering/rcu.hpp"
#include "datapath/steering/source_scope.hpp"
#include "datapath/steering/structure.hpp"

namespace ovsdr::soft {

class CacheKeys {
public:
    static constexpr std::uint64_t least_age = 1'000'000'000;  ///< ns

    using Clock = std::uint64_t (*)(const void* of);  ///< nanoseconds
    CacheKeys(const ParserSetup& parser, Rcu& rcu, Clock clock, const void* clock_of);
    ~CacheKeys();
    CacheKeys(const CacheKeys&) = delete;
    CacheKeys& operator=(const CacheKeys&) = delete;

    [[nodiscard]] CacheKey& of(VportId source) const noexcept {
        CacheKey* own = keys_[SourceScope::of(source).index()].load(std::memory_order_acquire);
        return own != nullptr ? *own : *keys_[SourceScope::groups].load(std::memory_order_acquire);
    }

    // Matchers are added without rules and removed without rules: lines know nothing of them.
    void add_matcher(const MatcherView& matcher) { matchers_.push_back(&matcher); }
    void remove_matcher(const MatcherView& matcher) noexcept { std::erase(matchers_, &matcher); }

    /// Before and after a change of something else than a rule: whoever is in `scope` forgets all.
    void begin(SourceScope scope) noexcept;
    void end(SourceScope scope) noexcept;
    /// In between, in the scope of all.
    void set_parser(const ParserSetup& parser);

    /// What a rule is to the keys.
    struct RuleEffect {
        SourceScope scope;
        bool decapsulates;  ///< takes L2 tunnels away
    };
    [[nodiscard]] static RuleEffect effect_of(const MatcherView& matcher, const RuleNode& rule) noexcept;

    /// Before and after a rule comes; `stays` when it is there. Throws std::bad_alloc, then nothing has changed.
    void begin_adding(MatcherView& matcher, const RuleNode& rule, const RuleEffect& effect);
    void end_adding(MatcherView& matcher, const RuleEffect& effect, bool stays) noexcept;
    /// Before and after a rule goes.
    void begin_removing(const MatcherView& matcher, const RuleNode& rule, const RuleEffect& effect) noexcept;
    void end_removing(MatcherView& matcher, const RuleEffect& effect) noexcept;

private:
    /// Calls `visit` with the index of each key that the scope concerns.
    template <typename Visit>
    void for_each(SourceScope scope, Visit visit) const;
    [[nodiscard]] CacheKey& at(unsigned index) const noexcept { return *keys_[index].load(std::memory_order_relaxed); }
    [[nodiscard]] Key needed(unsigned index) const noexcept;
    [[nodiscard]] Key common(unsigned index) const noexcept;
    void make_own(SourceScope scope);
    void grow(unsigned index);
    [[nodiscard]] std::unique_ptr<CacheKey> successor(unsigned index, const ParserSetup& parser,
                                                      const MaskedWords& words) const;
    void put(unsigned index, std::unique_ptr<CacheKey> next);
    void shrink(bool at_once) noexcept;
    void make_odd(SourceScope scope) noexcept;
    void make_even(SourceScope scope) noexcept;
    void write(SourceScope scope, const MatcherView& matcher, const RuleNode& rule) noexcept;
    void forget_rule(MatcherView& matcher, const RuleEffect& effect) noexcept;

    Rcu& rcu_;
    Clock clock_;
    const void* clock_of_;
    ParserSetup parser_;
    /// By SourceScope::index(); nullptr where there is none of its own. The last one is common to these.
    std::array<std::atomic<CacheKey*>, SourceScope::groups + 1> keys_{};
    std::vector<std::uint16_t> own_;  // which of them there are, but for the common one
    std::vector<const MatcherView*> matchers_;
    SourceCounts decapsulations_;
    std::bitset<SourceScope::groups + 1> loose_;  // keys that may be larger than they have to be
};

}  // namespace ovsdr::soft
