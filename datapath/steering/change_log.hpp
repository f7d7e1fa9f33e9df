// The latest changes of rules that concern a flow cache's lines: whoever has a line from before them asks whether it
// still holds, instead of forgetting it.
//
// Model. A rule can be met only by packets whose words equal its value under its mask. So a line whose words differ
// from the value under the mask is none of the rule's business, whether the rule has come or gone. The log keeps of
// each change what of mask and value the cache's key can tell; a change of something else than a rule is one with an
// empty mask, which every line meets. Words that a line's packets had rewritten on their way before a look-up tell
// nothing of that look-up: they count as equal.
//
// Changes are numbered. Change n is in slot n % length; a reader may ask about the last `reach` of them, which leaves
// the writer length - reach changes before it overwrites what a reader looks at. A reader that was slower finds that
// out by the number of the change under way (CacheKey::renew()).
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

    /// Change `number` is of a rule with that mask and masked value; `key` is what lines are made of.
    void write(std::uint64_t number, const MaskedWords& mask, const std::uint64_t* value,
               const MaskedWords& key) noexcept;
    /// Change `number` concerns every line.
    void write_all(std::uint64_t number) noexcept;

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

    [[nodiscard]] static bool meets(const Rest& rest, const std::uint64_t* words, std::uint32_t rewritten) noexcept;

    // The word with the most bits comes first and lies close to those of the other changes: it tells nearly all.
    std::array<Word, length> first_;
    std::array<std::atomic<std::uint8_t>, length> first_places_{};  // in the cache's key
    std::array<Rest, length> rest_;
};

}  // namespace ovsdr::soft
