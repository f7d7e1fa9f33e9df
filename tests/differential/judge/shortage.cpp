#include "tests/differential/judge/shortage.hpp"

#include <algorithm>
#include <fstream>
#include <stdexcept>

#include "tests/differential/judge/names.hpp"

namespace ovsdr::differential {

namespace {

struct Row {
    std::string name, not_of;   ///< not_of: profiles
};

/// The first two columns; a name with commas is quoted.
Row row_of(const std::string& line) {
    const bool quoted = line.starts_with('"');
    const std::size_t begin = quoted ? 1 : 0, end = line.find(quoted ? '"' : ',', begin);
    const std::size_t second = line.find(',', end);
    if (end == std::string::npos || second == std::string::npos) throw std::runtime_error("not a row: " + line);
    return {line.substr(begin, end - begin), line.substr(second + 1, line.find(',', second + 1) - second - 1)};
}

}  // namespace

Shortage::Shortage(const std::string& wanted, bool connectx_5) {
    std::ifstream file(wanted);
    if (!file) throw std::runtime_error("cannot read " + wanted);
    for (std::string line; std::getline(file, line);) {
        if (line.empty() || line.starts_with("#")) continue;
        const Row row = row_of(line);
        if (!connectx_5 || row.not_of.find("cx5") == std::string::npos) counted_[row.name] = 0;
    }
}

void Shortage::recount(const std::vector<Megaflow>& versions, const std::vector<std::uint8_t>& in_nic,
                       std::size_t goal) {
    goal_ = goal;
    for (auto& [name, counted] : counted_) counted = 0;
    for (std::size_t i = port_length; i < versions.size(); ++i) {   // not the markers'
        if (in_nic[i] != 0) add(versions[i]);
    }
}

void Shortage::add(const Megaflow& megaflow) {
    for (const std::string& name : names_of(megaflow)) {
        const auto found = counted_.find(name);
        if (found != counted_.end()) ++found->second;
    }
}

bool Shortage::is_there_any() const {
    return std::ranges::any_of(counted_, [&](const auto& one) { return one.second < goal_; });
}

bool Shortage::has_use_for(const Megaflow& megaflow) const {
    return std::ranges::any_of(names_of(megaflow), [&](const std::string& name) {
        const auto found = counted_.find(name);
        return found != counted_.end() && found->second < goal_;
    });
}

}  // namespace ovsdr::differential
