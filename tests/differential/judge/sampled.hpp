// How many packets samplers took, against how many they should have.
//
// Which ones is chance, and so is how many: over a run it must be within four standard deviations of what "one of N"
// says. A run has enough packets to tell 2 from 3, and 8 from 9 mostly; not 64 from 65.
//
// Threads: one.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace ovsdr::differential {

class Samplers {
public:
    void add(std::uint32_t one_of, bool taken);
    /// In words, one for each N that was not kept.
    [[nodiscard]] std::vector<std::string> faults() const;

private:
    struct Tally {
        std::uint64_t met = 0, taken = 0;
    };
    std::map<std::uint32_t, Tally> by_n_;
};

}  // namespace ovsdr::differential
