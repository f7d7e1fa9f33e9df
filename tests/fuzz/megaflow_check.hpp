// Whether a megaflow's actions are of a kind that the compiler knows, whatever they were made of.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>

#include "offload/dr/megaflow.h"
#include "tests/fuzz/check.hpp"

namespace ovsdr::fuzz {

/// Bytes that each field of ovsdr_set has, by enum ovsdr_header_field.
constexpr std::array<std::size_t, 12> set_sizes = {6, 6, 4, 4, 16, 16, 1, 1, 2, 2, 2, 2};

inline void check(const ovsdr_set& set) {
    FUZZ_CHECK(set.field < set_sizes.size());
    const std::size_t size = set_sizes[set.field];
    FUZZ_CHECK(std::any_of(set.mask, set.mask + size, [](std::uint8_t byte) { return byte != 0; }));
    for (std::size_t i = 0; i < sizeof set.mask; ++i) {
        FUZZ_CHECK((set.value[i] & ~set.mask[i]) == 0);
        FUZZ_CHECK(i < size || set.mask[i] == 0);
    }
}

/// Fields that exist, values inside their masks, copies that end.
inline void check_actions(const ovsdr_megaflow& megaflow) {
    int depth = 0;
    const auto kept = std::min<std::uint32_t>(megaflow.n_actions, OVSDR_MAX_ACTIONS);
    for (std::uint32_t i = 0; i < kept; ++i) {
        const ovsdr_action& action = megaflow.actions[i];
        FUZZ_CHECK(action.type <= OVSDR_ACTION_UNSUPPORTED);
        if (action.type == OVSDR_ACTION_SET) check(action.set);
        if (action.type == OVSDR_ACTION_TUNNEL_PUSH) {
            FUZZ_CHECK(action.tunnel_push.header_size <= OVSDR_MAX_TUNNEL_HEADER);
        }
        if (action.type == OVSDR_ACTION_SOFTWARE) {
            FUZZ_CHECK(action.software.actions_size > 0 && action.software.one_of > 0);
            FUZZ_CHECK(action.software.actions_size <= OVSDR_MAX_SOFTWARE_ACTIONS);
            FUZZ_CHECK(action.software.metered_from < action.software.actions_size);
        }
        if (action.type == OVSDR_ACTION_UNSUPPORTED) FUZZ_CHECK(std::strlen(action.unsupported) > 0);
        if (action.type == OVSDR_ACTION_COPY_BEGIN) ++depth;
        if (action.type == OVSDR_ACTION_COPY_END) FUZZ_CHECK(--depth >= 0);
    }
    FUZZ_CHECK(depth == 0 || megaflow.n_actions > OVSDR_MAX_ACTIONS);
}

}  // namespace ovsdr::fuzz
