// At which level a table of megaflows lies, and where rules may lead from there.
//
// Model. Levels only ascend. A table behind a recirculation lies `per_table` levels above the table of the rule that
// made it, which leaves room for that rule's private tables. Which tables there are is the caller's to know: those of a
// device, or those that a device would have.
//
// Threads: pure functions.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>

#include "offload/dr/compile/plan.hpp"
#include "offload/dr/reject.hpp"

namespace ovsdr::dr {

struct Levels {
    static constexpr std::uint32_t entry = 1, per_table = 8, highest = 49;
};

enum class Lead { possible, too_deep, goes_back };

/// From a rule in a table of level `from` with `depth` private tables in between, to a table of level `to`, or to one
/// that is made for it.
[[nodiscard]] constexpr Lead lead(std::optional<std::uint32_t> to, std::uint32_t from, unsigned depth) noexcept {
    if (to) return *to > from + depth ? Lead::possible : Lead::goes_back;
    return from + Levels::per_table <= Levels::highest ? Lead::possible : Lead::too_deep;
}

/// All that the tables that are there have against a plan; a table whose coming or going changes that, and when to look
/// again if nobody says that anything has changed.
struct NoWay {
    using Time = std::chrono::steady_clock::time_point;
    Reject reject;
    TableKey because;
    std::optional<Time> again_at{};
};

/// What rules of a tunnel port's table can have against another one: see install/tunnel_rules.hpp.
[[nodiscard]] NoWay coincides(TableKey table);
[[nodiscard]] NoWay other_geneve_option(TableKey table);
[[nodiscard]] NoWay no_geneve_option(TableKey table, NoWay::Time again_at);

/// Nothing: there is no such table.
using LevelOf = std::function<std::optional<std::uint32_t>(TableKey)>;

[[nodiscard]] std::optional<NoWay> no_way_for(const RulePlan& plan, const LevelOf& level_of);

}  // namespace ovsdr::dr
