// The walk of one packet through the tables, done to the packet as it goes and written down as a trace.
//
// NIC_TX (for queues) -> FDB -> a vport, or the manager's NIC_RX -> a queue or the co-tenant. Where headers were
// rewritten they are read again before the next look-up. The trace may stand for other packets only while every
// look-up depended on bits that the cache's key fixes: bits that an action made depend on something else are tainted,
// and a matcher that looks at a tainted bit makes the walk its packet's own.
//
// State. What a meter, a first hit or a tracked connection says of a packet is no function of its words, but one of few
// values. Where a look-up behind it depends on that, the walk goes on from there once for each value: for the packet's
// own as always, and before that for each of the others on a dry branch, on which nothing is done to any packet and
// whose trace alone counts. On each of them the value is known. Values whose packets have the same done to them share
// their ops in the trace. Where dry branches cannot tell (they would have to read a frame that they have not rewritten,
// or there is no room), the value is tainted.
//
// Threads: the lane's worker.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "datapath/steering/lane_impl.hpp"

namespace ovsdr::soft {

class Walk {
public:
    explicit Walk(Lane::Impl& lane) noexcept : lane_(lane) {}

    /// Takes `packet` all the way. `key` is its parsed words with source and registers 0 but for the source words;
    /// `deep` says that parse_deep() has filled it too.
    void run(const Entrance& entrance, const Key& key, bool deep, rte_mbuf* packet) noexcept;

    /// Whether ops() does the same to every packet with the same cache key.
    [[nodiscard]] bool cacheable() const noexcept { return cacheable_; }
    /// Hops that were followed for outcomes that are not the packet's.
    [[nodiscard]] unsigned explored() const noexcept { return explored_; }
    [[nodiscard]] std::span<const Op> ops() const noexcept { return {ops_.data(), length_}; }
    /// Bit i: word i of the packet's Key was rewritten before a look-up, on whichever branch.
    [[nodiscard]] std::uint64_t rewritten() const noexcept { return rewritten_; }

private:
    /// One packet on one branch.
    struct Branch {
        rte_mbuf* packet;
        Key key;
        Key taint;
        DomainType domain;
        std::uint8_t side;
        bool deep;         ///< the key holds what parse_deep() reads
        bool stale;        ///< headers were rewritten since the key was read
        std::uint64_t rewritten = 0;  ///< words of the key, by number, that are not as the packet came
        bool dry = false;  ///< written down only: for packets that are sampled, or of another outcome, than this one
        bool undone = false;  ///< dry, and rewriting was written down: the frame is not as the branch would have it
    };
    /// Where a branch is: at op `next` of the rule that it has met.
    struct Hop {
        const RuleNode* rule;  ///< nullptr: it has met none
        unsigned next;
        bool in_root;
        std::uint32_t rank;  ///< of the look-up
    };

    void follow(Branch& branch, End end) noexcept;
    [[nodiscard]] bool finish(Branch& branch, const Hop& hop, End& end) noexcept;
    void go_on(Branch& branch, const Hop& hop) noexcept;
    [[nodiscard]] const RuleNode* look_up(Branch& branch, const MatcherList& list, std::uint32_t rank) noexcept;
    [[nodiscard]] bool goes_to_leftovers(const Branch& branch, std::uint32_t rank) const noexcept;
    /// Where `end` leads a branch of its own.
    void depart(Branch& branch, const End& end) noexcept;
    [[nodiscard]] bool run_ops(Branch& branch, const Hop& hop) noexcept;
    /// Records `op` and does it; false when the packet is gone. `registers` is what an edit copies from.
    [[nodiscard]] bool run_op(Branch& branch, const Op& op, const Key& registers) noexcept;
    [[nodiscard]] bool run_stateful(Branch& branch, const Op& op, const Hop& behind) noexcept;
    [[nodiscard]] bool explore(const Branch& branch, unsigned reg_c, std::uint16_t outcomes,
                               const Hop& behind) noexcept;
    void join_outcomes(unsigned begin, unsigned head) noexcept;
    void drop_outcomes_like_rest(unsigned begin, unsigned rest) noexcept;
    [[nodiscard]] bool same_ops(unsigned a, unsigned b, unsigned length) const noexcept;
    void sample(Branch& branch, const SamplerProgram& sampler) noexcept;
    void note_rewrite(Branch& branch, const Op& op) noexcept;
    [[nodiscard]] bool reformat(Branch& branch, const Reformat* reformat) noexcept;
    void read_again(Branch& branch) noexcept;
    void read_deep(Branch& branch) noexcept;
    void leave(Branch& branch, const End& end) noexcept;
    [[nodiscard]] bool fork(Branch& branch, const ArrayProgram& array, End& last) noexcept;
    /// The domain's default; false when the packet is gone.
    [[nodiscard]] bool miss(Branch& branch, bool in_root) noexcept;
    void enter_fdb(Branch& branch) noexcept;
    void enter_nic_rx(Branch& branch) noexcept;
    void output(Branch& branch, std::uint16_t destination) noexcept;
    void output_to_vport(Branch& branch, VportId vport) noexcept;
    void drop(Branch& branch, DropReason reason) noexcept;
    void record(const Op& op) noexcept;
    [[nodiscard]] const MatcherList* root(DomainType domain) const noexcept;

    static constexpr unsigned max_hops = 128;     ///< of a packet's branches together
    static constexpr unsigned max_explored = 64;  ///< hops of other outcomes' branches, all together

    Lane::Impl& lane_;
    Entrance entrance_{};
    std::array<Op, FlowCache::max_ops> ops_;
    unsigned length_ = 0;
    unsigned hops_ = 0;
    unsigned explored_ = 0;
    bool chosen_ = false;         ///< what comes next may be of one outcome only
    std::uint8_t looked_at_ = 0;  ///< bit i: somebody has looked at the outcome in reg_c_i
    SourceScope source_ = SourceScope::all();
    std::uint64_t rewritten_ = 0;
    bool cacheable_ = true;
};

}  // namespace ovsdr::soft
