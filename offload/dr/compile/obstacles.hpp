// What the compiler has found against a megaflow so far.
//
// Threads: a value.
#pragma once

#include <algorithm>
#include <string>
#include <utility>

#include "offload/dr/reject.hpp"

namespace ovsdr::dr {

class Obstacles {
public:
    /// Each obstacle once, in the order in which they were found.
    void add(Obstacle obstacle) {
        if (std::ranges::count(found_.obstacles, obstacle) == 0) found_.obstacles.push_back(std::move(obstacle));
    }
    void add(RejectReason reason, StaticName name, std::string value = {}) { add({reason, name, std::move(value)}); }

    [[nodiscard]] bool empty() const noexcept { return found_.obstacles.empty(); }
    [[nodiscard]] bool has(RejectReason reason) const noexcept {
        return std::ranges::count(found_.obstacles, reason, &Obstacle::reason) != 0;
    }
    [[nodiscard]] Reject take() noexcept { return std::move(found_); }

private:
    Reject found_;
};

}  // namespace ovsdr::dr
