#include "tools/drgen/accounting.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

namespace ovsdr::drgen {

void Ledger::receive(std::uint32_t sequence) {
    const std::size_t word = sequence / 64;
    if (word >= seen_.size()) seen_.resize(std::max<std::size_t>(word + 1, seen_.size() * 2));
    const std::uint64_t bit = std::uint64_t{1} << sequence % 64;
    if ((seen_[word] & bit) != 0) {
        ++duplicated_;
        return;
    }
    seen_[word] |= bit;
    ++received_;
    std::int64_t& highest = highest_[sequence % highest_.size()];
    if (sequence < highest) ++overtaken_;
    highest = std::max<std::int64_t>(highest, sequence);
}

void Histogram::add(std::uint64_t nanoseconds) noexcept {
    // Below 64 each value has its bucket; above, each power of two has 64.
    const unsigned width = static_cast<unsigned>(std::bit_width(nanoseconds));
    const unsigned shift = width > sub_bits + 1 ? width - sub_bits - 1 : 0;
    const std::size_t bucket = (std::size_t{shift} << sub_bits) + (nanoseconds >> shift);
    ++buckets_[bucket];
    ++count_;
    largest_ = std::max(largest_, nanoseconds);
}

std::uint64_t Histogram::quantile(double fraction) const noexcept {
    if (count_ == 0) return 0;
    const auto wanted =
        std::max<std::uint64_t>(1, static_cast<std::uint64_t>(std::ceil(fraction * static_cast<double>(count_))));
    std::uint64_t below = 0;
    for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
        below += buckets_[bucket];
        if (below < wanted) continue;
        // The first 2 * 64 values have a bucket each; a bucket of power `shift` covers 2^shift values.
        const std::size_t shift = bucket < (std::size_t{2} << sub_bits) ? 0 : (bucket >> sub_bits) - 1;
        const std::uint64_t first = (std::uint64_t{bucket} - (shift << sub_bits)) << shift;
        return std::min(largest_, first + (std::uint64_t{1} << shift) - 1);
    }
    return largest_;
}

}  // namespace ovsdr::drgen
