// The compiler: a megaflow, the ports and the device's profile in; the rules to install, or a Reject, out. Pure.
//
// Model. Validation and translation are one pass. The mask comes by value; each bit that found its place in the match
// parameter is cleared, and a bit left over is an obstacle that has its field's name (flow_fields.hpp). The pass goes
// on behind an obstacle: a Reject names every field and action at fault. Exact or refused: the rule takes a subset of
// the megaflow's packets and does to each what dpif-netdev would. Where the subset is a proper one, the rest takes the
// slow path, where the megaflow is known as well.
//
// Where a rule is narrower than its megaflow, on purpose:
// - VLAN: the device's ethertype is the one behind both tags that it parses, OVS's the one behind as many as vlan-limit
//   allows. With a limit of 1 a rule therefore asks for no second tag, or for one whose TPID is the megaflow's
//   ethertype; then it looks at nothing behind that. A third tag is refused: what a device makes of it is not written
//   anywhere. A megaflow with a tag but a wildcarded TPID takes the key's TPID. DEI is never matched: OVS has its mark
//   of presence in that bit.
// - IPv4 and IPv6: the device's parser must agree (ip_version), so frames with a broken IP header take the slow path.
// - Tunnels: tunnel_match.hpp. The ICMP fields of what is inside of one are refused: libmlx5 builds its look-up of ICMP
//   for the outer packet only, whatever else a matcher asks for.
// - L4 fields, and rewriting addresses or ports: never of a fragment (frag = 0). A protocol over IPv6: the same.
// - IPv6 extension headers: the device's ip_protocol is the one it parsed to. Numbers of extension headers themselves
//   are refused, for there OVS's nw_proto and the device's may mean different headers.
//
// Threads: pure functions. Source: OVS lib/flow.c miniflow_extract(), PRM fte_match_set_lyr_2_4, dr_action.c's order of
// actions.
#pragma once

#include <span>
#include <tl/expected.hpp>

#include "offload/dr/choices.hpp"
#include "offload/dr/device/caps.hpp"
#include "offload/dr/megaflow.h"
#include "offload/dr/compile/obstacles.hpp"
#include "offload/dr/compile/port_map.hpp"
#include "offload/dr/reject.hpp"
#include "offload/dr/compile/plan.hpp"

namespace ovsdr::dr {

template <typename T>
using Compiled = tl::expected<T, Reject>;

/// Adds what it finds to `obstacles`. With an obstacle the plan is good for compile_actions() only, to find the others.
[[nodiscard]] MatchPlan compile_match(const ovsdr_flow_fields& key, ovsdr_flow_fields mask, const PortMap& ports,
                                      const DeviceCaps& caps, Obstacles& obstacles) noexcept;

/// What OVS knows of the packets that the match takes. Software is told of it with its copies.
struct Packets {
    OdpPort in_port;
    unsigned parsed_tags = 1;   ///< behind how many OVS looks
    TunnelMetadata tunnel{};
};

/// `match`, `packets`, `obstacles`: of the same megaflow, since what is allowed depends on the source vport, the tags
/// and the headers. Of a megaflow whose in_port was refused, what depends on the source is not looked at. Narrows the
/// match where an action can be done to fewer packets only.
[[nodiscard]] Path compile_actions(std::span<const ovsdr_action> actions, MatchPlan& match, const Packets& packets,
                                   const PortMap& ports, const DeviceCaps& caps, const Choices& choices,
                                   Obstacles& obstacles) noexcept;

[[nodiscard]] Compiled<RulePlan> compile(const ovsdr_megaflow& megaflow, const PortMap& ports,
                                         const DeviceCaps& caps, const Choices& choices = {}) noexcept;

}  // namespace ovsdr::dr
