// The matchers of one table: each distinct (mask, priority) once, made with its first rule and gone with its last.
//
// Model. Hardware walks a table's matchers one after another, empty ones too, so their number is what a packet costs. A
// MatcherSet hands out MatcherRefs; refs to one (mask, priority) share the provider's matcher.
//
// Ownership. Refs keep the set alive or who owns it, the set keeps its table. The last ref destroys the matcher.
//
// Threads: any. Creation and destruction are serialised per set, since the provider checks its reference count before
// it locks. Errors: errno of mlx5dv_dr_matcher_create(). It does not prove that the mask is supported: compile_match()
// does.
// Source: mlx5dv_dr_flow(3), "Matcher".
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "offload/dr/device/match_param.hpp"
#include "offload/dr/device/table.hpp"

namespace ovsdr::dr {

struct MatcherSpec {
    MatchParam mask;
    std::uint16_t priority;   ///< lower is looked at first
};

class MatcherSet;

/// One rule's share of a matcher. Move-only; empty after a move and by default.
class MatcherRef {
public:
    MatcherRef() noexcept = default;
    ~MatcherRef() { release(); }
    MatcherRef(MatcherRef&& other) noexcept : shared_(std::exchange(other.shared_, nullptr)) {}
    MatcherRef& operator=(MatcherRef&& other) noexcept {
        release();
        shared_ = std::exchange(other.shared_, nullptr);
        return *this;
    }

    [[nodiscard]] mlx5dv_dr_matcher* get() const noexcept;
    [[nodiscard]] std::uint8_t criteria() const noexcept;
    /// As `dr/show` numbers it.
    [[nodiscard]] unsigned number() const noexcept;

private:
    friend class MatcherSet;
    struct Shared;
    explicit MatcherRef(Shared* shared) noexcept : shared_(shared) {}
    void release() noexcept;

    Shared* shared_ = nullptr;
};

class MatcherSet : public std::enable_shared_from_this<MatcherSet> {
public:
    [[nodiscard]] static std::shared_ptr<MatcherSet> create(std::shared_ptr<Table> table);
    ~MatcherSet();

    /// The matcher of `spec`, made if there is none. May throw std::bad_alloc and leaves nothing behind then.
    [[nodiscard]] Result<MatcherRef> acquire(const MatcherSpec& spec) {
        return acquire(spec.mask, spec.priority, shared_from_this());
    }
    /// The ref keeps `owner` alive, which keeps the set. One priority's refs have one owner.
    [[nodiscard]] Result<MatcherRef> acquire(const MatchParam& mask, std::uint16_t priority,
                                             std::shared_ptr<const void> owner);

    [[nodiscard]] Table& table() const noexcept { return *table_; }
    [[nodiscard]] const std::shared_ptr<Table>& shared_table() const noexcept { return table_; }

    struct Row {
        unsigned number;
        MatcherSpec spec;
        std::uint64_t rules;
    };
    /// By priority, then number. For people.
    [[nodiscard]] std::vector<Row> rows() const;

private:
    friend class MatcherRef;
    struct Less {
        bool operator()(const MatcherSpec& left, const MatcherSpec& right) const noexcept;
    };

    explicit MatcherSet(std::shared_ptr<Table> table) noexcept;
    [[nodiscard]] MatcherRef::Shared* find(const MatchParam& mask, std::uint16_t priority) noexcept;
    [[nodiscard]] Result<MatcherRef::Shared*> make(const MatcherSpec& spec);
    void release(MatcherRef::Shared* shared) noexcept;

    std::shared_ptr<Table> table_;
    mutable std::mutex mutex_;
    unsigned next_number_ = 1;
    std::map<MatcherSpec, std::unique_ptr<MatcherRef::Shared>, Less> matchers_;
    MatcherRef::Shared* latest_ = nullptr;   ///< that was found; the next one is often the same
};

/// A buffer in the provider's shape: size, then the blocks that `criteria` reaches to.
class ProviderMatch {
public:
    ProviderMatch(const MatchParam& param, std::uint8_t criteria) noexcept;
    [[nodiscard]] mlx5dv_flow_match_parameters* get() noexcept;

private:
    alignas(8) std::array<std::uint8_t, sizeof(std::size_t) + match_block_size * match_block_length> bytes_;
};

}  // namespace ovsdr::dr
