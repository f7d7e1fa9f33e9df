// A DR matcher: one mask at one priority of a table; its rules are values of that mask.
//
// Refers to its table; EBUSY while a rule lives. The newest of a priority is walked first, as in rdma-core 44 (its man
// page leaves the order open).
//
// Threads: any.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "datapath/steering/dr_table.hpp"
#include "datapath/steering/match.hpp"

namespace ovsdr::soft {

class Matcher : public Referenced {
public:
    /// Errors: make_mask()'s. `criteria` 0 takes every packet.
    [[nodiscard]] static int create(Table& table, std::uint16_t priority, std::uint8_t criteria,
                                    std::span<const std::uint8_t> mask, std::unique_ptr<Matcher>& matcher);
    /// The same at a place that is no DR priority; its priority() is 0.
    [[nodiscard]] static int create_ranked(Table& table, std::uint32_t rank, std::uint8_t criteria,
                                           std::span<const std::uint8_t> mask, std::unique_ptr<Matcher>& matcher);
    ~Matcher();
    Matcher(const Matcher&) = delete;
    Matcher& operator=(const Matcher&) = delete;

    struct Layout {
        std::optional<std::size_t> rules;  ///< as many as room is made for at once
        bool resizable = true;             ///< as matchers are made
    };
    /// Throws std::bad_alloc, then nothing has changed.
    void set_layout(const Layout& layout);

    [[nodiscard]] Table& table() const noexcept { return table_; }
    [[nodiscard]] std::uint16_t priority() const noexcept { return priority_; }
    [[nodiscard]] const MatchMask& mask() const noexcept { return mask_; }
    /// Its table of rules changes under the domain's tables_mutex().
    [[nodiscard]] MatcherView& view() const noexcept { return *view_; }

private:
    Matcher(Table& table, const MatchMask& mask, std::unique_ptr<MatcherView> view);

    Table& table_;
    MatchMask mask_;
    std::uint16_t priority_ = 0;
    MatcherView* view_;  // retired, not deleted
};

}  // namespace ovsdr::soft
