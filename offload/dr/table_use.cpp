#include "offload/dr/table_use.hpp"

#include <map>
#include <string>
#include <utility>

namespace ovsdr::dr {

std::vector<Eswitch::TableUse> table_use_of(std::span<const MatcherSet* const> tables) {
    std::map<std::pair<std::string, std::uint32_t>, Eswitch::TableUse> by_level;
    for (const MatcherSet* const matchers : tables) {
        const Table& table = matchers->table();
        const std::string domain = name_of(table.domain()->type());
        const Eswitch::TableUse none{.domain = domain, .level = table.level()};
        Eswitch::TableUse& use = by_level.try_emplace({domain, table.level()}, none).first->second;
        ++use.tables;
        for (const MatcherSet::Row& row : matchers->rows()) {
            ++use.matchers;
            use.rules += row.rules;
        }
    }
    std::vector<Eswitch::TableUse> uses;
    for (auto& [key, use] : by_level) uses.push_back(std::move(use));
    return uses;
}

}  // namespace ovsdr::dr
