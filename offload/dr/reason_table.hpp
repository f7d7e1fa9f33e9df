// How many megaflows are offloaded, and why the others are not: a count per reason and detail.
//
// A megaflow holds a Mark on its row. Details come from a bounded vocabulary (fields, actions, ports); should there be more
// than max_rows all the same, the rest is counted under the detail "other".
//
// Threads: any.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "offload/dr/eswitch.hpp"

namespace ovsdr::dr {

class ReasonTable {
public:
    enum class Kind : std::uint8_t { offloaded, rejected, failed };

    struct Row {
        Kind kind;
        std::string reason, detail;
        ReasonTable* table = nullptr;
        std::uint64_t megaflows = 0, total = 0;
    };

    /// A megaflow's share of a row. Move-only.
    class Mark {
    public:
        Mark() noexcept = default;
        ~Mark() { reset(); }
        Mark(Mark&& other) noexcept : row_(std::exchange(other.row_, nullptr)) {}
        Mark& operator=(Mark&& other) noexcept {
            std::swap(row_, other.row_);
            return *this;
        }
        void reset() noexcept;
        /// Kind, reason and detail never change; nullptr when there is none.
        [[nodiscard]] const Row* row() const noexcept { return row_; }

    private:
        friend class ReasonTable;
        Row* row_ = nullptr;
    };

    [[nodiscard]] Mark mark(Kind kind, const std::string& reason, const std::string& detail);
    [[nodiscard]] std::vector<Eswitch::ReasonCount> counts() const;
    /// Megaflows now.
    [[nodiscard]] std::uint64_t count(Kind kind) const noexcept;

    static constexpr std::size_t max_rows = 1024;

private:
    mutable std::mutex mutex_;
    std::map<std::pair<std::string, std::string>, Row> rows_;
};

}  // namespace ovsdr::dr
