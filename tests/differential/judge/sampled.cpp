#include "tests/differential/judge/sampled.hpp"

#include <fmt/format.h>

#include <cmath>

namespace ovsdr::differential {

namespace {

constexpr double most_deviations = 4;

}  // namespace

void Samplers::add(std::uint32_t one_of, bool taken) {
    Tally& tally = by_n_[one_of];
    ++tally.met;
    tally.taken += taken ? 1 : 0;
}

std::vector<std::string> Samplers::faults() const {
    std::vector<std::string> faults;
    for (const auto& [one_of, tally] : by_n_) {
        const double part = 1.0 / one_of, mean = static_cast<double>(tally.met) * part;
        const double deviation = std::sqrt(mean * (1 - part));
        // Of few packets one more or less is no fault.
        const double off = std::abs(static_cast<double>(tally.taken) - mean);
        if (off <= most_deviations * deviation + 1) continue;
        faults.push_back(fmt::format("samplers of one in {} took {} of {} packets, {:.1f} standard deviations off",
                                     one_of, tally.taken, tally.met, off / deviation));
    }
    return faults;
}

}  // namespace ovsdr::differential
