// Short ways to make tables and rules that are there for long, and to pass on the device's errors.
//
// Threads: any. All may throw std::bad_alloc and leave nothing behind then.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "offload/dr/device/rule.hpp"

namespace ovsdr::dr {

/// Assigns a Result's value or leaves with its Error.
template <typename T>
Result<void> take(T& place, Result<T> result) {
    if (!result) return tl::unexpected(std::move(result.error()));
    place = std::move(*result);
    return {};
}

inline Result<void> take_table(std::shared_ptr<MatcherSet>& place, const std::shared_ptr<Domain>& domain,
                               std::uint32_t level) {
    auto table = Table::create(domain, level);
    if (!table) return tl::unexpected(std::move(table.error()));
    place = MatcherSet::create(std::move(*table));
    return {};
}

inline Result<Rule> make_rule(MatcherSet& table, const MatcherSpec& spec, const MatchParam& value,
                              std::vector<ActionRef> actions, mlx5dv_dr_action* counter = nullptr) {
    auto matcher = table.acquire(spec);
    if (!matcher) return tl::unexpected(std::move(matcher.error()));
    return Rule::create(std::move(*matcher), value, std::make_shared<const std::vector<ActionRef>>(std::move(actions)),
                        counter);
}

}  // namespace ovsdr::dr
