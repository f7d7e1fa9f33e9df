// What flow caches are keyed by: the words that masks look at and how packets are taken apart for them, both constant;
// an epoch; and the latest changes.
//
// Model. There is a key for the packets of each source vport that a rule of its own has been made for, and one for all
// others (cache_keys.hpp). A lane takes all of a key by one pointer for each batch. While a change is under way that
// can concern the key's packets its epoch is odd, and 2 higher than before when it is done: change n makes the epoch
// 2n. When another key takes this one's place, the epoch stays odd for ever.
//
// Invariants, which make that no lane does by a line what the tables would not do:
//   1. `words` holds every bit that a rule which can meet the key's packets looks at, but for the source and registers.
//      So packets of one source and equal words meet the same rules, as long as these stay; what registers hold follows
//      from that.
//   2. A line is written only after a walk that began and ended at one even epoch of the key that is in force for its
//      source; it has that epoch. So it is of one state of the tables.
//   3. Before tables change in a way that can concern the key's packets, the epoch is odd, and the change is in the log
//      before it is even again.
//   4. A line of an earlier epoch counts only if it is of this key (`first`) and none of the changes since can concern
//      packets of its words: its bucket is quiet, or the log spares it. Then it is as good as a new one.
//   5. An odd epoch stands for the even one before it: a packet on its way while a rule comes or goes may meet the rule
//      or not. When the call that removed a rule has returned, the next batch sees the epoch after it, as of
//      synchronize(). But a key's first odd epoch stands for no even one: lines of the epoch before are the old key's.
//
// Threads: lanes read; the writer of cache_keys.hpp writes.
#pragma once

#include <atomic>
#include <cstdint>

#include "datapath/steering/change_log.hpp"
#include "datapath/steering/masked_words.hpp"
#include "datapath/steering/tunnel.hpp"

namespace ovsdr::soft {

struct alignas(64) CacheKey {
    /// `first_epoch` is even; the epoch begins with it, or below it while a change is under way.
    CacheKey(std::uint64_t first_epoch, bool changing, std::uint64_t time, const ParserSetup& setup,
             const MaskedWords& looked_at, const MaskedWords& common) noexcept
        : epoch(first_epoch - (changing ? 1 : 0)),
          first(first_epoch),
          made_at(time),
          parser(setup),
          words(looked_at),
          changes(looked_at, common) {}

    std::atomic<std::uint64_t> epoch;
    const std::uint64_t first;
    const std::uint64_t made_at;  ///< ns, by the clock of CacheKeys
    const ParserSetup parser;
    const MaskedWords words;
    ChangeLog changes;

    /// Whether nothing has changed since epoch `from` that can concern lines of that bucket. Even.
    [[nodiscard]] bool quiet_since(std::uint64_t from, std::uint16_t bucket) const noexcept {
        return from >= first && changes.quiet_since(from / 2, bucket);
    }

    /// Whether what was found at epoch `from` for packets of these words (ChangeLog::spares()) holds at epoch `to`.
    /// Both are even.
    [[nodiscard]] bool still_holds(const std::uint64_t* line_words, std::uint32_t rewritten, std::uint64_t from,
                                   std::uint64_t to) const noexcept {
        if (from < first || to - from > 2 * ChangeLog::reach) return false;
        if (!changes.spares(line_words, rewritten, from / 2, to / 2)) return false;
        // Has the writer overwritten what was read meanwhile?
        std::atomic_thread_fence(std::memory_order_acquire);
        return epoch.load(std::memory_order_relaxed) <= from + 2 * ChangeLog::length;
    }
};

}  // namespace ovsdr::soft
