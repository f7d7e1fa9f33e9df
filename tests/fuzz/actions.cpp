// Any bytes as a megaflow's actions: nothing is read behind their end, and whatever comes out of them is of a kind that
// the compiler knows: fields that exist, values inside their masks, copies that end.
#include <algorithm>
#include <array>
#include <cstring>
#include <memory>

#include "offload/dr/megaflow.h"
#include "tests/fuzz/check.hpp"

extern "C" {
#include "ctrl/shim/megaflow.h"
}

namespace {

constexpr std::array field_sizes = {6, 6, 4, 4, 16, 16, 1, 1, 2, 2, 2, 2};   // by enum ovsdr_header_field

void check(const ovsdr_set& set) {
    FUZZ_CHECK(set.field < field_sizes.size());
    const auto size = static_cast<std::size_t>(field_sizes[set.field]);
    FUZZ_CHECK(std::any_of(set.mask, set.mask + size, [](std::uint8_t byte) { return byte != 0; }));
    for (std::size_t i = 0; i < sizeof set.mask; ++i) {
        FUZZ_CHECK((set.value[i] & ~set.mask[i]) == 0);
        FUZZ_CHECK(i < size || set.mask[i] == 0);
    }
}

/// The header lies in the actions that it came from.
void check(const ovsdr_tunnel_push& push, const std::uint8_t* from, std::size_t size) {
    FUZZ_CHECK(push.header_size <= OVSDR_MAX_TUNNEL_HEADER);
    FUZZ_CHECK(push.header >= from && push.header + push.header_size <= from + size);
}

void check(const ovsdr_megaflow& megaflow, const std::uint8_t* from, std::size_t size) {
    int depth = 0;
    const auto kept = std::min<std::uint32_t>(megaflow.n_actions, OVSDR_MAX_ACTIONS);
    for (std::uint32_t i = 0; i < kept; ++i) {
        const ovsdr_action& action = megaflow.actions[i];
        FUZZ_CHECK(action.type <= OVSDR_ACTION_UNSUPPORTED);
        if (action.type == OVSDR_ACTION_SET) check(action.set);
        if (action.type == OVSDR_ACTION_TUNNEL_PUSH) check(action.tunnel_push, from, size);
        if (action.type == OVSDR_ACTION_UNSUPPORTED) FUZZ_CHECK(std::strlen(action.unsupported) > 0);
        if (action.type == OVSDR_ACTION_COPY_BEGIN) ++depth;
        if (action.type == OVSDR_ACTION_COPY_END) FUZZ_CHECK(--depth >= 0);
    }
    FUZZ_CHECK(depth == 0 || megaflow.n_actions > OVSDR_MAX_ACTIONS);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    // As long as the actions are, and aligned as netlink has it.
    const std::unique_ptr<std::uint8_t[]> actions(new std::uint8_t[size]);
    std::copy_n(data, size, actions.get());
    ovsdr_megaflow megaflow;
    megaflow_from_actions(reinterpret_cast<const nlattr*>(actions.get()), size, &megaflow);
    check(megaflow, actions.get(), size);
    return 0;
}
