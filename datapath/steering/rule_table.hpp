// The rules of one matcher: a hash table that lanes read without a lock while writers change it.
//
// Model. A directory leads from the first bits of a hash to a segment, where rules lie by the last bits: open
// addressing over 64-bit slots (16 bits of hash, 48 of pointer). A look-up touches the directory, one line of slots and
// then the node that matches.
//
// At half load a segment is replaced by one that is a quarter full, until it has `longest` slots; then two take its
// place, for one bit more of the hash, and where that is a bit that the directory does not tell apart this one becomes
// twice as long. So a million rules come and go without a change that moves more than `longest` of them. Where the
// directory would be long for so few rules, because the bits of a thousand do not differ, a segment grows on. A table
// of fixed size fills its segments to seven eighths: look-ups take longer, as where a fixed hash table of the device
// chains what collides, but no rule is refused.
//
// Packets meet the first of rules with equal values; the others wait beside the table.
//
// Threads: find() from lanes that are online; length() and room() from any; everything else by one writer at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <new>
#include <span>

#include "datapath/steering/masked_words.hpp"
#include "datapath/steering/program.hpp"
#include "datapath/steering/rcu.hpp"

namespace ovsdr::soft {

class Action;
class Matcher;

/// One rule. What packets meet of it comes first and is immutable while it is in a table. Its ops, its words and the
/// list of actions lie behind it in the same block of memory: a million rules are a question of size, and a look-up
/// touches one place.
struct RuleNode {
    /// How many of each lie behind it.
    struct Lengths {
        std::uint8_t ops, words, actions;
    };
    [[nodiscard]] static constexpr std::size_t size_behind(const Lengths& lengths) noexcept {
        return lengths.ops * sizeof(Op) + lengths.words * sizeof(std::uint64_t) + lengths.actions * sizeof(Action*);
    }
    /// Into a block of sizeof(RuleNode) + size_behind(lengths) bytes.
    explicit RuleNode(const Lengths& lengths) noexcept
        : op_count(lengths.ops), word_count(lengths.words & most_words), action_count(lengths.actions) {}
    RuleNode(const RuleNode&) = delete;
    RuleNode& operator=(const RuleNode&) = delete;

    [[nodiscard]] std::span<const Op> ops() const noexcept { return {first_op(), op_count}; }
    [[nodiscard]] std::span<Op> ops() noexcept { return {const_cast<Op*>(first_op()), op_count}; }
    [[nodiscard]] const std::uint64_t* words() const noexcept {
        return reinterpret_cast<const std::uint64_t*>(first_op() + op_count);
    }
    [[nodiscard]] std::uint64_t* words() noexcept { return const_cast<std::uint64_t*>(std::as_const(*this).words()); }
    [[nodiscard]] std::span<Action* const> actions() const noexcept {
        return {reinterpret_cast<Action* const*>(words() + word_count), action_count};
    }
    [[nodiscard]] std::span<Action*> actions() noexcept {
        return {reinterpret_cast<Action**>(words() + word_count), action_count};
    }

    std::uint32_t hash = 0;
    std::uint8_t sides : 2 = side_both;
    bool linked : 1 = false;
    std::uint8_t op_count;
    // Only writers read these, and the bit changes in a table: it is in no byte that lanes read.
    std::uint8_t word_count : 7;
    bool installed : 1 = false;
    std::uint8_t action_count;
    End end;
    Matcher* matcher = nullptr;

private:
    static constexpr std::uint8_t most_words = 0x7f;
    static_assert(Key::length <= most_words);
    [[nodiscard]] const Op* first_op() const noexcept { return reinterpret_cast<const Op*>(this + 1); }
};
static_assert(sizeof(RuleNode) == 32);

class RuleTable {
public:
    static constexpr unsigned log_longest = 10;  ///< of a segment's slots: to move what they hold takes 0.1 ms

    /// Throws std::bad_alloc.
    explicit RuleTable(const Key& mask);
    /// Rules that are still there are nobody's.
    ~RuleTable();
    RuleTable(const RuleTable&) = delete;
    RuleTable& operator=(const RuleTable&) = delete;

    [[nodiscard]] const MaskedWords& mask() const noexcept { return mask_; }
    [[nodiscard]] std::size_t length() const noexcept { return length_.load(std::memory_order_relaxed); }
    /// How many rules of different values fit into the segments of today at half load.
    [[nodiscard]] std::size_t room() const noexcept { return slots_.load(std::memory_order_relaxed) / 2; }

    /// The rule that `key` meets, or nullptr.
    [[nodiscard]] const RuleNode* find(const Key& key) const noexcept {
        const std::uint32_t hash = mask_.hash(key, seed);
        const Directory* directory = directory_.load(std::memory_order_acquire);
        const Segment segment(directory->at(hash).load(std::memory_order_acquire));
        for (std::uint64_t at = hash & segment.mask();; at = (at + 1) & segment.mask()) {
            const std::uint64_t packed = segment.slots()[at].load(std::memory_order_acquire);
            if (packed == free_slot) return nullptr;
            if (packed >> 48 != tag_of(hash) || packed == grave) continue;
            const RuleNode* node = node_in(packed);
            if (node->hash == hash && mask_.equal(key, node->words())) return node;
        }
    }

    /// Writes the node's hash and words.
    void set_value(RuleNode& node, const Key& value) const noexcept {
        node.hash = mask_.extract(value, seed, node.words());
    }
    /// Fetches where the node is, or goes.
    void prefetch(const RuleNode& node) const noexcept {
        const Segment segment = segment_of(node.hash);
        __builtin_prefetch(segment.slots() + (node.hash & segment.mask()), 1);
    }

    /// Whether a rule has the node's value.
    [[nodiscard]] bool contains(const RuleNode& node) const noexcept;

    /// Makes room for one rule more that has this hash. Lanes find what there is meanwhile. Throws std::bad_alloc, then
    /// nothing has changed.
    void make_room(std::uint32_t hash, Rcu& rcu);
    /// Behind make_room(). The node stays its owner's, and where it is, until it is removed. Throws std::bad_alloc,
    /// then nothing has changed.
    void insert(RuleNode& node);

    /// Lanes may look at the node for a grace period to come.
    void remove(RuleNode& node) noexcept;

    /// Makes room for `rules`, or for those that there are if they are more, and no more room than that. Throws
    /// std::bad_alloc, then there is some of it.
    void reserve(std::size_t rules, Rcu& rcu);
    void fix_size(bool fixed) noexcept { fixed_ = fixed; }

    /// Gives back what segments have more than their rules need, unless the size is fixed.
    void shrink(Rcu& rcu) noexcept;
    /// The same where a node of that hash was, once the work is small beside the rules that have gone there.
    void shrink_around(std::uint32_t hash, Rcu& rcu) noexcept;

    /// Calls `visit` with each node, in no order.
    template <typename Visit>
    void for_each(Visit visit) const {
        for_each_segment([&](const Segment& segment) {
            for (std::uint64_t i = 0; i <= segment.mask(); ++i) {
                const std::uint64_t packed = segment.slots()[i].load(std::memory_order_relaxed);
                if (packed > grave) visit(*node_in(packed));
            }
        });
        for (const auto& [hash, node] : waiting_) visit(*node);
    }

private:
    using Slot = std::atomic<std::uint64_t>;
    static constexpr std::uint64_t free_slot = 0, grave = 1;  ///< no node sits at this address
    static constexpr std::uint64_t pointer_bits = 0x0000ffffffffffffULL;
    static constexpr std::uint32_t seed = 0x5bd1e995;

    /// A run of slots, by one word: its address, and in the lowest bits the logarithm of its length. Its slots follow
    /// what writers know of it.
    class Segment {
    public:
        struct alignas(64) Head {
            std::uint64_t used = 0;  ///< slots that are not free, graves too
            std::uint64_t live = 0;  ///< slots that hold a node
            unsigned depth;          ///< first bits of the hash that its nodes have in common
        };
        explicit Segment(std::uint64_t word) noexcept : word_(word) {}
        /// All slots are free. Throws std::bad_alloc.
        [[nodiscard]] static Segment make(unsigned log_length, unsigned depth);
        static void free(void* head) noexcept { ::operator delete(head, std::align_val_t{alignof(Head)}); }

        [[nodiscard]] std::uint64_t word() const noexcept { return word_; }
        [[nodiscard]] std::uint64_t mask() const noexcept { return length() - 1; }
        [[nodiscard]] std::uint64_t length() const noexcept { return std::uint64_t{1} << (word_ % alignof(Head)); }
        [[nodiscard]] Slot* slots() const noexcept { return reinterpret_cast<Slot*>(&head() + 1); }
        [[nodiscard]] Head& head() const noexcept {
            return *reinterpret_cast<Head*>(word_ & ~std::uint64_t{alignof(Head) - 1});
        }
        void place(const RuleNode& node) const noexcept;

    private:
        std::uint64_t word_;
    };

    /// Segments by the first `depth` bits of the hash; one that has fewer in common stands there several times in turn.
    struct Directory {
        explicit Directory(unsigned bits) : depth(bits), segments(new Slot[std::size_t{1} << bits]) {}
        [[nodiscard]] std::size_t length() const noexcept { return std::size_t{1} << depth; }
        [[nodiscard]] std::size_t index_of(std::uint32_t hash) const noexcept {
            return std::uint64_t{hash} >> (32 - depth);
        }
        [[nodiscard]] Slot& at(std::uint32_t hash) const noexcept { return segments[index_of(hash)]; }

        unsigned depth;
        std::unique_ptr<Slot[]> segments;
    };

    [[nodiscard]] static std::uint64_t tag_of(std::uint32_t hash) noexcept { return hash >> 8 & 0xffff; }
    [[nodiscard]] static std::uint64_t pack(const RuleNode& node) noexcept {
        return tag_of(node.hash) << 48 | reinterpret_cast<std::uint64_t>(&node);
    }
    [[nodiscard]] static RuleNode* node_in(std::uint64_t packed) noexcept {
        return reinterpret_cast<RuleNode*>(packed & pointer_bits);
    }

    [[nodiscard]] Directory& directory() const noexcept { return *directory_.load(std::memory_order_relaxed); }
    [[nodiscard]] Segment segment_of(std::uint32_t hash) const noexcept {
        return Segment(directory().at(hash).load(std::memory_order_relaxed));
    }
    template <typename Visit>
    void for_each_segment(Visit visit) const {
        const Directory& all = directory();
        for (std::size_t i = 0; i < all.length();) {
            const Segment segment(all.segments[i].load(std::memory_order_relaxed));
            i += std::size_t{1} << (all.depth - segment.head().depth);
            visit(segment);
        }
    }
    /// The slot of the first node of the same value; nullptr when there is none.
    [[nodiscard]] Slot* slot_of(const RuleNode& node) const noexcept;
    using Waiting = std::multimap<std::uint32_t, RuleNode*>;
    /// The first that waits for the slot of a node of the same value.
    [[nodiscard]] Waiting::iterator next_of(const RuleNode& node) noexcept;

    /// Copies the nodes of `from` into whichever of `to` the bit behind their depth says; one stands for both.
    static void move(const Segment& from, std::span<const Segment> to) noexcept;
    [[nodiscard]] bool may_split(const Segment& segment) const noexcept;
    void publish(const Segment& segment, std::uint32_t hash) noexcept;
    void retire(const Segment& segment, Rcu& rcu) noexcept;
    void replace(const Segment& old, std::uint32_t hash, std::uint64_t length, Rcu& rcu);
    void split(const Segment& old, std::uint32_t hash, Rcu& rcu);
    void double_directory(Rcu& rcu);
    /// Puts a segment and its neighbour together, unless they hold more than one rule in `share` of a longest one's
    /// slots. Whether it has. These throw std::bad_alloc.
    bool merge(std::uint32_t hash, std::uint64_t share, Rcu& rcu);
    void merge_all(std::uint64_t share, Rcu& rcu);
    void shorten(Rcu& rcu);

    MaskedWords mask_;
    std::atomic<std::size_t> length_{0};  ///< rules, duplicates too
    std::atomic<std::size_t> slots_{0};
    std::size_t live_ = 0;                ///< slots that hold a node
    bool fixed_ = false;
    std::atomic<Directory*> directory_;
    Waiting waiting_;  ///< duplicates, by hash, of equal values the oldest first
};

}  // namespace ovsdr::soft
