// How many megaflows are offloaded, and why the others are not: a count per reason and name.
//
// Model. A row is a reason and the name of what is at fault: a match field, an action, or a call with its errno. Both
// are written down in the source, so that there are as many rows as names, whatever the traffic: values are not in
// here. A megaflow stands in the row of each of its obstacles; the rows' numbers therefore add up to more than there
// are megaflows, and count() has how many there are. Megaflows with the same obstacles share one Verdict, which goes
// with the last of them: a megaflow pays a pointer.
//
// Threads: any.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "offload/dr/eswitch.hpp"

namespace ovsdr::dr {

class ReasonTable {
public:
    enum class Kind : std::uint8_t { offloaded, rejected, failed };

private:
    struct RowKey {
        StaticName reason, name;
        int code = 0;   ///< an errno that has a text, else 0
        friend auto operator<=>(const RowKey&, const RowKey&) = default;
    };
    struct Row {
        std::uint64_t megaflows = 0, total = 0;
    };
    using Rows = std::map<RowKey, Row>;
    /// Sorted by address, none twice.
    using RowSet = std::vector<Row*>;
    struct Verdict {
        ReasonTable* table;
        Kind kind;
        const RowSet* rows = nullptr;   ///< its key in verdicts_
        std::uint64_t megaflows = 0;
    };

public:
    /// A megaflow's place in the table. Move-only.
    class Mark {
    public:
        Mark() noexcept = default;
        ~Mark() { reset(); }
        Mark(Mark&& other) noexcept : verdict_(std::exchange(other.verdict_, nullptr)) {}
        Mark& operator=(Mark&& other) noexcept {
            std::swap(verdict_, other.verdict_);
            return *this;
        }
        void reset() noexcept;

    private:
        friend class ReasonTable;
        Verdict* verdict_ = nullptr;
    };

    // A megaflow whose rows stay the same is not counted again.
    void mark_offloaded(Mark& mark);
    void mark_rejected(Mark& mark, const Reject& reject);
    void mark_failed(Mark& mark, const Error& error);
    /// As if each were reset.
    void forget(std::span<Mark* const> marks) noexcept;

    using Packets = std::map<const Row*, std::uint64_t>;
    /// To the sum of each of the megaflow's rows.
    void add(const Mark& mark, std::uint64_t packets, Packets& sums) const;
    [[nodiscard]] std::vector<Eswitch::ReasonCount> counts(const Packets& packets) const;
    /// Megaflows now, each once.
    [[nodiscard]] std::uint64_t count(Kind kind) const noexcept;

private:
    void enter(Mark& mark, Kind kind, RowSet rows);
    void enter(Mark& mark, Verdict& verdict) noexcept;
    void leave(Mark& mark) noexcept;

    mutable std::mutex mutex_;
    Rows rows_;
    std::map<RowSet, Verdict> verdicts_;
    Verdict* offloaded_ = nullptr;               ///< most megaflows'; once there, it stays
    std::array<std::uint64_t, 3> megaflows_{};   ///< by Kind
};

}  // namespace ovsdr::dr
