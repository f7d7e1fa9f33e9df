// Megaflows by ufid: a hash table of pointers that is looked into without touching the megaflows of others.
//
// Model. Open addressing: 16 bits of each hash lie side by side in one array, pointers to the megaflows in a second
// one. A look-up reads a line of the first, and of the second the pointer that it is after; with a million megaflows
// each further line is a wait for memory. A megaflow keeps its address until it is extracted.
//
// Threads: whoever has the shard's lock.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "offload/dr/ids.hpp"

namespace ovsdr::dr {

struct UfidHash {
    std::size_t operator()(const Ufid& ufid) const noexcept { return ufid[0] ^ (ufid[1] * 0x9E3779B97F4A7C15ULL); }
};

/// `Flow` has a constructor that takes its ufid, and the ufid as a member of that name.
template <typename Flow>
class FlowMap {
public:
    FlowMap() = default;
    ~FlowMap() {
        for (Flow* const flow : flows_) delete flow;
    }
    FlowMap(const FlowMap&) = delete;
    FlowMap& operator=(const FlowMap&) = delete;

    [[nodiscard]] std::size_t size() const noexcept { return length_; }

    /// NULL: unknown.
    [[nodiscard]] Flow* find(const Ufid& ufid) const noexcept {
        if (length_ == 0) return nullptr;
        return flows_[slot_of(ufid)];
    }

    /// The one that is known, or a new one.
    [[nodiscard]] Flow& get(const Ufid& ufid) {
        if ((length_ + 1) * 4 > flows_.size() * 3) grow();
        const std::size_t slot = slot_of(ufid);
        if (flows_[slot] == nullptr) {
            flows_[slot] = std::make_unique<Flow>(ufid).release();
            tags_[slot] = tag_of(UfidHash{}(ufid));
            ++length_;
        }
        return *flows_[slot];
    }

    /// Fetches what find() or get() look at first.
    void prefetch(const Ufid& ufid) const noexcept {
        if (flows_.empty()) return;
        const std::size_t slot = (UfidHash{}(ufid) >> 32) & mask();
        __builtin_prefetch(&tags_[slot]);
        __builtin_prefetch(&flows_[slot]);
    }

    /// Takes it out. Empty: unknown.
    [[nodiscard]] std::unique_ptr<Flow> extract(const Ufid& ufid) noexcept {
        if (length_ == 0) return nullptr;
        const std::size_t slot = slot_of(ufid);
        std::unique_ptr<Flow> flow(flows_[slot]);
        if (flow != nullptr) vacate(slot);
        return flow;
    }

    /// In no order. `visit` adds and takes out none.
    void for_each(auto&& visit) const {
        for (Flow* const flow : flows_) {
            if (flow != nullptr) visit(*flow);
        }
    }

private:
    /// Bits that say where the megaflow lies and, those above, which of its neighbours it is not. Shards are told apart
    /// by the lowest bits.
    [[nodiscard]] static std::uint16_t tag_of(std::size_t hash) noexcept {
        return static_cast<std::uint16_t>(hash >> 32);
    }
    static constexpr std::size_t tags = std::size_t{1} << 16;

    [[nodiscard]] std::size_t mask() const noexcept { return flows_.size() - 1; }
    /// Where the megaflow in `slot` would lie if it were alone. It is only asked itself when tags are too short to say.
    [[nodiscard]] std::size_t home_of(std::size_t slot) const noexcept {
        if (flows_.size() <= tags) return tags_[slot] & mask();
        return (UfidHash{}(flows_[slot]->ufid) >> 32) & mask();
    }

    /// Of the megaflow, or the free one where it would go. The table is not empty.
    [[nodiscard]] std::size_t slot_of(const Ufid& ufid) const noexcept {
        const std::size_t hash = UfidHash{}(ufid);
        const std::uint16_t tag = tag_of(hash);
        std::size_t slot = (hash >> 32) & mask();
        __builtin_prefetch(&flows_[slot]);
        while (flows_[slot] != nullptr && (tags_[slot] != tag || differ(flows_[slot]->ufid, ufid))) slot = next(slot);
        return slot;
    }
    [[nodiscard]] std::size_t next(std::size_t slot) const noexcept { return (slot + 1) & mask(); }
    /// Without a call of memcmp(), which an array's own comparison is.
    [[nodiscard]] static bool differ(const Ufid& one, const Ufid& other) noexcept {
        return ((one[0] ^ other[0]) | (one[1] ^ other[1])) != 0;
    }

    /// Moves up those behind it that lie there because it was taken.
    void vacate(std::size_t hole) noexcept {
        for (std::size_t slot = next(hole); flows_[slot] != nullptr; slot = next(slot)) {
            const std::size_t home = home_of(slot);
            if (((slot - home) & mask()) < ((slot - hole) & mask())) continue;
            flows_[hole] = flows_[slot];
            tags_[hole] = tags_[slot];
            hole = slot;
        }
        flows_[hole] = nullptr;
        --length_;
    }

    void grow() {
        FlowMap larger;
        const std::size_t length = flows_.empty() ? 8 : 2 * flows_.size();
        larger.tags_.resize(length);
        larger.flows_.resize(length);
        for (std::size_t old = 0; old < flows_.size(); ++old) {
            if (flows_[old] == nullptr) continue;
            const std::size_t home = length <= tags ? tags_[old] : UfidHash{}(flows_[old]->ufid) >> 32;
            std::size_t slot = home & larger.mask();
            while (larger.flows_[slot] != nullptr) slot = larger.next(slot);
            larger.flows_[slot] = std::exchange(flows_[old], nullptr);
            larger.tags_[slot] = tags_[old];
        }
        std::swap(tags_, larger.tags_);
        std::swap(flows_, larger.flows_);
    }

    std::vector<std::uint16_t> tags_;   ///< of those in flows_
    std::vector<Flow*> flows_;          ///< NULL: free; as many as are a power of two, and never all taken
    std::size_t length_ = 0;
};

}  // namespace ovsdr::dr
