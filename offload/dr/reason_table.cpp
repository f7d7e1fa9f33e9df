#include "offload/dr/reason_table.hpp"

namespace ovsdr::dr {

void ReasonTable::Mark::reset() noexcept {
    if (row_ == nullptr) return;
    std::lock_guard lock(row_->table->mutex_);
    --row_->megaflows;
    row_ = nullptr;
}

ReasonTable::Mark ReasonTable::mark(Kind kind, const std::string& reason, const std::string& detail) {
    std::lock_guard lock(mutex_);
    auto found = rows_.find({reason, detail});
    if (found == rows_.end()) {
        const std::string& kept = rows_.size() < max_rows ? detail : std::string("other");
        found = rows_.try_emplace({reason, kept}, Row{kind, reason, kept, this}).first;
    }
    Row& row = found->second;
    ++row.megaflows;
    ++row.total;
    Mark mark;
    mark.row_ = &row;
    return mark;
}

std::vector<Eswitch::ReasonCount> ReasonTable::counts() const {
    std::lock_guard lock(mutex_);
    std::vector<Eswitch::ReasonCount> counts;
    for (const auto& [key, row] : rows_) counts.push_back({row.reason, row.detail, row.megaflows, row.total});
    return counts;
}

std::uint64_t ReasonTable::count(Kind kind) const noexcept {
    std::lock_guard lock(mutex_);
    std::uint64_t sum = 0;
    for (const auto& [key, row] : rows_) {
        if (row.kind == kind) sum += row.megaflows;
    }
    return sum;
}

}  // namespace ovsdr::dr
