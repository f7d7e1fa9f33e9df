// Any bytes as a megaflow's actions: nothing is read behind their end, and whatever comes out of them is of a kind that
// the compiler knows: fields that exist, values inside their masks, copies that end.
#include <algorithm>
#include <memory>

#include "offload/dr/megaflow.h"
#include "tests/fuzz/megaflow_check.hpp"

extern "C" {
#include "ctrl/shim/megaflow.h"
}

namespace {

/// Headers lie in the actions that they came from.
void check_headers(const ovsdr_megaflow& megaflow, const std::uint8_t* from, std::size_t size) {
    const auto kept = std::min<std::uint32_t>(megaflow.n_actions, OVSDR_MAX_ACTIONS);
    for (std::uint32_t i = 0; i < kept; ++i) {
        if (megaflow.actions[i].type != OVSDR_ACTION_TUNNEL_PUSH) continue;
        const ovsdr_tunnel_push& push = megaflow.actions[i].tunnel_push;
        FUZZ_CHECK(push.header >= from && push.header + push.header_size <= from + size);
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    // As long as the actions are, and aligned as netlink has it.
    const std::unique_ptr<std::uint8_t[]> actions(new std::uint8_t[size]);
    std::copy_n(data, size, actions.get());
    ovsdr_megaflow megaflow;
    megaflow_from_actions(reinterpret_cast<const nlattr*>(actions.get()), size, &megaflow);
    ovsdr::fuzz::check_actions(megaflow);
    check_headers(megaflow, actions.get(), size);
    return 0;
}
