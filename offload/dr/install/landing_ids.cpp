#include "offload/dr/install/landing_ids.hpp"

#include <utility>

namespace ovsdr::dr {

/// They come round.
std::uint32_t LandingIds::after(std::uint32_t id) noexcept { return id < last ? id + 1 : first; }

std::uint32_t LandingIds::give(Meaning meaning) {
    std::lock_guard lock(mutex_);
    while (ids_.contains(next_)) next_ = after(next_);
    ids_[next_] = std::move(meaning);
    return std::exchange(next_, after(next_));
}

void LandingIds::take_back(std::uint32_t id) noexcept {
    std::lock_guard lock(mutex_);
    ids_.erase(id);
}

void LandingIds::gone(std::uint32_t id) noexcept {
    std::lock_guard lock(mutex_);
    gone_.push_back(id);
    if (gone_.size() <= remembered) return;
    ids_.erase(gone_.front());
    gone_.pop_front();
}

std::optional<LandingIds::Meaning> LandingIds::find(std::uint32_t id) const {
    std::lock_guard lock(mutex_);
    const auto found = ids_.find(id);
    return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace ovsdr::dr
