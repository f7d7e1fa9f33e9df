// The memory behind an MKEY: a list of pieces, or an interleaved pattern that repeats.
//
// Model. A list is its entries one after another. An interleaved layout is the run of all entries' bytes, repeat times;
// an entry's piece of the n-th repetition is n * stride bytes behind its first. Addresses are those of the entry's key.
//
// Life cycle. An MKEY owns one, with room for its entries from the beginning: configuring allocates nothing.
// Threads: the owner's.
// Source: mlx5dv_wr_mkey_configure(3), "Data layout setters".
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace ovsdr::soft {

struct LayoutEntry {
    std::uint64_t address;
    std::uint32_t key;
    std::uint32_t size;    ///< bytes
    std::uint32_t stride;  ///< bytes from one repetition's piece to the next; unused in lists
};

class Layout {
public:
    /// Rounded up to whole units of the device, four entries.
    explicit Layout(std::size_t max_entries) { entries_.reserve((max_entries + 3) / 4 * 4); }

    [[nodiscard]] std::size_t max_entries() const noexcept { return entries_.capacity(); }
    /// Bytes of the whole.
    [[nodiscard]] std::uint64_t size() const noexcept { return size_; }

    void clear() noexcept { size_ = 0; }
    /// At most max_entries(). A list repeats once.
    void assign(std::span<const LayoutEntry> entries, std::uint32_t repeat) noexcept {
        entries_.assign(entries.begin(), entries.end());
        period_ = 0;
        for (const LayoutEntry& entry : entries_) period_ += entry.size;
        size_ = period_ * repeat;
    }

    /// Calls piece(key, address, size) for each piece of [offset, offset + size) in order, until one returns false.
    /// false as well where the layout is shorter.
    template <typename Piece>
    [[nodiscard]] bool visit(std::uint64_t offset, std::uint64_t size, Piece piece) const noexcept {
        if (size > size_ || offset > size_ - size) return false;
        if (size == 0) return true;
        std::uint64_t round = round_of(offset);
        std::uint64_t skip = offset - round * period_;
        for (;; ++round) {
            for (const LayoutEntry& entry : entries_) {
                if (skip >= entry.size) {
                    skip -= entry.size;
                    continue;
                }
                const std::uint64_t part = std::min<std::uint64_t>(size, entry.size - skip);
                if (!piece(entry.key, entry.address + round * entry.stride + skip, part)) return false;
                skip = 0;
                size -= part;
                if (size == 0) return true;
            }
        }
    }

    /// What is left of the entry's piece that the byte `offset` is in, and where; size 0 where the layout is shorter.
    struct Rest {
        std::uint32_t key;
        std::uint64_t address, size;
    };
    [[nodiscard]] Rest rest_at(std::uint64_t offset) const noexcept {
        if (offset >= size_) return {};
        const std::uint64_t round = round_of(offset);
        std::uint64_t skip = offset - round * period_;
        for (const LayoutEntry& entry : entries_) {
            if (skip < entry.size) return {entry.key, entry.address + round * entry.stride + skip, entry.size - skip};
            skip -= entry.size;
        }
        return {};
    }

private:
    /// A list's bytes are all of the first: nothing to divide.
    [[nodiscard]] std::uint64_t round_of(std::uint64_t offset) const noexcept {
        return period_ == size_ ? 0 : offset / period_;
    }

    std::vector<LayoutEntry> entries_;
    std::uint64_t period_{};  // bytes of one repetition; means nothing where size_ is 0
    std::uint64_t size_ = 0;
};

}  // namespace ovsdr::soft
