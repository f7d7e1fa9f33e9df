#include "datapath/steering/rule_table.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

namespace ovsdr::soft {
namespace {

constexpr std::uint64_t shortest = 8, longest = std::uint64_t{1} << RuleTable::log_longest;  ///< slots of a segment

/// A power of two of slots that `rules` fill by no more than one in `share`.
[[nodiscard]] std::uint64_t slots_for(std::size_t rules, unsigned share) noexcept {
    return std::max(shortest, std::bit_ceil(std::uint64_t{rules} * share));
}

}  // namespace

RuleTable::Segment RuleTable::Segment::make(unsigned log_length, unsigned depth) {
    const std::size_t length = std::size_t{1} << log_length;
    void* const memory = ::operator new(sizeof(Head) + length * sizeof(Slot), std::align_val_t{alignof(Head)});
    Head* const head = new (memory) Head{.depth = depth};
    std::uninitialized_value_construct_n(reinterpret_cast<Slot*>(head + 1), length);
    return Segment(reinterpret_cast<std::uint64_t>(head) | log_length);
}

/// Nobody reads the segment's head but writers. There is a slot that is not in use.
void RuleTable::Segment::place(const RuleNode& node) const noexcept {
    std::uint64_t at = node.hash & mask();
    while (slots()[at].load(std::memory_order_relaxed) > grave) at = (at + 1) & mask();
    slots()[at].store(pack(node), std::memory_order_release);
    ++head().used;  // an upper bound: a reused grave is counted twice until the segment is replaced
    ++head().live;
}

RuleTable::RuleTable(const Key& mask) : mask_(mask) {
    auto first = std::make_unique<Directory>(0);
    first->segments[0] = Segment::make(std::countr_zero(shortest), 0).word();
    slots_ = shortest;
    directory_ = first.release();
}

RuleTable::~RuleTable() {
    for_each_segment([](const Segment& segment) { Segment::free(&segment.head()); });
    delete &directory();
}

RuleTable::Slot* RuleTable::slot_of(const RuleNode& node) const noexcept {
    const Segment segment = segment_of(node.hash);
    for (std::uint64_t at = node.hash & segment.mask();; at = (at + 1) & segment.mask()) {
        Slot& slot = segment.slots()[at];
        const std::uint64_t packed = slot.load(std::memory_order_relaxed);
        if (packed == free_slot) return nullptr;
        if (packed >> 48 != tag_of(node.hash) || packed == grave) continue;
        const RuleNode* other = node_in(packed);
        if (other == &node) return &slot;
        if (other->hash == node.hash && std::equal(node.words(), node.words() + node.word_count, other->words())) {
            return &slot;
        }
    }
}

bool RuleTable::contains(const RuleNode& node) const noexcept { return slot_of(node) != nullptr; }

RuleTable::Waiting::iterator RuleTable::next_of(const RuleNode& node) noexcept {
    const auto [begin, end] = waiting_.equal_range(node.hash);
    const auto next = std::find_if(begin, end, [&node](const auto& other) {
        return std::equal(node.words(), node.words() + node.word_count, other.second->words());
    });
    return next == end ? waiting_.end() : next;
}

void RuleTable::insert(RuleNode& node) {
    if (slot_of(node) != nullptr) {
        waiting_.emplace(node.hash, &node);
    } else {
        segment_of(node.hash).place(node);
        ++live_;
    }
    length_.fetch_add(1, std::memory_order_relaxed);
}

void RuleTable::remove(RuleNode& node) noexcept {
    Slot& slot = *slot_of(node);
    if (node_in(slot.load(std::memory_order_relaxed)) != &node) {
        const auto [begin, end] = waiting_.equal_range(node.hash);
        waiting_.erase(std::find_if(begin, end, [&node](const auto& other) { return other.second == &node; }));
    } else if (const auto next = next_of(node); next != waiting_.end()) {
        slot.store(pack(*next->second), std::memory_order_release);
        waiting_.erase(next);
    } else {
        slot.store(grave, std::memory_order_release);
        --segment_of(node.hash).head().live;
        --live_;
    }
    length_.fetch_sub(1, std::memory_order_relaxed);
}

void RuleTable::make_room(std::uint32_t hash, Rcu& rcu) {
    for (;;) {
        const Segment segment = segment_of(hash);
        const std::uint64_t length = segment.length(), wanted = segment.head().live + 1;
        const std::uint64_t most = fixed_ ? length - length / 8 : length / 2;
        if (segment.head().used + 1 <= most) return;
        // Full of graves. At least an eighth is free then for changes to come.
        const bool keeps_length = fixed_ ? wanted <= length / 2 : length >= longest && wanted <= length / 8 * 3;
        if (keeps_length) {
            replace(segment, hash, length, rcu);
        } else if (length < longest) {
            replace(segment, hash, std::min(longest, slots_for(wanted, 4)), rcu);
        } else if (length == longest && may_split(segment)) {
            split(segment, hash, rcu);
        } else {
            replace(segment, hash, length * 2, rcu);
        }
    }
}

/// A directory takes an eighth of a byte a rule at most.
bool RuleTable::may_split(const Segment& segment) const noexcept {
    constexpr std::size_t rules_a_place = 64;
    return segment.head().depth < directory().depth || directory().length() * 2 * rules_a_place <= live_ + 1;
}

void RuleTable::move(const Segment& from, std::span<const Segment> to) noexcept {
    constexpr std::uint64_t ahead = 8;
    const unsigned bit = 31 - from.head().depth;
    for (std::uint64_t i = 0; i < from.length() + ahead; ++i) {
        const std::uint64_t next = i < from.length() ? from.slots()[i].load(std::memory_order_relaxed) : free_slot;
        if (next > grave) __builtin_prefetch(node_in(next));
        if (i < ahead) continue;
        const std::uint64_t packed = from.slots()[i - ahead].load(std::memory_order_relaxed);
        if (packed <= grave) continue;
        const RuleNode& node = *node_in(packed);
        to[to.size() == 1 ? 0 : node.hash >> bit & 1].place(node);
    }
}

/// Wherever in the directory a segment with so many bits of the hash in common stands.
void RuleTable::publish(const Segment& segment, std::uint32_t hash) noexcept {
    const Directory& all = directory();
    const std::size_t times = std::size_t{1} << (all.depth - segment.head().depth);
    const std::size_t first = all.index_of(hash) & ~(times - 1);
    for (std::size_t i = first; i < first + times; ++i) {
        all.segments[i].store(segment.word(), std::memory_order_release);
    }
    slots_.fetch_add(segment.length(), std::memory_order_relaxed);
}

void RuleTable::retire(const Segment& segment, Rcu& rcu) noexcept {
    slots_.fetch_sub(segment.length(), std::memory_order_relaxed);
    rcu.retire(&segment.head(), Segment::free);
}

void RuleTable::replace(const Segment& old, std::uint32_t hash, std::uint64_t length, Rcu& rcu) {
    const std::array next{Segment::make(std::countr_zero(length), old.head().depth)};
    move(old, next);
    publish(next[0], hash);
    retire(old, rcu);
}

void RuleTable::split(const Segment& old, std::uint32_t hash, Rcu& rcu) {
    const unsigned depth = old.head().depth;
    if (depth == directory().depth) double_directory(rcu);
    const Segment low = Segment::make(log_longest, depth + 1);
    Segment high = low;
    try {
        high = Segment::make(log_longest, depth + 1);
    } catch (...) {
        Segment::free(&low.head());
        throw;
    }
    move(old, std::array{low, high});
    const std::uint32_t bit = std::uint32_t{1} << (31 - depth);
    publish(low, hash & ~bit);
    publish(high, hash | bit);
    retire(old, rcu);
}

void RuleTable::double_directory(Rcu& rcu) {
    Directory& old = directory();
    auto next = std::make_unique<Directory>(old.depth + 1);
    for (std::size_t i = 0; i < next->length(); ++i) {
        next->segments[i].store(old.segments[i / 2].load(std::memory_order_relaxed), std::memory_order_relaxed);
    }
    directory_.store(next.release(), std::memory_order_release);
    rcu.retire(&old);
}

void RuleTable::reserve(std::size_t rules, Rcu& rcu) {
    const std::uint64_t wanted = slots_for(std::max(rules, live_), 2);
    merge_all(2, rcu);
    if (const Segment only = segment_of(0); only.head().depth == 0 && live_ <= longest / 2) {
        replace(only, 0, std::min(wanted, longest), rcu);
    }
    for (unsigned depth = 0; slots_ < wanted && depth <= directory().depth; ++depth) {
        for (std::uint64_t hash = 0; hash >> 32 == 0 && slots_ < wanted; hash += std::uint64_t{1} << (32 - depth)) {
            const auto first = static_cast<std::uint32_t>(hash);
            const Segment segment = segment_of(first);
            if (segment.head().depth == depth && segment.length() == longest) split(segment, first, rcu);
        }
    }
}

bool RuleTable::merge(std::uint32_t hash, std::uint64_t share, Rcu& rcu) {
    const Segment one = segment_of(hash);
    const unsigned depth = one.head().depth;
    if (depth == 0) return false;
    const std::uint32_t bit = std::uint32_t{1} << (32 - depth);
    const Segment other = segment_of(hash ^ bit);
    if (other.head().depth != depth || (one.head().live + other.head().live) * share > longest) return false;
    const std::array next{Segment::make(log_longest, depth - 1)};
    move(one, next);
    move(other, next);
    publish(next[0], hash);
    retire(one, rcu);
    retire(other, rcu);
    return true;
}

void RuleTable::merge_all(std::uint64_t share, Rcu& rcu) {
    for (unsigned depth = directory().depth; depth > 0; --depth) {
        for (std::uint64_t hash = 0; hash >> 32 == 0; hash += std::uint64_t{2} << (32 - depth)) {
            const auto first = static_cast<std::uint32_t>(hash);
            if (segment_of(first).head().depth == depth) merge(first, share, rcu);
        }
    }
}

void RuleTable::shrink(Rcu& rcu) noexcept {
    if (fixed_) return;
    try {
        merge_all(4, rcu);
        shorten(rcu);
    } catch (const std::bad_alloc&) {
        // It stays as large as it is.
    }
}

void RuleTable::shrink_around(std::uint32_t hash, Rcu& rcu) noexcept {
    constexpr std::uint64_t small = 16;
    if (fixed_) return;
    try {
        while (merge(hash, small, rcu)) continue;
        if (const Segment segment = segment_of(hash); segment.head().live * small < segment.length()) shorten(rcu);
    } catch (const std::bad_alloc&) {
        // As above.
    }
}

/// The only segment.
void RuleTable::shorten(Rcu& rcu) {
    const Segment only = segment_of(0);
    if (only.head().depth != 0) return;
    if (const std::uint64_t wanted = slots_for(live_, 4); wanted < only.length()) replace(only, 0, wanted, rcu);
}

}  // namespace ovsdr::soft
