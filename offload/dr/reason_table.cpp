#include "offload/dr/reason_table.hpp"

#include <algorithm>
#include <cstring>

namespace ovsdr::dr {

namespace {

constexpr StaticName offloaded_name = "offloaded", device_error_name = "device error";

std::size_t index_of(ReasonTable::Kind kind) noexcept { return static_cast<std::size_t>(kind); }

}  // namespace

void ReasonTable::Mark::reset() noexcept {
    if (verdict_ == nullptr) return;
    ReasonTable& table = *verdict_->table;
    std::lock_guard lock(table.mutex_);
    table.leave(*this);
}

void ReasonTable::forget(std::span<Mark* const> marks) noexcept {
    std::lock_guard lock(mutex_);
    for (Mark* const mark : marks) leave(*mark);
}

void ReasonTable::leave(Mark& mark) noexcept {
    Verdict* const verdict = std::exchange(mark.verdict_, nullptr);
    if (verdict == nullptr) return;
    for (Row* row : *verdict->rows) --row->megaflows;
    --megaflows_[index_of(verdict->kind)];
    if (--verdict->megaflows == 0 && verdict != offloaded_) verdicts_.erase(verdicts_.find(*verdict->rows));
}

void ReasonTable::enter(Mark& mark, Kind kind, RowSet rows) {
    std::ranges::sort(rows);
    rows.erase(std::unique(rows.begin(), rows.end()), rows.end());   // clang 14 cannot compile std::ranges::unique
    const auto found = verdicts_.try_emplace(std::move(rows), Verdict{this, kind}).first;
    found->second.rows = &found->first;
    if (kind == Kind::offloaded) offloaded_ = &found->second;
    enter(mark, found->second);
}

void ReasonTable::enter(Mark& mark, Verdict& verdict) noexcept {
    if (mark.verdict_ == &verdict) return;
    ++verdict.megaflows;
    ++megaflows_[index_of(verdict.kind)];
    for (Row* row : *verdict.rows) {
        ++row->megaflows;
        ++row->total;
    }
    leave(mark);
    mark.verdict_ = &verdict;
}

void ReasonTable::mark_offloaded(Mark& mark) {
    std::lock_guard lock(mutex_);
    if (offloaded_ != nullptr) return enter(mark, *offloaded_);
    enter(mark, Kind::offloaded, {&rows_[{offloaded_name, {}}]});
}

void ReasonTable::mark_rejected(Mark& mark, const Reject& reject) {
    std::lock_guard lock(mutex_);
    RowSet rows;
    rows.reserve(reject.obstacles.size());
    for (const Obstacle& obstacle : reject.obstacles) rows.push_back(&rows_[{name_of(obstacle.reason), obstacle.name}]);
    enter(mark, Kind::rejected, std::move(rows));
}

void ReasonTable::mark_failed(Mark& mark, const Error& error) {
    const int code = strerrordesc_np(error.code) != nullptr ? error.code : 0;
    std::lock_guard lock(mutex_);
    enter(mark, Kind::failed, {&rows_[{device_error_name, error.call, code}]});
}

void ReasonTable::add(const Mark& mark, std::uint64_t packets, Packets& sums) const {
    std::lock_guard lock(mutex_);
    if (mark.verdict_ == nullptr) return;
    for (const Row* row : *mark.verdict_->rows) sums[row] += packets;
}

std::vector<Eswitch::ReasonCount> ReasonTable::counts(const Packets& packets) const {
    std::lock_guard lock(mutex_);
    std::vector<Eswitch::ReasonCount> counts;
    for (const auto& [key, row] : rows_) {
        std::string detail = key.name.text();
        if (key.code != 0) detail += std::string(key.name.empty() ? "" : ": ") + strerrordesc_np(key.code);
        const auto sum = packets.find(&row);
        counts.push_back({key.reason.text(), std::move(detail), row.megaflows, row.total,
                          sum == packets.end() ? 0 : sum->second});
    }
    return counts;
}

std::uint64_t ReasonTable::count(Kind kind) const noexcept {
    std::lock_guard lock(mutex_);
    return megaflows_[index_of(kind)];
}

}  // namespace ovsdr::dr
