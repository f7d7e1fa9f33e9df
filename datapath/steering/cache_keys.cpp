#include "datapath/steering/cache_keys.hpp"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "datapath/steering/reformat.hpp"

namespace ovsdr::soft {
namespace {

constexpr std::uint64_t first_common_epoch = 2, first_own_epoch = std::uint64_t{1} << 63;

/// Whether the key tells apart whatever `mask` looks at.
[[nodiscard]] bool covers(const MaskedWords& words, Key mask) noexcept {
    for (std::uint32_t i = 0; i < words.length; ++i) mask.words[words.index[i]] &= ~words.mask[i];
    return mask == Key{};
}

/// What the entrance settles: source_port, source_sqn, and the registers' first values.
void leave_out_settled(Key& mask) noexcept {
    std::memset(mask.bytes() + key_offset::source_sqn, 0, 7);
    std::memset(mask.bytes() + key_offset::reg_c_7, 0, key_offset::registers_end - key_offset::reg_c_7);
}

[[nodiscard]] bool equal(const MaskedWords& one, const MaskedWords& other) noexcept {
    return one.length == other.length && one.index == other.index && one.mask == other.mask;
}

}  // namespace

CacheKeys::CacheKeys(const ParserSetup& parser, Rcu& rcu, Clock clock, const void* clock_of)
    : rcu_(rcu), clock_(clock), clock_of_(clock_of), parser_(parser) {
    keys_[SourceScope::groups] =
        new CacheKey(first_common_epoch, false, clock_(clock_of_), parser_, MaskedWords(), MaskedWords());
}

CacheKeys::~CacheKeys() {
    for (std::atomic<CacheKey*>& key : keys_) delete key.load();
}

template <typename Visit>
void CacheKeys::for_each(SourceScope scope, Visit visit) const {
    if (!scope.is_all() && keys_[scope.index()].load(std::memory_order_relaxed) != nullptr) return visit(scope.index());
    visit(SourceScope::groups);
    for (const std::uint16_t index : own_) visit(index);
}

void CacheKeys::make_odd(SourceScope scope) noexcept {
    for_each(scope, [this](unsigned index) {
        std::atomic<std::uint64_t>& epoch = at(index).epoch;
        epoch.store(epoch.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    });
    std::atomic_thread_fence(std::memory_order_release);
}

void CacheKeys::make_even(SourceScope scope) noexcept {
    for_each(scope, [this](unsigned index) {
        std::atomic<std::uint64_t>& epoch = at(index).epoch;
        epoch.store(epoch.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    });
}

void CacheKeys::begin(SourceScope scope) noexcept {
    make_odd(scope);
    for_each(scope, [this](unsigned index) {
        CacheKey& key = at(index);
        key.changes.write_all((key.epoch.load(std::memory_order_relaxed) + 1) / 2);
    });
}

void CacheKeys::end(SourceScope scope) noexcept {
    shrink(scope.is_all());
    make_even(scope);
}

void CacheKeys::set_parser(const ParserSetup& parser) {
    std::vector<std::pair<unsigned, std::unique_ptr<CacheKey>>> next;
    for_each(SourceScope::all(), [&](unsigned index) {
        next.emplace_back(index, successor(index, parser, at(index).words));
    });
    for (auto& [index, key] : next) put(index, std::move(key));
    parser_ = parser;
}

CacheKeys::RuleEffect CacheKeys::effect_of(const MatcherView& matcher, const RuleNode& rule) noexcept {
    const std::span<const Op> ops = rule.ops();
    const bool decapsulates = std::any_of(ops.begin(), ops.end(), [](const Op& op) {
        return op.code == OpCode::reformat &&
               static_cast<const Reformat*>(op.object)->kind() == Reformat::Kind::decap_l2;
    });
    return {.scope = SourceScope::of_rule(matcher.rules.mask(), rule.words(), matcher.of_nic_tx),
            .decapsulates = decapsulates};
}

void CacheKeys::begin_adding(MatcherView& matcher, const RuleNode& rule, const RuleEffect& effect) {
    bool first = matcher.sources.add(effect.scope);
    bool odd = false;
    RuleEffect counted{.scope = effect.scope, .decapsulates = false};
    try {
        if (effect.decapsulates) {
            first = decapsulations_.add(effect.scope) || first;
            counted.decapsulates = true;
        }
        if (!effect.scope.is_all()) make_own(effect.scope);
        make_odd(effect.scope);
        odd = true;
        if (first) for_each(effect.scope, [this](unsigned index) { grow(index); });
    } catch (...) {
        forget_rule(matcher, counted);
        if (odd) make_even(effect.scope);
        throw;
    }
    write(effect.scope, matcher, rule);
}

void CacheKeys::end_adding(MatcherView& matcher, const RuleEffect& effect, bool stays) noexcept {
    if (!stays) forget_rule(matcher, effect);
    shrink(false);
    make_even(effect.scope);
}

void CacheKeys::begin_removing(const MatcherView& matcher, const RuleNode& rule, const RuleEffect& effect) noexcept {
    make_odd(effect.scope);
    write(effect.scope, matcher, rule);
}

void CacheKeys::end_removing(MatcherView& matcher, const RuleEffect& effect) noexcept {
    end_adding(matcher, effect, false);
}

void CacheKeys::forget_rule(MatcherView& matcher, const RuleEffect& effect) noexcept {
    bool last = matcher.sources.remove(effect.scope);
    if (effect.decapsulates) last = decapsulations_.remove(effect.scope) || last;
    if (last) for_each(effect.scope, [this](unsigned index) { loose_.set(index); });
}

void CacheKeys::write(SourceScope scope, const MatcherView& matcher, const RuleNode& rule) noexcept {
    for_each(scope, [&](unsigned index) {
        CacheKey& key = at(index);
        key.changes.write((key.epoch.load(std::memory_order_relaxed) + 1) / 2, matcher.rules.mask(), rule.words());
        if (key.changes.mostly_wide()) loose_.set(index);
    });
}

Key CacheKeys::needed(unsigned index) const noexcept {
    Key all{};
    const SourceScope source = SourceScope::at(index);
    for (const MatcherView* matcher : matchers_) {
        if (!matcher->sources.concern(source)) continue;
        for (unsigned i = 0; i < Key::length; ++i) all.words[i] |= matcher->mask.words[i];
    }
    if (decapsulations_.concern(source)) add_inner_of_outer(all);
    leave_out_settled(all);
    return all;
}

/// What the masks of all matchers have in common that hold more than a few of the rules.
Key CacheKeys::common(unsigned index) const noexcept {
    constexpr std::uint64_t few = 2, few_of = 64;  // a rule for all the rest, or one in so many
    const SourceScope source = SourceScope::at(index);
    std::uint64_t rules = 0;
    for (const MatcherView* matcher : matchers_) rules += matcher->sources.count(source);
    Key all{};
    bool any = false;
    for (const MatcherView* matcher : matchers_) {
        const std::uint64_t count = matcher->sources.count(source);
        if (count <= few || count * few_of < rules) continue;
        for (unsigned i = 0; i < Key::length; ++i) {
            all.words[i] = any ? all.words[i] & matcher->mask.words[i] : matcher->mask.words[i];
        }
        any = true;
    }
    leave_out_settled(all);
    return all;
}

void CacheKeys::make_own(SourceScope scope) {
    std::atomic<CacheKey*>& own = keys_[scope.index()];
    if (own.load(std::memory_order_relaxed) != nullptr) return;
    own_.reserve(own_.size() + 1);
    const MaskedWords words(needed(scope.index()));
    const MaskedWords shared(common(scope.index()));
    own.store(new CacheKey(first_own_epoch, false, clock_(clock_of_), parser_, words, shared),
              std::memory_order_release);
    own_.push_back(static_cast<std::uint16_t>(scope.index()));
}

void CacheKeys::grow(unsigned index) {
    const Key wanted = needed(index);
    if (covers(at(index).words, wanted)) return;
    put(index, successor(index, parser_, MaskedWords(wanted)));
    loose_.reset(index);
}

/// While the key's epoch is odd the next one's is, too.
std::unique_ptr<CacheKey> CacheKeys::successor(unsigned index, const ParserSetup& parser,
                                               const MaskedWords& words) const {
    const std::uint64_t epoch = at(index).epoch.load(std::memory_order_relaxed);
    return std::make_unique<CacheKey>((epoch | 1) + 1, (epoch & 1) != 0, clock_(clock_of_), parser, words,
                                      MaskedWords(common(index)));
}

void CacheKeys::put(unsigned index, std::unique_ptr<CacheKey> next) {
    CacheKey& old = at(index);
    old.epoch.store(old.epoch.load(std::memory_order_relaxed) | 1, std::memory_order_release);
    keys_[index].store(next.release(), std::memory_order_release);
    rcu_.retire(&old);
}

void CacheKeys::shrink(bool at_once) noexcept {
    if (loose_.none()) return;
    const std::uint64_t now = clock_(clock_of_);
    for_each(SourceScope::all(), [&](unsigned index) {
        if (!loose_.test(index)) return;
        CacheKey& key = at(index);
        if (!at_once && now - key.made_at < least_age) return;
        loose_.reset(index);
        const MaskedWords words(needed(index));
        const bool good_choice = !key.changes.mostly_wide() || equal(key.changes.common(), MaskedWords(common(index)));
        if (good_choice) key.changes.judge_anew();
        if (good_choice && equal(words, key.words)) return;
        try {
            put(index, successor(index, parser_, words));
        } catch (const std::bad_alloc&) {
            loose_.set(index);  // it stays as large as it is
        }
    });
}

}  // namespace ovsdr::soft
