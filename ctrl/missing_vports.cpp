#include "ctrl/missing_vports.hpp"

#include <algorithm>
#include <utility>

namespace ovsdr::ctrl {

void MissingVports::add(std::shared_ptr<OpenDevice> device, dr::VportId vport, Clock::time_point now) {
    const std::lock_guard guard(lock_);
    std::erase_if(list_, [&](const Missing& missing) { return missing.device == device && missing.vport == vport; });
    list_.push_back({.device = std::move(device), .vport = vport, .deadline = now + asked_anew});
}

void MissingVports::remove(const OpenDevice& device, dr::VportId vport) noexcept {
    const std::lock_guard guard(lock_);
    std::erase_if(list_,
                  [&](const Missing& missing) { return missing.device.get() == &device && missing.vport == vport; });
}

void MissingVports::forget_all() noexcept {
    std::vector<Missing> gone;   // closes devices without the lock
    const std::lock_guard guard(lock_);
    gone.swap(list_);
}

bool MissingVports::check(bool changed, Clock::time_point now) {
    const std::lock_guard guard(lock_);
    bool reconfigure = false;
    std::erase_if(list_, [&](Missing& missing) {
        // What is back under its name is opened only when nobody holds the old one any more.
        if (missing.device->has_gone()) {
            reconfigure = true;
            return true;
        }
        if (changed && dr::query_vport(*missing.device->eswitch, missing.vport)) {
            reconfigure = true;
            return true;
        }
        if (now < missing.deadline) return false;
        if (missing.doubted) return true;
        missing.doubted = true;
        missing.deadline = now + time_to_answer;
        reconfigure = true;
        return false;
    });
    return reconfigure;
}

std::optional<MissingVports::Clock::time_point> MissingVports::next_check() const {
    const std::lock_guard guard(lock_);
    const auto first = std::ranges::min_element(list_, {}, &Missing::deadline);
    return first == list_.end() ? std::nullopt : std::optional(first->deadline);
}

MissingVports& missing_vports() {
    static auto* instance = new MissingVports;
    return *instance;
}

}  // namespace ovsdr::ctrl

using ovsdr::ctrl::missing_vports;
using ovsdr::ctrl::MissingVports;

bool ovsdr_missing_vports_check(bool changed) noexcept {
    return missing_vports().check(changed, MissingVports::Clock::now());
}

void ovsdr_missing_vports_forget() noexcept { missing_vports().forget_all(); }

int ovsdr_missing_vports_timeout() noexcept {
    const auto next = missing_vports().next_check();
    if (!next) return -1;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*next - MissingVports::Clock::now());
    return static_cast<int>(std::max<std::chrono::milliseconds::rep>(0, left.count()));
}
