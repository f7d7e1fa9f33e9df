#include "offload/dr/backlog.hpp"

#include <pthread.h>

#include <algorithm>
#include <cerrno>

namespace ovsdr::dr {

void Backlog::Place::leave() noexcept {
    if (backlog_ == nullptr) return;
    std::lock_guard lock(backlog_->mutex_);
    if (backlog_->tried_ == entry_) backlog_->tried_.reset();
    Line& line = backlog_->line_of(*entry_);
    const std::optional<Awaited> parked = entry_->parked;
    line.erase(entry_);
    if (parked && line.empty()) backlog_->parked_.erase(*parked);
    if (backlog_->is_empty()) backlog_->waiting_.store(false, std::memory_order_relaxed);
    backlog_ = nullptr;
}

bool Backlog::Place::is_parked() const noexcept {
    if (backlog_ == nullptr) return false;
    std::lock_guard lock(backlog_->mutex_);
    return entry_->parked.has_value();
}

Backlog::Line& Backlog::line_of(const Waiting& waiting) noexcept {
    if (waiting.parked) return parked_.find(*waiting.parked)->second;
    return waiting.asked ? asked_ : unasked_;
}

Backlog::Backlog(TryAgain try_again) : try_again_(std::move(try_again)), thread_([this] { work(); }) {
    pthread_setname_np(thread_.native_handle(), "dr-backlog");
}

void Backlog::end() noexcept {
    {
        std::lock_guard lock(mutex_);
        ending_ = true;
    }
    wake_.notify_all();
    if (thread_.joinable()) thread_.join();
}

void Backlog::now_in_line() noexcept {
    if (is_empty()) {
        rest_ = shortest_rest;
        futile_ = 0;
        next_round_ = Clock::now() + rest_;
        wake_.notify_all();
    }
    waiting_.store(true, std::memory_order_relaxed);
}

Backlog::Place Backlog::park(const Ufid& ufid, const Awaited& awaited, std::optional<Time> until) {
    std::lock_guard lock(mutex_);
    if (until) {
        const auto [first, is_new] = unpark_at_.try_emplace(awaited.table, *until);
        if (is_new || *until < first->second) {
            first->second = *until;
            wake_.notify_all();
        }
    }
    Place place;
    Line& line = parked_[awaited];
    place.entry_ = line.insert(line.end(), Waiting{ufid, false, awaited});
    place.backlog_ = this;
    return place;
}

void Backlog::unpark(TableKey table) noexcept {
    std::lock_guard lock(mutex_);
    to_front(table);
}

void Backlog::unpark_due() noexcept {
    for (auto next = unpark_at_.begin(); next != unpark_at_.end();) {
        const auto [table, time] = *next;
        if (time > Clock::now()) {
            ++next;
        } else {
            next = unpark_at_.erase(next);
            to_front(table);
        }
    }
}

void Backlog::to_front(TableKey table) noexcept {
    const auto concerned = [table](const auto& parked) {
        return parked.first.table == table || parked.first.own == table;
    };
    if (std::ranges::none_of(parked_, concerned)) return;
    now_in_line();
    for (auto parked = parked_.begin(); parked != parked_.end();) {
        const auto each = parked++;
        if (!concerned(*each)) continue;
        for (Waiting& waiting : each->second) waiting.parked.reset();
        unasked_.splice(unasked_.begin(), each->second);
        parked_.erase(each);
    }
    next_round_ = std::min(next_round_, Clock::now());
    wake_.notify_all();
}

Backlog::Place Backlog::join(const Ufid& ufid, bool asked) {
    std::lock_guard lock(mutex_);
    now_in_line();
    Place place;
    const Waiting waiting{ufid, asked};
    place.entry_ = asked ? asked_.insert(asked_.end(), waiting) : unasked_.insert(unasked_.begin(), waiting);
    place.backlog_ = this;
    return place;
}

void Backlog::refused(const Error& why, bool again) noexcept {
    {
        std::lock_guard lock(refusal_mutex_);
        refusal_ = why.what;
    }
    if (!again) failures_.fetch_add(1, std::memory_order_relaxed);
}

Error Backlog::full() const {
    std::lock_guard lock(refusal_mutex_);
    return Error{ENOSPC, "the device took none of the last megaflows: " + refusal_, "waiting for room"};
}

void Backlog::taken() noexcept {
    if (failures_.load(std::memory_order_relaxed) == 0) return;
    failures_.store(0, std::memory_order_relaxed);
    room();
}

void Backlog::room() noexcept {
    if (!waiting_.load(std::memory_order_relaxed)) return;
    std::lock_guard lock(mutex_);
    const Clock::time_point soon = last_round_ + shortest_rest;
    if (next_round_ <= soon) return;
    next_round_ = soon;
    wake_.notify_all();
}

std::size_t Backlog::length() const {
    std::lock_guard lock(mutex_);
    return asked_.size() + unasked_.size();
}

void Backlog::work() noexcept {
    std::unique_lock lock(mutex_);
    while (!ending_) {
        unpark_due();
        if (is_empty()) {
            wait_until(lock, Time::max());
        } else if (Clock::now() < next_round_) {
            wait_until(lock, next_round_);
        } else {
            try_until_it_fails(lock);
        }
    }
}

/// Or until there is something else to do.
void Backlog::wait_until(std::unique_lock<std::mutex>& lock, Time time) noexcept {
    for (const auto& [table, until] : unpark_at_) time = std::min(time, until);
    if (time == Time::max()) return wake_.wait(lock);
    wake_.wait_until(lock, time);
}

/// Whose turn it is in this round; null: it has tried all. Whoever is refused goes to the end: behind one that has been
/// tried stand others that have been, and those that came meanwhile and have just been refused.
Backlog::Line* Backlog::next_line() noexcept {
    const auto has_more = [this](const Line& line) { return !line.empty() && line.front().round != round_; };
    const bool from_unasked = has_more(unasked_) && !(asked_is_next_ && has_more(asked_));
    if (!from_unasked && !has_more(asked_)) return nullptr;
    asked_is_next_ = from_unasked;
    return from_unasked ? &unasked_ : &asked_;
}

std::optional<Backlog::Attempt> Backlog::try_next(std::unique_lock<std::mutex>& lock) noexcept {
    Line* const next = next_line();
    if (next == nullptr) return std::nullopt;
    tried_ = next->begin();
    (*tried_)->round = round_;
    const Ufid ufid = (*tried_)->ufid;
    lock.unlock();
    const Attempt attempt = try_again_(ufid);
    lock.lock();
    if (attempt == Attempt::refused && tried_) {
        Line& line = line_of(**tried_);
        (*tried_)->asked = true;
        asked_.splice(asked_.end(), line, *tried_);
    }
    tried_.reset();
    return attempt;
}

/// Only what the device takes lets the round go on: an attempt that fails may have made a table for a moment, and who
/// waits for that table is in line again each time, only to be parked once more.
void Backlog::try_until_it_fails(std::unique_lock<std::mutex>& lock) noexcept {
    ++round_;
    bool any_taken = false;
    unsigned failures = 0;
    while (failures < failures_per_round && !ending_) {
        const std::optional<Attempt> attempt = try_next(lock);
        if (!attempt) break;
        if (*attempt == Attempt::taken) {
            any_taken = true;
            failures = 0;
        } else if (*attempt == Attempt::refused) {
            ++failures;
        }
    }
    futile_ += failures;
    if (any_taken) {
        rest_ = shortest_rest;
        futile_ = 0;
    } else if (futile_ >= failures_per_round) {
        rest_ = std::min(2 * rest_, longest_rest);
        futile_ = 0;
    }
    last_round_ = Clock::now();
    next_round_ = last_round_ + rest_;
}

}  // namespace ovsdr::dr
