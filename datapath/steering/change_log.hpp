// The latest changes of rules that concern a flow cache's lines: whoever has a line from before them asks whether it
// still holds, instead of forgetting it.
//
// Model. A rule can be met only by packets whose words equal its value under its mask. So a line whose words differ
// from the value under the mask is none of the rule's business, whether the rule has come or gone. The log keeps of
// each change what of mask and value the cache's key can tell; a change of something else than a rule is one with an
// empty mask, which every line meets. Words that a line's packets had rewritten on their way before a look-up tell
// nothing of that look-up: they count as equal.
//
// Most changes concern few lines, and that is known at once: `common` is what nearly all rules look at. A rule that
// looks at all of it can only be met by packets whose common bits are its own; the number of the latest change is kept
// for each of `buckets` hashes of these bits, and one number for all other changes. A line is of one bucket for good,
// so one look at two numbers tells whether it has to be compared with the changes themselves.
//
// Changes are numbered. Change n is in slot n % length; a reader may ask about the last `reach` of them, which leaves
// the writer length - reach changes before it overwrites what a reader looks at. A reader that was slower finds that
// out by the number of the change under way (CacheKey::still_holds()).
//
// Threads: write() by one writer at a time; spares() by any number of readers, without a lock.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "datapath/steering/masked_words.hpp"

namespace ovsdr::soft {

class ChangeLog {
public:
    static constexpr unsigned length = 64;
    static constexpr unsigned reach = 48;
    static constexpr unsigned buckets = 1024;

    /// Both are of the masks of rules; `key` is what lines are made of and has all of `common`.
    ChangeLog(const MaskedWords& key, const MaskedWords& common) noexcept;

    /// Change `number` is of a rule with that mask and masked value.
    void write(std::uint64_t number, const MaskedWords& mask, const std::uint64_t* value) noexcept;
    /// Change `number` concerns every line.
    void write_all(std::uint64_t number) noexcept;

    /// The bucket of a line; for good. Bit i of `rewritten`: word i tells nothing.
    [[nodiscard]] std::uint16_t bucket_of(const std::uint64_t* words, std::uint32_t rewritten) const noexcept;
    /// Whether no change after `from` can concern lines of that bucket.
    [[nodiscard]] bool quiet_since(std::uint64_t from, std::uint16_t bucket) const noexcept {
        return stamps_[bucket].load(std::memory_order_relaxed) <= from &&
               wide_.load(std::memory_order_relaxed) <= from;
    }
    /// Whether `common` has turned out to be a bad choice. Writer.
    [[nodiscard]] bool mostly_wide() const noexcept {
        return wide_changes_ >= least_judged && wide_changes_ * 4 >= changes_;
    }
    void judge_anew() noexcept { changes_ = wide_changes_ = 0; }
    [[nodiscard]] const MaskedWords& common() const noexcept { return common_; }

    /// Whether no change in (from, to] concerns a line of those words. Bit i of `rewritten`: word i tells nothing.
    [[nodiscard]] bool spares(const std::uint64_t* words, std::uint32_t rewritten, std::uint64_t from,
                              std::uint64_t to) const noexcept;

private:
    struct Word {
        std::atomic<std::uint64_t> mask{0}, value{0};
    };
    /// What else a rule looks at; more words than these are left out: then the rule seems wider than it is.
    struct Rest {
        static constexpr unsigned most = 6;
        std::array<Word, most> words;
        std::array<std::atomic<std::uint8_t>, most> places{};
        std::atomic<std::uint8_t> length{0};
    };

    static constexpr unsigned least_judged = 256;
    static constexpr int least_bits = 8;  // of what is common: fewer tell too few rules apart
    /// Of lines of which a common word was rewritten: any change counts.
    static constexpr std::uint16_t any_bucket = buckets;

    [[nodiscard]] static std::uint16_t bucket(std::uint64_t hash) noexcept { return hash % buckets; }
    void stamp(std::uint64_t number, const MaskedWords& mask, const std::uint64_t* value) noexcept;
    void write_words(std::uint64_t number, const MaskedWords& mask, const std::uint64_t* value) noexcept;
    [[nodiscard]] static bool meets(const Rest& rest, const std::uint64_t* words, std::uint32_t rewritten) noexcept;

    const MaskedWords key_, common_;
    bool tells_apart_;  // common_ has bits enough
    std::uint64_t changes_ = 0, wide_changes_ = 0;  // since `common` was judged
    std::atomic<std::uint64_t> wide_{0};
    std::array<std::atomic<std::uint64_t>, buckets + 1> stamps_{};
    // The word with the most bits comes first and lies close to those of the other changes: it tells nearly all.
    std::array<Word, length> first_;
    std::array<std::atomic<std::uint8_t>, length> first_places_{};  // in the cache's key
    std::array<Rest, length> rest_;
};

}  // namespace ovsdr::soft
