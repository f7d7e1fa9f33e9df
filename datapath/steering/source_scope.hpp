// Whose packets a rule can meet: those of one source vport, or everybody's.
//
// source_port never changes on a packet's way through NIC_TX, FDB and NIC_RX: a rule whose mask has it whole concerns
// the packets of that vport alone. Only queues of the manager function walk NIC_TX and have a source_sqn. Any other
// rule concerns all: the vport bits of reg_c_0, too, are bits that a rule before may have written.
//
// Vports are told apart by the lowest bits of their number: packets of two vports whose numbers differ by a multiple of
// `groups` share what is kept by source, which costs them nothing but time.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <utility>
#include <vector>

#include "datapath/steering/masked_words.hpp"
#include "datapath/vport_id.hpp"

namespace ovsdr::soft {

class SourceScope {
public:
    static constexpr unsigned groups = 1024;

    [[nodiscard]] static constexpr SourceScope all() noexcept { return SourceScope(groups); }
    [[nodiscard]] static constexpr SourceScope of(VportId source) noexcept {
        return SourceScope(source.value % groups);
    }
    /// Whose index() that is.
    [[nodiscard]] static constexpr SourceScope at(unsigned index) noexcept { return SourceScope(index); }
    /// Of a rule by its value under its matcher's mask.
    [[nodiscard]] static SourceScope of_rule(const MaskedWords& mask, const std::uint64_t* value,
                                             bool of_nic_tx) noexcept {
        static_assert(key_offset::source_sqn / 8 == key_offset::source_port / 8);
        if (of_nic_tx) return of(manager_vport);
        for (std::uint32_t i = 0; i < mask.length; ++i) {
            if (mask.index[i] != key_offset::source_port / 8) continue;
            const auto* masked = reinterpret_cast<const std::uint8_t*>(&mask.mask[i]);
            const auto* given = reinterpret_cast<const std::uint8_t*>(&value[i]);
            if (load_be16(masked + key_offset::source_port % 8) == 0xffff) {
                return of(VportId{load_be16(given + key_offset::source_port % 8)});
            }
            const std::uint32_t sqn = load_be32(given + key_offset::source_sqn % 8 - 1) & 0xffffff;
            return sqn != 0 ? of(manager_vport) : all();
        }
        return all();
    }

    [[nodiscard]] constexpr bool is_all() const noexcept { return index_ == groups; }
    /// Below `groups`, or `groups` for all.
    [[nodiscard]] constexpr unsigned index() const noexcept { return index_; }

    friend constexpr bool operator==(const SourceScope&, const SourceScope&) = default;

private:
    explicit constexpr SourceScope(unsigned index) noexcept : index_(static_cast<std::uint16_t>(index)) {}
    std::uint16_t index_;
};

/// Counts by scope; readers see of each whether it is more than 0.
///
/// Threads: concern() from any; everything else by one writer at a time.
class SourceCounts {
public:
    /// Whether anything counted concerns packets of `source`.
    [[nodiscard]] bool concern(SourceScope source) const noexcept { return bit(source) || bit(SourceScope::all()); }

    /// Of those that concern packets of `source`. Writer.
    [[nodiscard]] std::uint64_t count(SourceScope source) const noexcept {
        std::uint64_t sum = 0;
        for (const SourceScope scope : {source, SourceScope::all()}) {
            const auto found = std::lower_bound(counts_.begin(), counts_.end(), scope.index(), before);
            if (found != counts_.end() && found->first == scope.index()) sum += found->second;
            if (source.is_all()) break;
        }
        return sum;
    }

    /// True when it is the first of its scope. Throws std::bad_alloc, then nothing has changed.
    bool add(SourceScope scope) {
        const auto found = place(scope);
        if (found != counts_.end() && found->first == scope.index()) {
            ++found->second;
            return false;
        }
        counts_.insert(found, {static_cast<std::uint16_t>(scope.index()), 1});
        set(scope, true);
        return true;
    }
    /// True when it was the last of its scope.
    bool remove(SourceScope scope) noexcept {
        const auto found = place(scope);
        if (--found->second != 0) return false;
        set(scope, false);
        counts_.erase(found);
        return true;
    }

private:
    [[nodiscard]] static bool before(const std::pair<std::uint16_t, std::uint32_t>& one, unsigned index) noexcept {
        return one.first < index;
    }
    [[nodiscard]] std::vector<std::pair<std::uint16_t, std::uint32_t>>::iterator place(SourceScope scope) noexcept {
        return std::lower_bound(counts_.begin(), counts_.end(), scope.index(), before);
    }
    [[nodiscard]] bool bit(SourceScope scope) const noexcept {
        return (bits_[scope.index() / 64].load(std::memory_order_relaxed) >> scope.index() % 64 & 1) != 0;
    }
    void set(SourceScope scope, bool value) noexcept {
        std::atomic<std::uint64_t>& word = bits_[scope.index() / 64];
        const std::uint64_t one = std::uint64_t{1} << scope.index() % 64, now = word.load(std::memory_order_relaxed);
        word.store(value ? now | one : now & ~one, std::memory_order_relaxed);
    }

    std::array<std::atomic<std::uint64_t>, SourceScope::groups / 64 + 1> bits_{};
    std::vector<std::pair<std::uint16_t, std::uint32_t>> counts_;  // by index, ascending
};

}  // namespace ovsdr::soft
