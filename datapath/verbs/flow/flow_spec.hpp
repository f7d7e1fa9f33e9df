// The list of specifications behind an ibv_flow_attr, translated into the device's match parameters and what else the
// flow asks for.
//
// Pure: nothing of the device is touched. Each specification sets bits of the outer or (IBV_FLOW_SPEC_INNER) the inner
// headers; a later one may repeat what an earlier one said of the IP protocol, but not contradict it.
//
// Errors are the kernel's: EINVAL (a type that it does not know, sizes, contradictions, a tag of more than 24 bits, two
// counters), EOPNOTSUPP (fields that mlx5 does not match on: TTL and flags of IPv4, hop limit, ESP sequence, GRE
// flags). Source: ibv_create_flow(3); ib_uverbs' kern_spec_to_ib_spec, mlx5_ib's parse_flow_attr.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "datapath/steering/match.hpp"

namespace ovsdr::soft {

struct FlowPlan {
    std::array<std::uint8_t, match_param_size> mask{}, value{};
    std::optional<std::uint32_t> tag;
    bool drop = false;
    ibv_counters* counters = nullptr;
    std::vector<ibv_flow_action*> actions;
    bool multicast_only = false;  ///< of the first specification: such flows come after every priority

    /// match_criteria_enable: the blocks of the mask with bits in them.
    [[nodiscard]] std::uint8_t criteria() const noexcept;
};

/// The specifications behind `attr`, as many as num_of_specs says, each as long as it says itself; the attribute's own
/// size is not asked, as libibverbs does not.
[[nodiscard]] int plan_flow(const ibv_flow_attr& attr, FlowPlan& plan);

}  // namespace ovsdr::soft
