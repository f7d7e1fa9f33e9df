// The rules of one matcher: a hash table that lanes read without a lock while writers change it.
//
// Open addressing over 64-bit slots (16 bits of hash, 48 of pointer): a look-up touches one line of slots and then the
// node that matches. Rules with equal values hang behind the first one, which is the one that packets meet.
//
// At half load the slots are replaced by a quarter full array that is published whole; the old one is retired. A table
// of fixed size keeps its array until it is seven eighths full: look-ups take longer, as where a fixed hash table of
// the device chains what collides, but no rule is refused.
//
// Threads: find() from lanes that are online; everything else by one writer at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>

#include "datapath/steering/masked_words.hpp"
#include "datapath/steering/program.hpp"
#include "datapath/steering/rcu.hpp"

namespace ovsdr::soft {

/// One rule as readers see it; immutable once inserted. Its words, its ops and what these point to lie behind it in the
/// same block of memory: a million rules are a question of size, and a look-up touches one place.
struct RuleNode {
    [[nodiscard]] static void* operator new(std::size_t size, std::size_t behind) {
        return ::operator new(size + behind);
    }
    /// With as many words, ops and objects that are kept; these are empty.
    RuleNode(std::uint8_t words, std::uint8_t ops, std::uint8_t objects) noexcept;
    ~RuleNode() { std::destroy_n(kept().data(), kept_count); }
    RuleNode(const RuleNode&) = delete;
    RuleNode& operator=(const RuleNode&) = delete;
    [[nodiscard]] static std::size_t size_behind(unsigned words, unsigned ops, unsigned objects) noexcept {
        return words * sizeof(std::uint64_t) + ops * sizeof(Op) + objects * sizeof(std::shared_ptr<const void>);
    }
    static void operator delete(void* node) noexcept { ::operator delete(node); }
    static void operator delete(void* node, std::size_t) noexcept { ::operator delete(node); }

    [[nodiscard]] std::uint64_t* words() noexcept { return reinterpret_cast<std::uint64_t*>(this + 1); }
    [[nodiscard]] const std::uint64_t* words() const noexcept {
        return reinterpret_cast<const std::uint64_t*>(this + 1);
    }
    /// What the program needs, for as long as the node lives.
    [[nodiscard]] std::span<std::shared_ptr<const void>> kept() noexcept {
        return {reinterpret_cast<std::shared_ptr<const void>*>(program.ops + program.length), kept_count};
    }

    std::uint32_t hash = 0;
    std::uint8_t sides = side_both;
    std::uint8_t word_count;
    std::uint8_t kept_count;
    RuleNode* next_duplicate = nullptr;  ///< writers only
    Program program;
};

class RuleTable {
public:
    explicit RuleTable(const Key& mask);
    ~RuleTable();
    RuleTable(const RuleTable&) = delete;
    RuleTable& operator=(const RuleTable&) = delete;

    [[nodiscard]] const MaskedWords& mask() const noexcept { return mask_; }
    [[nodiscard]] std::size_t length() const noexcept { return length_.load(std::memory_order_relaxed); }
    /// How many rules of different values fit into the array of today at half load. Threads: any.
    [[nodiscard]] std::size_t room() const noexcept { return room_.load(std::memory_order_relaxed); }

    /// The rule that `key` meets, or nullptr.
    [[nodiscard]] const RuleNode* find(const Key& key) const noexcept;

    /// Fetches where a node of that value goes, for an insertion that is about to come. Threads: any.
    void prefetch(const Key& value) const noexcept;

    /// Whether a rule has the node's value.
    [[nodiscard]] bool contains(const RuleNode& node) const noexcept;

    /// Allocates a node whose words are `value` masked, with room for ops and objects. Throws std::bad_alloc.
    [[nodiscard]] std::unique_ptr<RuleNode> make_node(const Key& value, std::uint8_t ops,
                                                      std::uint8_t objects = 0) const;

    /// Makes the array right for `rules`, or for those that there are if they are more. Throws std::bad_alloc, then
    /// nothing has changed.
    void reserve(std::size_t rules, Rcu& rcu);
    void fix_size(bool fixed) noexcept { fixed_ = fixed; }

    /// Takes ownership. Throws std::bad_alloc, then nothing has changed.
    void insert(std::unique_ptr<RuleNode>& node, Rcu& rcu);

    /// Unpublishes and retires.
    void remove(RuleNode* node, Rcu& rcu);

    /// Gives back what the array has more than its rules need, unless the size is fixed.
    void shrink(Rcu& rcu) noexcept;
    /// Whether that is worth the work for each rule that goes.
    [[nodiscard]] bool sparse() const noexcept { return live_ < room() / 8; }

private:
    struct Slots {
        std::uint64_t mask;       ///< length - 1
        std::unique_ptr<std::atomic<std::uint64_t>[]> slots;
    };

    [[nodiscard]] static std::uint64_t pack(const RuleNode* node) noexcept;
    [[nodiscard]] static std::unique_ptr<Slots> make_slots(std::uint64_t length);
    static void place(Slots& slots, std::uint64_t packed, std::uint32_t hash) noexcept;
    /// The first node of the same value, and its slot; nullptr when there is none.
    [[nodiscard]] std::atomic<std::uint64_t>* slot_of(const RuleNode& node) const noexcept;
    void rebuild(std::uint64_t length, Rcu& rcu);

    MaskedWords mask_;
    std::atomic<std::size_t> length_{0};  ///< rules, duplicates too
    std::size_t used_ = 0;                ///< slots that are not free, graves too
    std::size_t live_ = 0;                ///< slots that hold a node
    bool fixed_ = false;
    std::atomic<std::size_t> room_;
    std::atomic<Slots*> slots_;
    // As in slots_, for prefetch(), which may not look into them: whoever is no lane may find them gone. While they are
    // replaced the two may be of different arrays; then a line is fetched that nobody needs.
    std::atomic<const void*> fetched_from_{nullptr};
    std::atomic<std::uint64_t> fetched_mask_{0};
};

}  // namespace ovsdr::soft
