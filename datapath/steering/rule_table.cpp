#include "datapath/steering/rule_table.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace ovsdr::soft {
namespace {

constexpr std::uint64_t free_slot = 0;
constexpr std::uint64_t grave = 1;  ///< no node sits at this address
constexpr std::uint64_t pointer_bits = 0x0000ffffffffffffULL;
constexpr std::uint32_t seed = 0x5bd1e995;
constexpr std::uint64_t shortest = 8;  ///< slots

/// A power of two of slots that `rules` fill by no more than one in `share`.
[[nodiscard]] std::uint64_t slots_for(std::size_t rules, unsigned share) noexcept {
    return std::max(shortest, std::bit_ceil(std::uint64_t{rules} * share));
}

[[nodiscard]] RuleNode* node_in(std::uint64_t packed) noexcept {
    return reinterpret_cast<RuleNode*>(packed & pointer_bits);
}

}  // namespace

RuleTable::RuleTable(const Key& mask)
    : mask_(mask), room_(shortest / 2), slots_(make_slots(shortest).release()) {}

RuleTable::~RuleTable() {
    const std::unique_ptr<Slots> slots(slots_.load(std::memory_order_relaxed));
    for (std::uint64_t i = 0; i <= slots->mask; ++i) {
        const std::uint64_t packed = slots->slots[i].load(std::memory_order_relaxed);
        if (packed == free_slot || packed == grave) continue;
        for (RuleNode* node = node_in(packed); node != nullptr;) delete std::exchange(node, node->next_duplicate);
    }
}

std::uint64_t RuleTable::pack(const RuleNode* node) noexcept {
    return static_cast<std::uint64_t>(node->hash >> 16) << 48 | reinterpret_cast<std::uint64_t>(node);
}

std::unique_ptr<RuleTable::Slots> RuleTable::make_slots(std::uint64_t length) {
    auto slots = std::make_unique<Slots>();
    slots->mask = length - 1;
    slots->slots = std::make_unique<std::atomic<std::uint64_t>[]>(length);
    return slots;
}

void RuleTable::place(Slots& slots, std::uint64_t packed, std::uint32_t hash) noexcept {
    std::uint64_t at = hash & slots.mask;
    while (slots.slots[at].load(std::memory_order_relaxed) > grave) at = (at + 1) & slots.mask;
    slots.slots[at].store(packed, std::memory_order_release);
}

const RuleNode* RuleTable::find(const Key& key) const noexcept {
    const std::uint32_t hash = mask_.hash(key, seed);
    const Slots* slots = slots_.load(std::memory_order_acquire);
    for (std::uint64_t at = hash & slots->mask;; at = (at + 1) & slots->mask) {
        const std::uint64_t packed = slots->slots[at].load(std::memory_order_acquire);
        if (packed == free_slot) return nullptr;
        if (packed >> 48 != hash >> 16 || packed == grave) continue;
        const RuleNode* node = node_in(packed);
        if (node->hash == hash && mask_.equal(key, node->words())) return node;
    }
}

RuleNode::RuleNode(std::uint8_t words_behind, std::uint8_t ops, std::uint8_t objects) noexcept
    : word_count(words_behind), kept_count(objects) {
    program.length = ops;
    program.ops = reinterpret_cast<Op*>(words() + words_behind);
    std::uninitialized_value_construct_n(kept().data(), objects);
}

std::unique_ptr<RuleNode> RuleTable::make_node(const Key& value, std::uint8_t ops, std::uint8_t objects) const {
    const auto words = static_cast<std::uint8_t>(mask_.length);
    std::unique_ptr<RuleNode> node(new (RuleNode::size_behind(words, ops, objects)) RuleNode(words, ops, objects));
    node->hash = mask_.extract(value, seed, node->words());
    return node;
}

void RuleTable::prefetch(const Key& value) const noexcept {
    const std::uint64_t at = mask_.hash(value, seed) & fetched_mask_.load(std::memory_order_relaxed);
    __builtin_prefetch(static_cast<const std::uint64_t*>(fetched_from_.load(std::memory_order_relaxed)) + at, 1);
}

std::atomic<std::uint64_t>* RuleTable::slot_of(const RuleNode& node) const noexcept {
    Slots* slots = slots_.load(std::memory_order_relaxed);
    for (std::uint64_t at = node.hash & slots->mask;; at = (at + 1) & slots->mask) {
        const std::uint64_t packed = slots->slots[at].load(std::memory_order_relaxed);
        if (packed == free_slot) return nullptr;
        if (packed == grave) continue;
        const RuleNode* other = node_in(packed);
        if (other == &node) return &slots->slots[at];
        if (packed >> 48 != node.hash >> 16) continue;
        if (other->hash == node.hash && std::equal(node.words(), node.words() + node.word_count, other->words())) {
            return &slots->slots[at];
        }
    }
}

bool RuleTable::contains(const RuleNode& node) const noexcept { return slot_of(node) != nullptr; }

void RuleTable::insert(std::unique_ptr<RuleNode>& node, Rcu& rcu) {
    if (const auto* slot = slot_of(*node); slot != nullptr) {
        RuleNode* other = node_in(slot->load(std::memory_order_relaxed));
        while (other->next_duplicate != nullptr) other = other->next_duplicate;
        other->next_duplicate = node.release();
        length_.fetch_add(1, std::memory_order_relaxed);
        return;
    }
    const std::uint64_t slots = slots_.load(std::memory_order_relaxed)->mask + 1;
    if (used_ + 1 > (fixed_ ? slots - slots / 8 : slots / 2)) {
        const std::uint64_t wanted = slots_for(live_ + 1, 4);
        rebuild(fixed_ && live_ + 1 <= slots / 2 ? slots : wanted, rcu);
    }
    const RuleNode* inserted = node.release();
    place(*slots_.load(std::memory_order_relaxed), pack(inserted), inserted->hash);
    ++used_;  // an upper bound: a reused grave is counted twice until the next rebuild
    ++live_;
    length_.fetch_add(1, std::memory_order_relaxed);
}

void RuleTable::reserve(std::size_t rules, Rcu& rcu) { rebuild(slots_for(std::max(rules, live_), 2), rcu); }

void RuleTable::shrink(Rcu& rcu) noexcept {
    const std::uint64_t wanted = slots_for(live_, 4);
    if (fixed_ || wanted > slots_.load(std::memory_order_relaxed)->mask) return;
    try {
        rebuild(wanted, rcu);
    } catch (const std::bad_alloc&) {
        // It stays as large as it is.
    }
}

void RuleTable::rebuild(std::uint64_t length, Rcu& rcu) {
    Slots* old = slots_.load(std::memory_order_relaxed);
    std::unique_ptr<Slots> next = make_slots(length);
    for (std::uint64_t i = 0; i <= old->mask; ++i) {
        const std::uint64_t packed = old->slots[i].load(std::memory_order_relaxed);
        if (packed > grave) place(*next, packed, node_in(packed)->hash);
    }
    used_ = live_;
    room_.store(length / 2, std::memory_order_relaxed);
    fetched_mask_.store(next->mask, std::memory_order_relaxed);
    fetched_from_.store(next->slots.get(), std::memory_order_relaxed);
    slots_.store(next.release(), std::memory_order_release);
    rcu.retire(old);
}

void RuleTable::remove(RuleNode* node, Rcu& rcu) {
    std::atomic<std::uint64_t>* slot = slot_of(*node);
    RuleNode* first = node_in(slot->load(std::memory_order_relaxed));
    if (first == node) {
        slot->store(node->next_duplicate == nullptr ? grave : pack(node->next_duplicate), std::memory_order_release);
        if (node->next_duplicate == nullptr) --live_;
    } else {
        while (first->next_duplicate != node) first = first->next_duplicate;
        first->next_duplicate = node->next_duplicate;
    }
    length_.fetch_sub(1, std::memory_order_relaxed);
    node->next_duplicate = nullptr;
    rcu.retire(node);
}

}  // namespace ovsdr::soft
