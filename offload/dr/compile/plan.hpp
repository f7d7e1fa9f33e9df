// What the compiler makes of a megaflow: everything that installing its rules needs, and nothing of a device.
//
// Model. A megaflow's packets are matched by one rule in FDB level 1. What then happens is a list of Legs: a leg is the
// packet with some VLAN operations applied and the vports it then goes to. No leg: drop. One leg: the rule does it
// itself. Several: the rule copies to the vports of the unchanged leg and to one branch table per changed leg, whose
// one rule (matching the source vport, so that it exists on one side only) does that leg's operations and outputs.
//
// Threads: values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "offload/dr/ids.hpp"
#include "offload/dr/device/match_param.hpp"

namespace ovsdr::dr {

struct MatchPlan {
    MatchParam mask;
    MatchParam value;
    VportId source{0};            ///< also in mask and value
    std::uint8_t vlan_tags = 0;   ///< how many tags each matched packet has: 0, 1, or unknown_tags

    static constexpr std::uint8_t unknown_tags = 0xFF;
    friend bool operator==(const MatchPlan&, const MatchPlan&) = default;
};

struct VlanTag {
    std::uint16_t tpid;   ///< host order
    std::uint16_t tci;    ///< host order, as on the wire: PCP, DEI, VID
    friend auto operator<=>(const VlanTag&, const VlanTag&) = default;
};

struct Leg {
    std::uint8_t pops = 0;
    std::vector<VlanTag> pushes;      ///< in order; the last is the outermost
    std::vector<VportId> outputs;     ///< ascending, none twice

    [[nodiscard]] bool changes_packet() const noexcept { return pops != 0 || !pushes.empty(); }
    friend bool operator==(const Leg&, const Leg&) = default;
    friend auto operator<=>(const Leg&, const Leg&) = default;
};

struct RulePlan {
    MatchPlan match;
    std::vector<Leg> legs;            ///< the unchanged one, if any, first; empty: drop
    std::uint8_t bytes_uncounted = 0; ///< bytes per packet that the device counts too few of (tags popped before)

    friend bool operator==(const RulePlan&, const RulePlan&) = default;
};

/// "{source_port=0x1, ethertype=0x800/0xffff}": fields set in `mask` with their values; masks where they are not full.
[[nodiscard]] std::string text_of(const MatchParam& mask, const MatchParam& value);
/// "{source_port, ethertype, src_ip_31_0/0xffffff00}": what a matcher looks at.
[[nodiscard]] std::string text_of(const MatchParam& mask);
/// "pop_vlan, push_vlan 0x8100 vid 5 pcp 0, dest_vport 2". Says all that the leg does: equal texts, equal legs.
[[nodiscard]] std::string text_of(const Leg& leg);
/// The legs, or "drop".
[[nodiscard]] std::string text_of(const RulePlan& plan);

}  // namespace ovsdr::dr
